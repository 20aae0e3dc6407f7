"""The way to a KMS plugin: plain gRPC over a Unix socket, calls that wait for it and are bounded in time and size.

Source: KEP-3299; grpc's name syntax (`unix:`, `unix-abstract:`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from haru import kms as messages
from haru.proto import MessageError
from haru.storage.kms.metrics import KmsMetrics

if TYPE_CHECKING:
    import grpc.aio

T = TypeVar("T")
ANSWER_BYTES = 128 * 1024
"""Several times what an answer may hold."""
_AWAY = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")
_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", ANSWER_BYTES),
    # A plugin that comes back is found at once: the socket is on this machine, and asking costs nothing.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


class KmsError(Exception):
    """A plugin gave no usable answer. `away`: it may give one later; `str()` says why."""

    def __init__(self, why: str, *, away: bool = False) -> None:
        super().__init__(why)
        self.away = away


class KmsClient:
    """Calls of one plugin, each bounded by `seconds`. All raise `KmsError`."""

    def __init__(self, socket: str, seconds: float, metrics: KmsMetrics) -> None:
        self._socket, self._seconds, self._metrics = socket, seconds, metrics
        self._channel: grpc.aio.Channel | None = None

    def open(self) -> None:
        """Begin to connect, within the running loop."""
        import grpc.aio

        name = self._socket
        target = f"unix-abstract:{name[1:]}" if name.startswith("@") else f"unix:{name}"
        self._channel = grpc.aio.insecure_channel(target, options=_OPTIONS)

    async def close(self) -> None:
        """Give the connection up."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def status(self) -> messages.Status:
        """Version, health and key, nothing of which has been checked."""
        return await self._call(messages.STATUS, b"", messages.read_status_answer)

    async def encrypt(self, plaintext: bytes, uid: str) -> messages.Encrypted:
        """The ciphertext, nothing of which has been checked."""
        request = messages.encrypt_request(plaintext, uid)
        return await self._call(messages.ENCRYPT, request, messages.read_encrypt_answer)

    async def decrypt(self, wanted: messages.Encrypted, uid: str) -> bytes:
        """The plaintext, nothing of which has been checked."""
        return await self._call(messages.DECRYPT, messages.decrypt_request(wanted, uid), messages.read_decrypt_answer)

    async def _call(self, method: str, request: bytes, read: Callable[[bytes], T]) -> T:
        import grpc.aio

        if self._channel is None:
            raise KmsError("the server is stopping", away=True)
        call: Any = self._channel.unary_unary(method)
        loop = asyncio.get_running_loop()
        began, code = loop.time(), "OK"
        try:
            answer: bytes = await call(request, timeout=self._seconds, wait_for_ready=True)
            return read(answer)
        except grpc.aio.AioRpcError as error:
            code = error.code().name
            where = f"{method} at {self._socket}"
            if code == "DEADLINE_EXCEEDED":
                raise KmsError(f"{where}: no answer within {self._seconds:g} s; see that it runs", away=True) from None
            raise KmsError(f"{where}: {code}: {error.details() or 'no reason given'}", away=code in _AWAY) from None
        except grpc.aio.UsageError:
            # The channel was closed while the call was made.
            code = "CANCELLED"
            raise KmsError("the server is stopping", away=True) from None
        except MessageError as error:
            raise KmsError(f"{method} at {self._socket}: {error}") from None
        except asyncio.CancelledError:
            code = "CANCELLED"
            raise
        finally:
            self._metrics.called(method, code, loop.time() - began)
