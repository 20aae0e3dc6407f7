"""gRPC calls of a plugin on this machine, over a Unix socket: they wait for it and are bounded in time and size.

Source: grpc's name syntax (`unix:`, `unix-abstract:`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from haru.proto import MessageError

if TYPE_CHECKING:
    import grpc.aio

T = TypeVar("T")
Observer = Callable[[str, str, float], None]
"""Told of every call: method, the name of its status, seconds."""
NOT_GRPC = "unknown-non-grpc"
"""The code of a failure that gRPC knows nothing of: an answer that cannot be read, or is not believed."""
SOCKET_BYTES = 107
"""The longest path of a Unix socket that Linux takes, in bytes."""
OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    # The socket is on this machine: a plugin that comes back is found at once, and asking costs nothing.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


@contextlib.contextmanager
def calling() -> Iterator[None]:
    """A call within; raises UsageError, as on a closed channel, where the channel was closed during the call.

    gRPC cancels such a call: its CancelledError would end the caller's task as if that had been cancelled.
    """
    import grpc.aio

    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise grpc.aio.UsageError("the channel was closed during the call") from None


class PluginChannel:
    """Calls of one plugin. A subclass says where a method is, and what is raised."""

    def __init__(self, socket: str, observe: Observer, max_bytes: int | None = None) -> None:
        self.socket = socket
        self._observe = observe
        self._options = OPTIONS if max_bytes is None else (*OPTIONS, ("grpc.max_receive_message_length", max_bytes))
        self._channel: grpc.aio.Channel | None = None

    def where(self, method: str) -> str:
        """Name the method of this plugin in an error."""
        raise NotImplementedError

    def failure(self, code: str, why: str) -> Exception:
        """Make the error for a status (`NOT_GRPC` for an answer that cannot be read)."""
        raise NotImplementedError

    def open(self) -> None:
        """Begin to connect, within the running loop."""
        import grpc.aio

        name = self.socket
        target = f"unix-abstract:{name[1:]}" if name.startswith("@") else f"unix:{name}"
        self._channel = grpc.aio.insecure_channel(target, options=self._options)

    async def close(self) -> None:
        """Give the connection up."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def call(self, method: str, request: bytes, seconds: float, read: Callable[[bytes], T]) -> T:
        """Call a method within `seconds`; the answer as `read` reads it."""
        import grpc.aio

        if self._channel is None:
            raise self.failure("CANCELLED", "the server is stopping")
        call: Any = self._channel.unary_unary(method)
        loop = asyncio.get_running_loop()
        began, code = loop.time(), "OK"
        try:
            with calling():
                answer: bytes = await call(request, timeout=seconds, wait_for_ready=True)
            return read(answer)
        except grpc.aio.AioRpcError as error:
            code = error.code().name
            if code == "DEADLINE_EXCEEDED":
                why = f"no answer within {seconds:g} s; see that it runs"
            else:
                why = f"{code}: {error.details() or 'no reason given'}"
            raise self.failure(code, f"{self.where(method)}: {why}") from None
        except grpc.aio.UsageError:
            # The channel was closed while the call was made.
            code = "CANCELLED"
            raise self.failure(code, "the server is stopping") from None
        except MessageError as error:
            raise self.failure(NOT_GRPC, f"{self.where(method)}: {error}") from None
        except asyncio.CancelledError:
            code = "CANCELLED"
            raise
        finally:
            self._observe(method, code, loop.time() - began)
