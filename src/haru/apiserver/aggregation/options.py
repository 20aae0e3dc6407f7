"""What a server is to extension API servers, and by what these know it."""

from __future__ import annotations

from dataclasses import dataclass

from haru.apiserver.peers.options import FrontProxyOptions
from haru.kube.api_services import GroupVersion


@dataclass(frozen=True, slots=True)
class AggregationOptions:
    """The certificates, in PEM, for and of extension API servers; empty ones are not used.

    `certificate` and `key` (`--proxy-client-cert-file`, `--proxy-client-key-file`) are shown to extension API servers.
    `clients` and `front_proxy` are published in `kube-system/extension-apiserver-authentication`: the authorities of
    users' certificates, and those of such a certificate with the names of the headers that come with it.
    `expected` are served by extension API servers that start soon after this one: requests wait for them.
    """

    certificate: bytes = b""
    key: bytes = b""
    clients: bytes = b""
    front_proxy: FrontProxyOptions | None = None
    expected: tuple[GroupVersion, ...] = ()
