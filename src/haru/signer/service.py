"""The three calls of `v1.ExternalJWTSigner`, over whatever holds the keys.

Source: KEP-740. Bytes in and out: `haru.externaljwt` reads and writes the messages.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from haru import externaljwt as messages
from haru.errors import InputError
from haru.proto import MessageError
from haru.signer.claims import RefusedClaims, check_claims
from haru.signer.schedule import Pace

if TYPE_CHECKING:
    import grpc.aio

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
