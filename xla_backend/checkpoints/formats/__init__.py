"""Files that hold a whole model, and are read as its Hugging Face folder."""
