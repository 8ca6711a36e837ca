"""OpenAI's protocol over many engines, on Ray Serve.

Nothing outside this package and `serve_app` imports Ray, which only requirements-ray.txt brings.

| module | knows |
| --- | --- |
| `settings` | what the service may be told |
| `router` | which replica Ray Serve asks |
| `replica` | one engine inside Ray Serve |
| `replicas` | the replicas as one engine that answers |
| `ingress` | the API over HTTP |
"""
