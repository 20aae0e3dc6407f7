"""Access for one browser: a code that works once, then a cookie.

A browser brings no bearer token, and any page in it can send requests to loopback. So a request must name a loopback
address as its host (else a foreign name was made to resolve to it), and carry a cookie that other sites cannot make the
browser send (SameSite) and scripts cannot read (HttpOnly).
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Final

_BYTES = 32


def new_secret() -> str:
    """Make a random secret."""
    return secrets.token_urlsafe(_BYTES)


def check_loopback(host: str, port: int, where: str) -> None:
    """Raise ValueError with the flag, the value and the fix unless `host` is a loopback address."""
    if host == "localhost" or ipaddress.ip_address(host).is_loopback:
        return
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    remedy = f"take 127.0.0.1:{port}, and reach it from elsewhere through a tunnel, for example ssh -L"
    raise ValueError(
        f'{where}: Invalid value: "{shown}": the dashboard speaks plain HTTP and listens on loopback only; {remedy}'
    )


class Access:
    """The code and the cookie of one server. Cookies are shared by all ports, so the name has the port.

    `session` is that of a server that this one follows: the browser that has its cookie goes on.
    """

    def __init__(self, port: int, new_secret: Callable[[], str] = new_secret, session: str = "") -> None:
        self._code: str | None = new_secret()
        self.session: Final = session or new_secret()
        """What the cookie holds: nobody knows it before the code was used."""
        self._cookie = f"haru-dashboard-{port}"
        self._hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))

    @property
    def code(self) -> str:
        """The code; empty once it was used."""
        return self._code or ""

    def knows_host(self, host: str) -> bool:
        """Tell whether a Host header names this server by a loopback address."""
        return host.lower() in self._hosts

    def enter(self, code: str) -> str | None:
        """Return the `Set-Cookie` header for the right code, once; None otherwise."""
        if self._code is None or not secrets.compare_digest(code.encode(), self._code.encode()):
            return None
        self._code = None
        return f"{self._cookie}={self.session}; HttpOnly; SameSite=Strict; Path=/"

    def knows(self, cookies: str) -> bool:
        """Tell whether a Cookie header has the session."""
        try:
            morsel = SimpleCookie(cookies).get(self._cookie)
        except CookieError:
            return False
        return morsel is not None and secrets.compare_digest(morsel.value.encode(), self.session.encode())
