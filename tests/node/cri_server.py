"""A CRI server of the tests' own that lists many containers, well or badly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio
from google.protobuf.message import Message

from haru.proto.cri_pb2 import Container, ContainerMetadata
from protobuf_wire import chunk

OPTIONS = (("grpc.max_send_message_length", 64 * 1024 * 1024),)


def containers(count: int, payload: int = 1500) -> list[Container]:
    """Containers of about `payload` bytes each, as the annotations of a kubelet make them."""
    filler = {"note": "x" * payload}
    return [
        Container(
            id=f"id-{n:06}",
            pod_sandbox_id=f"sandbox-{n // 3}",
            metadata=ContainerMetadata(name=f"c{n}"),
            annotations=filler,
        )
        for n in range(count)
    ]


@dataclass
class Server:
    """Lists `items`, as what `lists` says. What it does badly is said by its fields."""

    items: Sequence[Message]
    lists: str = "Containers"
    batch: int = 500
    streams: bool = True
    fails_after: int | None = None
    """How many batches a stream brings before it ends in `status`."""
    status: grpc.StatusCode = grpc.StatusCode.INTERNAL
    pause: float = 0.0
    """Seconds between batches."""
    garbage: bytes = b""
    """What ends the list, and is no message."""
    calls: list[str] = field(default_factory=list)

    def handlers(self) -> grpc.GenericRpcHandler:
        unary = grpc.unary_unary_rpc_method_handler(self.list)
        methods = {f"List{self.lists}": unary}
        if self.streams:
            methods[f"Stream{self.lists}"] = grpc.unary_stream_rpc_method_handler(self.stream)
        return grpc.method_handlers_generic_handler("runtime.v1.RuntimeService", methods)

    async def list(self, _: bytes, __: object) -> bytes:
        self.calls.append("unary")
        return b"".join(chunk(1, item.SerializeToString()) for item in self.items) + self.garbage

    async def stream(self, _: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> AsyncIterator[bytes]:
        self.calls.append("stream")
        for number, start in enumerate(range(0, len(self.items), self.batch)):
            if number == self.fails_after:
                await context.abort(self.status, "the store is broken")
            if self.pause:
                await asyncio.sleep(self.pause)
            yield b"".join(chunk(1, item.SerializeToString()) for item in self.items[start : start + self.batch])
        if self.garbage:
            yield self.garbage
        if self.fails_after is not None:
            await context.abort(self.status, "the store is broken")


@asynccontextmanager
async def served(server: Server, socket: Path) -> AsyncIterator[str]:
    """The server on a socket; its endpoint."""
    running = grpc.aio.server(options=OPTIONS)
    running.add_generic_rpc_handlers((server.handlers(),))
    running.add_insecure_port(f"unix:{socket}")
    await running.start()
    try:
        yield f"unix://{socket}"
    finally:
        await running.stop(0)
