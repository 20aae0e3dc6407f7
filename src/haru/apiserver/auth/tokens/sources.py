"""Where keys are: with the server itself, or with a signer outside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from haru.apiserver.auth.tokens.keys import SigningKey
from haru.errors import HaruError
from haru.jose import PublicKey, encode

STATIC_MAX_AGE = 3600
"""For how many seconds others may keep the documents about keys in files."""


class SignerError(HaruError):
    """Keys or a signature did not come, or were not believed; `code` is gRPC's name for why, or `unknown-non-grpc`."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class KeySource(Protocol):
    """What tokens are signed with, and checked against."""

    def keys(self) -> Sequence[PublicKey]:
        """All keys that are good now, in their order."""

    def known(self, key_id: str) -> Sequence[PublicKey]:
        """Those with this id that are good now, without asking anybody."""

    async def find(self, key_id: str) -> Sequence[PublicKey]:
        """The keys with this id; an unknown id fetches the signer's keys. Never raises."""

    async def sign(self, payload: str) -> str:
        """A whole token of a payload in base64url. Raises `SignerError`."""

    def max_age(self) -> int:
        """For how many seconds the keys are the same, as far as is known."""


class LocalKeys:
    """Keys out of files."""

    def __init__(self, signing: SigningKey | None, more: Iterable[PublicKey] = ()) -> None:
        self._signing = signing
        own = [signing.public] if signing is not None else []
        by_id: dict[str, PublicKey] = {}
        for key in (*own, *more):
            by_id.setdefault(key.key_id, key)
        self._by_id = by_id

    def keys(self) -> Sequence[PublicKey]:
        """All keys, the one that signs first."""
        return tuple(self._by_id.values())

    def known(self, key_id: str) -> Sequence[PublicKey]:
        """The key with this id, if there is one."""
        found = self._by_id.get(key_id)
        return (found,) if found is not None else ()

    async def find(self, key_id: str) -> Sequence[PublicKey]:
        """The key with this id, if there is one."""
        return self.known(key_id)

    async def sign(self, payload: str) -> str:
        """A whole token. Raises `SignerError` where there is no key to sign with."""
        if self._signing is None:
            raise SignerError("FAILED_PRECONDITION", "this server has no key to sign ServiceAccount tokens with")
        public = self._signing.public
        header = f'{{"alg":"{public.algorithm}","kid":"{public.key_id}","typ":"JWT"}}'
        signed = f"{encode(header.encode())}.{payload}"
        return f"{signed}.{encode(self._signing.sign(signed.encode()))}"

    def max_age(self) -> int:
        """An hour: they change with a restart only."""
        return STATIC_MAX_AGE
