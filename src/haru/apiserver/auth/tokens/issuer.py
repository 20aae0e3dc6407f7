"""ServiceAccount tokens of one server: made, and checked when they come back.

What a signature has proved is remembered by the token's digest for as long as the key is good: to find it out is dear,
to find it out again would say the same.
Source: KEP 1205, TokenRequest of authentication.k8s.io/v1; KEP-740.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson
from cachetools import FIFOCache

from haru.apiserver.auth.token_options import TokenOptions
from haru.apiserver.auth.tokens.claims import WARN_AFTER_SECONDS, Reference, TokenLifetime, claims_of
from haru.apiserver.auth.tokens.discovery import IssuerDocuments
from haru.apiserver.auth.tokens.external import EXTENDED_SECONDS, ExternalKeys
from haru.apiserver.auth.tokens.metrics import TokenMetrics
from haru.apiserver.auth.tokens.signer_client import SignerClient
from haru.apiserver.auth.tokens.sources import KeySource, LocalKeys
from haru.apiserver.auth.tokens.validation import LEGACY_ISSUER, InvalidToken, TokenVerifier, VerifiedToken
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.serving_address import ServingAddress
from haru.jose import JoseError, PublicKey, encode, is_signed_by, split
from haru.kube.meta import Obj

REMEMBERED = 8192


@dataclass(frozen=True, slots=True)
class _VerifiedSignature:
    """What the signature of a token has proved."""

    key: PublicKey
    claims: Obj


@dataclass(frozen=True, slots=True)
class Issued:
    """A new token; `expires` (seconds since the epoch) is what it is said to be good for."""

    token: str
    token_id: str
    expires: int


class AccountTokens:
    """Everything about ServiceAccount tokens that outlives a request."""

    def __init__(
        self, objects: ObjectStore, options: TokenOptions, signing_key_pem: bytes, address: ServingAddress
    ) -> None:
        options.check(signing_key_pem)
        self._clock = objects.clock
        self._signing_key_pem = signing_key_pem
        self._options = options
        self.metrics = TokenMetrics(external=bool(options.endpoint))
        self.max_seconds = options.max_seconds
        self._extended_seconds = EXTENDED_SECONDS
        self.documents = IssuerDocuments(address, options.issuers[0], options.jwks_uri)
        self._checker = TokenVerifier(objects, self.metrics, lookup=options.lookup)
        self._proven: FIFOCache[bytes, _VerifiedSignature] = FIFOCache(REMEMBERED)
        self._external: ExternalKeys | None = None
        if options.endpoint:
            client = SignerClient(options.endpoint, self.metrics)
            self._external = ExternalKeys(client, self.metrics, self.documents.changed)
        self._source: KeySource | None = self._external

    @property
    def audiences(self) -> tuple[str, ...]:
        """Whom tokens are for unless they say otherwise: this server."""
        return self._options.api_audiences

    @property
    def can_sign(self) -> bool:
        """Whether there is anything to sign with."""
        return self._external is not None or bool(self._signing_key_pem)

    @property
    def source(self) -> KeySource:
        """Where the keys are; those of files are read when they are first needed."""
        if self._source is None:
            from haru.apiserver.auth.tokens.keys import load_signing_key, load_verification_keys

            pem = self._signing_key_pem
            more = [key for text in self._options.verification_pems for key in load_verification_keys(text)]
            self._source = LocalKeys(load_signing_key(pem) if pem else None, more)
        return self._source

    async def start(self) -> None:
        """Fetch the keys of the external signer, if there is one. Raises HaruError."""
        if self._external is not None:
            self.max_seconds, self._extended_seconds = await self._external.start(self._options)

    async def stop(self) -> None:
        """Leave the signer alone."""
        if self._external is not None:
            await self._external.stop()

    def document(self, path: str) -> tuple[bytes, str, int] | None:
        """A document of discovery: body, type, age in seconds; None where there is none."""
        if not self.can_sign and not self._options.verification_pems:
            return None
        return self.documents.answer(path, self.source)

    async def issue(
        self, account: Obj, audiences: Sequence[str], seconds: int, bound: Mapping[str, Reference]
    ) -> Issued:
        """A token for an account. Raises `SignerError`."""
        now = int(self._clock().timestamp())
        life = TokenLifetime(now, seconds, seconds)
        of_pod = "pod" in bound and set(audiences) <= set(self.audiences)
        if self._options.extend and of_pod and seconds == WARN_AFTER_SECONDS:
            life = TokenLifetime(now, seconds, self._extended_seconds)
        token_id = str(uuid.uuid4())
        claims = {**claims_of(account, self._options.issuers[0], audiences, life, bound), "jti": token_id}
        token = await self.source.sign(encode(orjson.dumps(claims)))
        return Issued(token, token_id, now + seconds)

    async def check(self, token: str, audiences: Sequence[str] = ()) -> VerifiedToken | None:
        """Whose token it is, if it is for one of the audiences; None when it is none of ours. Raises `InvalidToken`."""
        if token.count(".") != 2 or not (self.can_sign or self._options.verification_pems):
            return None
        proven = await self._prove(token)
        if proven is None:
            return None
        wanted = audiences or self.audiences
        if proven.claims["iss"] == LEGACY_ISSUER and LEGACY_ISSUER not in self._options.issuers:
            return await self._checker.check_legacy(proven.claims, token, wanted)
        return await self._checker.check(proven.claims, wanted)

    async def _prove(self, token: str) -> _VerifiedSignature | None:
        digest = hashlib.sha256(token.encode("utf-8", "replace")).digest()
        source = self.source
        proven = self._proven.get(digest)
        if proven is not None:
            if any(key is proven.key for key in source.known(proven.key.key_id)):
                return proven
            del self._proven[digest]
        try:
            parts = split(token)
        except JoseError:
            return None
        issuer = parts.payload.get("iss")
        if issuer != LEGACY_ISSUER and issuer not in self._options.issuers:
            return None
        for key in await source.find(parts.key_id) if parts.key_id else source.keys():
            if is_signed_by(key, parts.algorithm, parts.signed, parts.signature):
                self._proven[digest] = proven = _VerifiedSignature(key, parts.payload)
                return proven
        raise InvalidToken("no key of this server has signed the service account token")
