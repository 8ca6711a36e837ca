"""`address_of`: the client's address of an HTTP request."""

from typing import Any


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
