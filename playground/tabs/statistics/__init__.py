"""The Statistics tab: what the engine and this visitor's runs took, counted."""
