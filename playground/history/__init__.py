"""This visitor's runs, kept in the browser: the table, files, the Statistics tab."""
