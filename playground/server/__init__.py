"""What stands around Gradio's app: the gate, the password, health, the description."""
