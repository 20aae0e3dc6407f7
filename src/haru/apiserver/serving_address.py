"""Tell under which address others reach this server."""

from __future__ import annotations

import ipaddress


class ServingAddress:
    """Hold the advertised address (`HOST:PORT`) and the address and port that the server listens on."""

    def __init__(self, advertised: str) -> None:
        self.advertised = advertised
        self.listening: tuple[str, int] | None = None
        """The listener that was started last; None: there is none."""

    def reachable(self) -> tuple[str, int]:
        """Return the address and port that the server listens on; the advertised host if it listens on every one."""
        assert self.listening is not None
        host, port = self.listening
        if ipaddress.ip_address(host).is_unspecified:
            host = self.advertised.rpartition(":")[0].strip("[]")
        return host, port

    def external(self) -> str:
        """Return `HOST:PORT` for URLs: the reachable address, before a listener is started the advertised one."""
        if self.listening is None:
            return self.advertised
        host, port = self.reachable()
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
