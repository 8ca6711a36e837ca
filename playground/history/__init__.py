"""This visitor's runs, stored in the browser: the table and its files."""
