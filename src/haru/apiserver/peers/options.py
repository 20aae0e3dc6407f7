"""The options of peers and of front proxies."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

HOP = "x-kubernetes-peer-proxied"
"""The header of a request that was forwarded once: it is not forwarded again."""
SERVER_NAME = "kubernetes.default.svc"
"""What the serving certificate of every peer is for."""


@dataclass(frozen=True, slots=True)
class FrontProxyOptions:
    """Who may speak for users with headers (`--requestheader-…`).

    `authorities` are those (PEM) of the certificates of such clients; `names` the common names that are taken, empty
    for any. The header names are in lower case.
    """

    authorities: bytes
    names: tuple[str, ...] = ()
    user: tuple[str, ...] = ("x-remote-user",)
    uid: tuple[str, ...] = ("x-remote-uid",)
    group: tuple[str, ...] = ("x-remote-group",)
    extra: tuple[str, ...] = ("x-remote-extra-",)


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """A server's name among its peers, where they reach it, and with what it reaches them.

    `authority` (PEM) is that of the peers' serving certificates, `certificate` and `key` (PEM) are shown to them.
    Without all three nothing is forwarded, and nothing told of the others.
    """

    hostname: str = field(default_factory=socket.gethostname)
    advertise_ip: str = ""
    """Empty: the address that the server is advertised at."""
    advertise_port: int = 0
    """0: the port that it serves."""
    authority: bytes = b""
    certificate: bytes = b""
    key: bytes = b""

    @property
    def complete(self) -> bool:
        """Whether requests can be forwarded."""
        return bool(self.authority and self.certificate and self.key)
