"""Small checkpoints that ship with the project, and the recipes that trained them.

Knows: how to invent stories, how to train and score three small models on them.
Must not know: the web page. Only the evaluation of a finished folder may use the engine.
"""
