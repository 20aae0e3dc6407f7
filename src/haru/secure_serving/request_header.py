"""Whom the aggregation layer speaks for: headers are believed only with its client certificate.

The authority of that certificate, the names it may have and the names of the headers are in the ConfigMap
`kube-system/extension-apiserver-authentication`. Source: the request header authenticator of extension API servers.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from haru.client.api import ApiClient
from haru.kube.errors import StatusError
from haru.secure_serving.certificates import certificates_in
from haru.secure_serving.component_certificates import CONFIG_MAP, NAME, NAMESPACE, NOT_READABLE, ComponentCertificates
from haru.secure_serving.http import Request
from haru.secure_serving.identity import ANONYMOUS, Unauthenticated, User, names_of_certificate, with_authenticated
from haru.secure_serving.options import ServingOptions
from haru.secure_serving.protocol import CERTIFICATE

_log = logging.getLogger(__name__)
_PREFIX = "requestheader-"


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """Who may speak for users: clients with a certificate of `authorities` (PEM) and one of the common `names`.

    Without names every certificate of the authorities will do. Header names are in lower case.
    """

    authorities: str
    names: tuple[str, ...]
    user: tuple[str, ...]
    uid: tuple[str, ...]
    group: tuple[str, ...]
    extra: tuple[str, ...]


def front_proxy_of(data: Mapping[str, Any]) -> FrontProxy:
    """Read the data of the ConfigMap. Raises ValueError for what would let users speak for each other."""
    authorities = str(data.get(f"{_PREFIX}client-ca-file") or "")
    if not authorities:
        raise ValueError(
            f"it has no {_PREFIX}client-ca-file: the API server runs without --requestheader-client-ca-file"
        )
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=authorities)
    names = _listed(data, "allowed-names")
    shared = _certificates(authorities) & _certificates(str(data.get("client-ca-file") or ""))
    if shared and not names:
        raise ValueError(
            f"{_PREFIX}allowed-names is empty, and one authority signs both front proxies and users: any user could "
            "speak for others; give --requestheader-allowed-names to the API server"
        )
    headers = {key: tuple(name.lower() for name in _listed(data, key)) for key in _HEADERS}
    if not headers["username-headers"]:
        raise ValueError(f"it has no {_PREFIX}username-headers")
    return FrontProxy(
        authorities,
        names,
        headers["username-headers"],
        headers["uid-headers"],
        headers["group-headers"],
        headers["extra-headers-prefix"],
    )


_HEADERS = ("username-headers", "uid-headers", "group-headers", "extra-headers-prefix")


def _listed(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    text = data.get(f"{_PREFIX}{key}")
    if not text:
        return ()
    try:
        found = json.loads(str(text))
    except json.JSONDecodeError as error:
        raise ValueError(f"{_PREFIX}{key} is no JSON: {error}") from None
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ValueError(f"{_PREFIX}{key} is no list of strings")
    return tuple(found)


def _certificates(pem: str) -> set[bytes]:
    return {ssl.PEM_cert_to_DER_cert(each.decode("ascii")) for each in certificates_in(pem.encode())}


def user_told(
    front_proxy: FrontProxy | None, certificate: bytes | None, headers: Iterable[tuple[bytes, bytes]]
) -> User:
    """Return the user in a request's headers, which came with a verified certificate (DER).

    Raises Unauthenticated without a certificate, for one of another name, and where the headers name no user.
    """
    if front_proxy is None:
        raise Unauthenticated("it is not known yet whose certificates may speak for users")
    if certificate is None:
        raise Unauthenticated("no client certificate: only the aggregation layer of the API server may ask")
    names = names_of_certificate(certificate)
    if front_proxy.names and not set(names) & set(front_proxy.names):
        raise Unauthenticated(f"the certificate of {', '.join(names) or 'nobody'} may not speak for users")
    try:
        told = [(name.decode("latin-1").lower(), value.decode()) for name, value in headers]
    except UnicodeDecodeError:
        raise Unauthenticated("a header is no UTF-8") from None
    name = _first(told, front_proxy.user)
    if not name:
        raise Unauthenticated("the headers name no user")
    groups = [value for key in front_proxy.group for header, value in told if header == key]
    extra: dict[str, list[str]] = {}
    for header, value in told:
        for prefix in front_proxy.extra:
            if header.startswith(prefix):
                extra.setdefault(unquote(header.removeprefix(prefix)).lower(), []).append(value)
    somebody = name != ANONYMOUS.name and not set(groups) & set(ANONYMOUS.groups)
    return User(name, with_authenticated(groups) if somebody else tuple(groups), _first(told, front_proxy.uid), extra)


def _first(told: Sequence[tuple[str, str]], names: Sequence[str]) -> str:
    return next((value for key in names for header, value in told if header == key and value), "")


class FrontProxyCertificates(ComponentCertificates):
    """The certificate of an extension API server; client certificates are those of the front proxies' authority."""

    def __init__(self, options: ServingOptions, pair: str) -> None:
        super().__init__(options, pair)
        self.front_proxy: FrontProxy | None = None
        """None until the ConfigMap has been read."""

    async def begin(self, client: ApiClient) -> None:
        """Make the certificate, and try once to read who may speak for users. Raises OSError and ValueError."""
        self.prepare()
        try:
            await self.look_up(client.hasty(5.0))
        except (StatusError, OSError, ValueError) as error:
            _log.warning("%s, nobody is answered until it is: %s", NOT_READABLE, error)

    def user_of(self, request: Request) -> User:
        """The user for whom the aggregation layer asks. Raises StatusError with 401."""
        certificate = (request.scope.get("extensions") or {}).get(CERTIFICATE)
        try:
            return user_told(self.front_proxy, certificate, request.scope["headers"])
        except Unauthenticated as error:
            _log.info("%s %s: unable to authenticate the request: %s", request.method, request.path, error)
            raise StatusError(401, "Unauthorized", "Unauthorized") from None

    async def look_up(self, client: ApiClient) -> None:
        """Read the ConfigMap once. Raises StatusError, OSError, ValueError; what was read before stays."""
        found = await client.get(CONFIG_MAP, NAME, NAMESPACE)
        front_proxy = front_proxy_of(found.get("data") or {})
        self.front_proxy, self.client_ca = front_proxy, front_proxy.authorities.encode("ascii")
