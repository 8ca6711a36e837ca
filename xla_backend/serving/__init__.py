"""OpenAI's protocol over many engines, on Ray Serve.

Nothing outside this package and `serve_app` imports Ray, which is only in requirements-ray.txt.
"""
