"""Many engines on Ray Serve behind the methods of `BackendProcess`.

Nothing outside this package and `serve_app` imports Ray, which only requirements-ray.txt brings.

| module | knows |
| --- | --- |
| `settings` | what the environment says about the service |
| `routing` | which replica a request should go to, without Ray |
| `key_router` | how Ray Serve is told so |
| `snapshot` | one replica's state, and many replicas' as if they were one engine's |
| `work` | a request and its replies, on their way |
| `board` | where replicas tell their state, and clients read it |
| `replica` | one engine inside Ray Serve |
| `cluster_backend` | the methods of `BackendProcess`, over replicas |
| `ingress` | the same over HTTP |
"""
