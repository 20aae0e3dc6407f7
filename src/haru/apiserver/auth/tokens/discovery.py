"""OIDC discovery: how others check ServiceAccount tokens without asking this server of each one.

There are documents while there is a key to tell of, and the first issuer is an https URL; when the last such key goes,
the documents that were there stay.
Source: KEP 1393; OpenID Connect Discovery 1.0; RFC 7517.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson

from haru.apiserver.auth.tokens.sources import KeySource
from haru.apiserver.serving_address import ServingAddress
from haru.jose import PublicKey, jwk

CONFIGURATION = "/.well-known/openid-configuration"
KEYS = "/openid/v1/jwks"
PATHS = (CONFIGURATION, KEYS)
KEYS_TYPE = "application/jwk-set+json"


def is_issuer_url(issuer: str) -> bool:
    """Whether documents can be found by the issuer's name."""
    parts = urlsplit(issuer)
    return parts.scheme == "https" and bool(parts.netloc) and not parts.query and not parts.fragment


class IssuerDocuments:
    """Both documents of one server."""

    def __init__(self, address: ServingAddress, issuer: str, jwks_uri: str) -> None:
        self._address = address
        self._issuer = issuer
        self._jwks_uri = jwks_uri
        self._keys: list[dict[str, Any]] = []
        self._fresh = False
        self.served = is_issuer_url(issuer)

    def changed(self) -> None:
        """The keys are others now."""
        self._fresh = False

    def answer(self, path: str, source: KeySource) -> tuple[bytes, str, int] | None:
        """Body, type and age in seconds of a document; None where there is none."""
        if not self.served:
            return None
        if not self._fresh:
            # What was told stays when nothing is left to tell.
            self._keys, self._fresh = _told(source.keys()) or self._keys, True
        if not self._keys:
            return None
        if path == KEYS:
            return orjson.dumps({"keys": self._keys}), KEYS_TYPE, source.max_age()
        return orjson.dumps(self._configuration()), "application/json", source.max_age()

    def _configuration(self) -> dict[str, Any]:
        return {
            "issuer": self._issuer,
            "jwks_uri": self._jwks_uri or f"https://{self._address.external()}{KEYS}",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": sorted({key["alg"] for key in self._keys}),
        }


def _told(keys: Sequence[PublicKey]) -> list[dict[str, Any]]:
    return [jwk(key) for key in keys if not key.excluded]
