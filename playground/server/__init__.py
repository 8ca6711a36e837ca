"""Around Gradio's app: the gate, the password, health, metrics, the API description."""
