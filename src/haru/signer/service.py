"""The three calls of `v1.ExternalJWTSigner`, over whatever holds the keys.

Signed are payloads of ServiceAccount tokens, by issuers that it knows, for a bounded time.
Source: KEP-740. Bytes in and out: `haru.externaljwt` reads and writes the messages.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from haru import externaljwt as messages
from haru.errors import InputError
from haru.jose import JoseError, read_object
from haru.proto import MessageError
from haru.signer.schedule import LEEWAY_SECONDS, Pace

if TYPE_CHECKING:
    import grpc.aio


PREFIX = "system:serviceaccount:"
PAYLOAD_BYTES = 48 * 1024


class RefusedClaims(ValueError):
    """A payload that is not signed; the text says why, without repeating it."""


def check_claims(payload: str, now: float, max_seconds: int, issuers: Sequence[str]) -> None:
    """Raises `RefusedClaims`. Without `issuers` any issuer is good."""
    if len(payload) > PAYLOAD_BYTES:
        raise RefusedClaims(f"claims: more than {PAYLOAD_BYTES} bytes")
    try:
        claims = read_object(payload, "payload")
    except JoseError as error:
        raise RefusedClaims(f"claims: {error}") from None
    issuer, subject = claims.get("iss"), claims.get("sub")
    if not isinstance(issuer, str) or not issuer or (issuers and issuer not in issuers):
        raise RefusedClaims("claims: iss is none of the issuers that this signer signs for (--issuer)")
    if not isinstance(subject, str) or not subject.startswith(PREFIX) or subject.count(":") != PREFIX.count(":") + 1:
        raise RefusedClaims("claims: sub is no ServiceAccount")
    if not claims.get("aud"):
        raise RefusedClaims("claims: aud names nobody")
    issued, expires = claims.get("iat"), claims.get("exp")
    if not _is_time(issued) or not _is_time(expires):
        raise RefusedClaims("claims: iat and exp must be times")
    if abs(issued - now) > LEEWAY_SECONDS:
        raise RefusedClaims("claims: iat is not now: see to the clocks")
    if not issued < expires <= issued + max_seconds:
        raise RefusedClaims(f"claims: exp is not within {max_seconds} s of iat")


def _is_time(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


_LOG = logging.getLogger("haru.signer")


class Holder(Protocol):
    """What holds keys. `now` is in seconds since the epoch; all raise `InputError` for keys that cannot be used."""

    def keys(self, now: float) -> list[messages.Key]:
        """The public keys that API servers check with, in an order that stays."""

    def data_nanoseconds(self) -> int:
        """When what `keys` says was last looked up where it is kept, or changed there."""

    async def sign(self, payload: str, now: float) -> tuple[str, str]:
        """The token's header and signature, both in base64url, for a payload in base64url."""


class Service:
    """One signer. It signs for `issuers` only, for any issuer without them."""

    def __init__(
        self, holder: Holder, pace: Pace, issuers: Sequence[str] = (), clock: Callable[[], float] = time.time
    ) -> None:
        self._holder = holder
        self._pace = pace
        self._issuers = tuple(issuers)
        self._clock = clock

    def handlers(self) -> Any:
        """What a gRPC server is given."""
        import grpc

        calls = {"Sign": self.sign, "FetchKeys": self.fetch_keys, "Metadata": self.metadata}
        methods = {name: grpc.unary_unary_rpc_method_handler(call) for name, call in calls.items()}
        return grpc.method_handlers_generic_handler(messages.SERVICE, methods)

    async def sign(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        """Sign a payload, after a look at it. What is signed is never logged."""
        import grpc

        now = self._clock()
        try:
            payload = messages.read_sign_request(request)
            check_claims(payload, now, self._pace.max_expiration, self._issuers)
            return messages.sign_answer(*await self._holder.sign(payload, now))
        except (RefusedClaims, MessageError) as error:
            _LOG.warning("refused to sign: %s", error)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except InputError as error:
            await self._fail(context, error)
        raise AssertionError("abort does not return")

    async def fetch_keys(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        """The public keys."""
        try:
            keys = self._holder.keys(self._clock())
            answer = messages.Keys(keys, self._holder.data_nanoseconds(), self._pace.refresh_hint)
            return messages.keys_answer(answer)
        except InputError as error:
            await self._fail(context, error)
        raise AssertionError("abort does not return")

    async def metadata(self, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        """How long a token may be good."""
        return messages.metadata_answer(self._pace.max_expiration)

    async def _fail(self, context: grpc.aio.ServicerContext[bytes, bytes], error: Exception) -> None:
        import grpc

        _LOG.error("%s", error)
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
