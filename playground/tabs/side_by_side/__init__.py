"""The Side by side tab."""
