"""Which proxy leads to a server: the one that its kubeconfig names, else that of the environment.

HTTPS_PROXY or HTTP_PROXY, by the server's scheme, names one for all servers but those of NO_PROXY and this machine.
Source: golang.org/x/net/http/httpproxy, by which client-go goes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Self
from urllib.parse import quote, unquote, urlsplit

_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
_WITH_PORT = re.compile(r"(?:\[([^\]]*)\]|([^:\[\]]*)):(\d*)").fullmatch


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy, and who we are there."""

    scheme: str
    host: str
    port: int
    user: str = ""
    password: str = ""

    @classmethod
    def of(cls, url: str) -> Self:
        """The proxy of a URL. Raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError(f"{url!r} is not an http://, https:// or socks5:// URL")
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme], user, password)

    def __str__(self) -> str:
        return f"proxy {self.scheme}://{authority(self.host, self.port)}"

    @property
    def url(self) -> str:
        """Its URL, with who we are there."""
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@" if self.user or self.password else ""
        return f"{self.scheme}://{login}{authority(self.host, self.port)}"

    @property
    def is_socks(self) -> bool:
        """Whether it speaks SOCKS version 5, and not HTTP."""
        return self.scheme.startswith("socks")

    def authorization(self) -> str:
        """The header by which it knows us, as HTTP/1.1 sends it; empty without a user."""
        if not (self.user or self.password):
            return ""
        return f"proxy-authorization: Basic {base64.b64encode(f'{self.user}:{self.password}'.encode()).decode()}\r\n"


def proxy_to(server: str, named: str, environ: Mapping[str, str]) -> Proxy | None:
    """The proxy on the way to the URL of a server: `named` if it is one, else the environment's. Raises ValueError."""
    if named:
        return Proxy.of(named)
    parts = urlsplit(server)
    variable = f"{parts.scheme}_proxy"
    url = _of_environment(environ, variable)
    port = parts.port or _PORTS.get(parts.scheme, 0)
    if not url or _is_exempt(parts.hostname or "", port, _of_environment(environ, "no_proxy")):
        return None
    if parts.scheme == "http" and environ.get("REQUEST_METHOD"):
        return None  # of a CGI script, whose clients set HTTP_PROXY by a header
    try:
        return Proxy.of(url if "://" in url else f"http://{url}")
    except ValueError as error:
        raise ValueError(f"{variable.upper()}: {error}") from None


def http_proxy_to(server: str, named: str, environ: Mapping[str, str]) -> str | None:
    """The URL of that proxy for who knows HTTP proxies alone. Raises ValueError, for one of SOCKS as well."""
    proxy = proxy_to(server, named, environ)
    if proxy is not None and proxy.is_socks:
        raise ValueError(f"{proxy}: a SOCKS proxy is not supported here")
    return proxy.url if proxy is not None else None


def authority(host: str, port: int) -> str:
    """Host and port as a URL has them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _of_environment(environ: Mapping[str, str], variable: str) -> str:
    return environ.get(variable.upper()) or environ.get(variable) or ""


def _is_exempt(host: str, port: int, exceptions: str) -> bool:
    """Whether a server is reached without the proxy of the environment."""
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    entries = [entry.strip().lower() for entry in exceptions.split(",")]
    return any(_matches(entry, host, port, address) for entry in entries if entry)


def _matches(entry: str, host: str, port: int, address: IPv4Address | IPv6Address | None) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ip_network(entry, strict=False)
        except ValueError:
            pass
    found = _WITH_PORT(entry)
    name, of_port = (found[1] or found[2] or "", found[3]) if found else (entry, "")
    if not name or (of_port and of_port != str(port)):
        return False
    if (other := _address(name)) is not None:
        return other == address
    if address is not None:
        return False
    # A name is that of its subdomains as well; one that begins with a dot, of these alone.
    suffix = name[1:] if name.startswith("*.") else name
    return host.endswith(suffix if suffix.startswith(".") else f".{suffix}") or host == suffix


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(host)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
