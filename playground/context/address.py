"""`address_of`: the client's address of an HTTP request; `source_of`: who sends one to Gradio."""

from typing import Any

from xla_backend.interface.request_queue import Source


def address_of(request: Any, behind_proxy: bool) -> str:
    """The client's address, as far as it can be trusted.

    Args:
        request: as Starlette has it; anything with headers and a client.
        behind_proxy: whether to trust X-Forwarded-For, which any client can forge unless a proxy
            sets it.
    """
    forwarded = request.headers.get("x-forwarded-for", "") if behind_proxy else ""
    first: str = forwarded.partition(",")[0].strip()
    return first or (request.client.host if request.client else "")


def source_of(request: Any, behind_proxy: bool) -> Source:
    """A program that calls an endpoint of Gradio; arguments as for `address_of`."""
    if request.headers.get("x-gradio-user") == "mcp":  # sent by this server, whoever called
        return Source("MCP")
    return Source("Gradio", address=address_of(request, behind_proxy))
