"""A log over a WebSocket: what comes of it is sent in binary messages, or in text ones of base64.

Source: the stream server of Kubernetes and its subprotocols `binary.k8s.io` and `base64.binary.k8s.io`.
"""

from __future__ import annotations

import base64

from haru.apiserver.request.http import Message, Request, Response
from haru.upgrade_proxy import wants_websocket

_BASE64 = "base64.binary.k8s.io"
_PROTOCOLS = ("binary.k8s.io", _BASE64)


def over_websocket(request: Request, response: Response) -> Response:
    """The answer as a WebSocket, where the client wants one; else itself."""
    if not wants_websocket(request.scope):
        return response
    from haru.apiserver.registry.watch_websocket import WebSocketWriter

    socket = WebSocketWriter(request, binary=True, known=_PROTOCOLS)
    in_text = socket.protocol == _BASE64

    async def send(message: Message) -> None:
        if body := bytes(message.get("body") or b""):
            await socket.tell(base64.b64encode(body) if in_text else body, text=in_text)

    async def receive() -> Message:
        await socket.gone()
        return {"type": "http.disconnect"}

    async def run(request: Request) -> None:
        socket.open()
        try:
            if response.stream is not None:
                await response.stream(Request(request.scope, receive, send))
            else:
                await send({"body": response.whole()})
        finally:
            await socket.close()

    return Response(101, tunnel=run)
