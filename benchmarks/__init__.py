"""Measurements of this engine, the page and their peers: `python -m benchmarks [MEASURE]`.

Knows all of them from outside. Nothing imports it.
"""
