"""The names under which browsers reach the dashboard: another one was made to resolve to it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""What `kubectl port-forward` is reached by."""


class KnownHosts:
    """Host names and addresses, with any port: a port is no part of who a server is."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(name.lower().strip("[]") for name in (*_LOOPBACK, *names) if name)

    def knows(self, host: str) -> bool:
        """Tell whether a Host header names this server. Addresses of its own are known as they are listed."""
        name = _name_in(host.lower())
        return name in self._names


def _name_in(host: str) -> str:
    """The name in `NAME:PORT`, `[ADDRESS]:PORT` or an address alone."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.rpartition(":")[0] if ":" in host else host
