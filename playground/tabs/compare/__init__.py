"""The Compare tab: this engine beside Transformers, and beside itself."""
