"""The password of a page: one for all visitors.

Knows the password, its cookie, and how often somebody may guess. Nothing here is ever logged.
"""

import base64
import binascii
import hmac
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Mapping

from starlette.requests import cookie_parser

COOKIE = "xla-playground"
TRIES = 10
"""Bound on wrong passwords from one address within `TRIES_S` seconds."""
TRIES_S = 60.0
_MAX_ADDRESSES = 10_000


class Password:
    """Checks the password."""

    def __init__(self, password: str) -> None:
        self._password = password.encode()
        # New at each start: a restart invalidates cookies.
        self._token = secrets.token_urlsafe(32)
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    def is_shown(self, headers: Mapping[str, str], address: str) -> bool:
        """Whether a request has the cookie, or the password as Bearer or Basic.

        Args:
            headers: by lower-case name.
            address: of the client.
        """
        given = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        if hmac.compare_digest(given.encode(), self._token.encode()):
            return True
        password = _authorization(headers.get("authorization", ""))
        return password is not None and self.is_right(password, address)

    def is_right(self, password: str, address: str) -> bool:
        """Whether this is the password; False for an address that has guessed too often."""
        if self.guesses_too_often(address):
            return False
        right = hmac.compare_digest(password.encode("utf-8", "surrogatepass"), self._password)
        if not right:
            self._wrong.setdefault(address, deque(maxlen=TRIES)).append(time.monotonic())
            self._wrong.move_to_end(address)
            if len(self._wrong) > _MAX_ADDRESSES:
                self._wrong.popitem(last=False)
        return right

    def guesses_too_often(self, address: str) -> bool:
        """Whether this address has to wait before it may try again."""
        wrong = self._wrong.get(address, deque())
        return len(wrong) == TRIES and time.monotonic() - wrong[0] < TRIES_S

    def cookie(self, is_https: bool) -> str:
        """The value of Set-Cookie after the right password.

        Args:
            is_https: whether the browser uses TLS. Only then a cookie reaches a page in a frame of
                another site, as on Spaces.
        """
        reach = "SameSite=None; Secure; Partitioned" if is_https else "SameSite=Lax"
        return f"{COOKIE}={self._token}; Path=/; HttpOnly; {reach}"


def _authorization(header: str) -> str | None:
    """The password in an Authorization header; the user name of Basic does not matter."""
    kind, _, value = header.partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (binascii.Error, ValueError):
            return None
    return None
