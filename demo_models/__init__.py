"""Small checkpoints that ship with the project, and the recipes that trained them.

Knows: how to invent stories and commands; in `training`, how to train and score models on them.
Must not know: the web page, nor the engine. All but `training` does without TensorFlow.
"""
