"""OpenAI's protocol over many engines, on Ray Serve.

Nothing outside this package and `serve_app` imports Ray, which is only in requirements-ray.txt.

| module | knows |
| --- | --- |
| `settings` | the service's arguments |
| `router` | which replica Ray Serve chooses |
| `replica` | one engine inside Ray Serve |
| `replicas` | the replicas as one engine that answers |
| `ingress` | the API over HTTP |
"""
