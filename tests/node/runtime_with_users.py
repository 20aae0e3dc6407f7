"""A runtime that says it has users for pods, in front of one that has none: every other call is passed on as it is.

Debian's containerd 1.6 can not give a pod users of its own, so no range is ever given away on it. Behind this process
the agent gives ranges to pods as it would; their containers run as the host's users. What is tried is the agent's book.

    python runtime_with_users.py LISTEN_SOCKET RUNTIME_SOCKET
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc
import grpc.aio

from haru.proto import cri_pb2 as cri

STATUS = "/runtime.v1.RuntimeService/Status"


class Between(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Passes calls on; who goes away in the middle of one is heard of behind it, too."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def service(self, details: Any) -> Any:
        """The handler of any method."""
        method = details.method

        async def passed(request: bytes, context: Any) -> bytes:
            try:
                answer: bytes = await self._channel.unary_unary(method)(request, timeout=context.time_remaining())
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "")
                raise AssertionError("abort raises") from None
            if method == STATUS:
                status = cri.StatusResponse.FromString(answer)
                del status.runtime_handlers[:]
                status.runtime_handlers.add(features=cri.RuntimeHandlerFeatures(user_namespaces=True))
                answer = status.SerializeToString()
            return answer

        return grpc.unary_unary_rpc_method_handler(passed)


async def main(listen: str, behind: str) -> None:
    """Until it is killed."""
    options = (("grpc.max_reconnect_backoff_ms", 200), ("grpc.min_reconnect_backoff_ms", 100))
    async with grpc.aio.insecure_channel(f"unix:{behind}", options=options) as channel:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((Between(channel),))
        server.add_insecure_port(f"unix:{listen}")
        await server.start()
        print("ready", flush=True)
        await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
