"""Who speaks for others in headers is believed only with a certificate of the front proxies' own authority.

The HTTP server reports the chain of a verified client certificate; the authority at its end says whether it is a front
proxy's or a user's, as both are verified by the same listener. What a client that is none says in such headers is taken
out of its request before anybody reads it.
Source: the request header authenticator of kube-apiserver, as behaviour.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from haru.apiserver.auth.user import UserInfo, with_group
from haru.apiserver.peers.options import HOP, FrontProxyOptions
from haru.apiserver.request.http import Request
from haru.kube.errors import unauthorized_error

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def fingerprint(der: bytes) -> str:
    """What a certificate is recognized by."""
    return hashlib.sha256(der).hexdigest()


def certificates_in(pem: bytes | None) -> list[str]:
    """Each certificate of a bundle, without what stands between them."""
    return _PEM.findall(pem.decode("ascii", "replace")) if pem else []


def fingerprints(pem: bytes | None) -> frozenset[str]:
    """Those of all certificates in a bundle."""
    return frozenset(fingerprint(ssl.PEM_cert_to_DER_cert(text)) for text in certificates_in(pem))


class Authorities:
    """Which authority is for whom, and the front proxies' rules."""

    def __init__(self, clients: bytes | None, front_proxy: FrontProxyOptions | None) -> None:
        self._clients = fingerprints(clients)
        self._options = front_proxy
        self._front_proxies = fingerprints(front_proxy.authorities) if front_proxy is not None else frozenset()
        names: list[str] = []
        prefixes: list[str] = []
        if front_proxy is not None:
            names += [*front_proxy.user, *front_proxy.uid, *front_proxy.group]
            prefixes += front_proxy.extra
        self._names = frozenset(name.encode("latin-1") for name in names)
        self._prefixes = tuple(prefix.encode("latin-1") for prefix in prefixes)

    def is_user(self, peer: Any) -> bool:
        """Whether a certificate names a user: a client authority has signed it."""
        return self._options is None or peer.get("anchor") in self._clients

    def front_proxy_user(self, request: Request, peer: Any) -> UserInfo | None:
        """The user that a front proxy speaks for; None: the request is not from one, and says nothing of users.

        401 for a certificate of the front proxies' authority whose name is not one of theirs.
        """
        options = self._options
        if options is None:
            return None
        if not peer or peer.get("anchor") not in self._front_proxies:
            self._strip(request)
            return None
        allowed = not options.names or any(name in options.names for name in peer["names"])
        if not allowed:
            self._strip(request)
            if self.is_user(peer):
                return None
            raise unauthorized_error()
        user = self._told(request, options)
        self._strip(request)
        return user

    def _told(self, request: Request, options: FrontProxyOptions) -> UserInfo | None:
        headers: Iterable[tuple[bytes, bytes]] = request.scope["headers"]
        try:
            told = [(name.decode("latin-1"), value.decode()) for name, value in headers]
        except UnicodeDecodeError:
            raise unauthorized_error() from None
        name = _first(told, options.user)
        if not name:
            return None
        groups = tuple(value for key in options.group for header, value in told if header == key)
        extra: dict[str, list[str]] = {}
        for header, value in told:
            for prefix in options.extra:
                if header.startswith(prefix):
                    extra.setdefault(unquote(header.removeprefix(prefix)).lower(), []).append(value)
        return with_group(UserInfo(name, groups, _first(told, options.uid), extra))

    def _strip(self, request: Request) -> None:
        """Take the headers out: nobody after this reads them."""
        headers = request.headers
        found = [name for name in headers if name in self._names or name.startswith(self._prefixes)]
        if found:
            for name in found:
                del headers[name]
            request.scope["headers"] = [pair for pair in request.scope["headers"] if pair[0] not in found]


def _first(told: list[tuple[str, str]], names: Iterable[str]) -> str:
    return next((value for key in names for header, value in told if header == key and value), "")


def was_forwarded(request: Request) -> bool:
    """Whether another server has sent the request here, or its client says so: it goes no further."""
    return request.header(HOP.encode()) == "true"
