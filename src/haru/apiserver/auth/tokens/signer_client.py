"""The way to a signer outside: plain gRPC over a Unix socket, calls that wait for it and are bounded in time.

Source: KEP-740; grpc's name syntax (`unix:`, `unix-abstract:`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from haru import externaljwt as messages
from haru.apiserver.auth.tokens.metrics import NOT_GRPC, TokenMetrics
from haru.apiserver.auth.tokens.sources import SignerError
from haru.proto import MessageError

if TYPE_CHECKING:
    import grpc.aio

T = TypeVar("T")
FETCH_SECONDS = 60.0
METADATA_SECONDS = 10.0
SIGN_SECONDS = 10.0
"""Who asks for a token waits no longer for a signer that is away."""
_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    # A signer that comes back is found at once: the socket is on this machine, and asking costs nothing.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


class SignerClient:
    """Calls of one signer. All raise `SignerError`."""

    def __init__(self, endpoint: str, metrics: TokenMetrics) -> None:
        self._endpoint = endpoint
        self._metrics = metrics
        self._channel: grpc.aio.Channel | None = None
        self._calls: dict[str, Any] = {}

    def open(self) -> None:
        """Begin to connect, within the running loop."""
        import grpc.aio

        name = self._endpoint
        target = f"unix-abstract:{name[1:]}" if name.startswith("@") else f"unix:{name}"
        self._channel = grpc.aio.insecure_channel(target, options=_OPTIONS)

    async def close(self) -> None:
        """Give the connection up."""
        channel, self._channel = self._channel, None
        self._calls = {}
        if channel is not None:
            await channel.close()

    async def sign(self, payload: str) -> tuple[str, str]:
        """Header and signature of a payload, nothing of which has been checked."""
        request = messages.sign_request(payload)
        return await self._call(messages.SIGN, request, SIGN_SECONDS, messages.read_sign_answer)

    async def fetch_keys(self) -> messages.Keys:
        """The keys, nothing of which has been checked."""
        return await self._call(messages.FETCH_KEYS, b"", FETCH_SECONDS, messages.read_keys_answer)

    async def metadata(self) -> int:
        """The longest life of a token, in seconds."""
        return await self._call(messages.METADATA, b"", METADATA_SECONDS, messages.read_metadata_answer)

    async def _call(self, method: str, request: bytes, seconds: float, read: Callable[[bytes], T]) -> T:
        import grpc.aio

        if self._channel is None:
            raise SignerError("CANCELLED", "the server is stopping")
        call = self._calls.get(method)
        if call is None:
            call = self._calls[method] = self._channel.unary_unary(method)
        loop = asyncio.get_running_loop()
        began, code = loop.time(), "OK"
        try:
            answer: bytes = await call(request, timeout=seconds, wait_for_ready=True)
            return read(answer)
        except grpc.aio.AioRpcError as error:
            code = error.code().name
            where = f"the signer at {self._endpoint}: {method}"
            if code == "DEADLINE_EXCEEDED":
                raise SignerError(code, f"{where}: no answer within {seconds:g} s; see that it runs") from None
            raise SignerError(code, f"{where}: {code}: {error.details() or 'no reason given'}") from None
        except grpc.aio.UsageError:
            # The channel was closed while the call was made.
            code = "CANCELLED"
            raise SignerError(code, "the server is stopping") from None
        except MessageError as error:
            raise SignerError(NOT_GRPC, f"the signer at {self._endpoint}: {method}: {error}") from None
        except asyncio.CancelledError:
            code = "CANCELLED"
            raise
        finally:
            self._metrics.called(method, code, loop.time() - began)
