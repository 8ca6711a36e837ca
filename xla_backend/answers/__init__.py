"""What a model has written: its tokens become text, and the text thoughts, answer and calls."""
