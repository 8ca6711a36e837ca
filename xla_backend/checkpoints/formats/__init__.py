"""Files that hold a whole model, and are read as its Hugging Face folder.

What is damaged or not supported raises `ModelUnavailable`, whose text names the file and a way out.
"""
