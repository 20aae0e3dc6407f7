"""Ways into containers: the client is connected with the runtime's own streaming server.

What follows the head is between the client and the runtime, but for WebSockets that no runtime has (`websockets.py`).
A GET is a WebSocket's; SPDY comes as POST. Source: the kubelet's streaming endpoints, as behaviour.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from haru.kube.errors import StatusError
from haru.node.api.sources import ContainerRef, StreamOptions, StreamRequest, Streams
from haru.node.api.websockets import is_translated, socket_of
from haru.secure_serving.http import Answer, HttpError, Request, json_answer, text_answer
from haru.upgrade_proxy import ByteStream, UpgradeResponse, splice, wants_upgrade

Find = Callable[[str, str, str, str | None], ContainerRef]
_NOT_PASSED = frozenset({"host", "authorization", "content-length", "transfer-encoding", "cookie", "expect"})
_LONGEST_CHECKPOINT_SECONDS = 24 * 3600


class Streaming:
    """The streaming handlers of one node."""

    def __init__(self, streams: Streams, find: Find, most: int) -> None:
        self._streams, self._find, self._most = streams, find, most
        self._open = 0

    async def exec(self, request: Request) -> Answer:
        """A command in a container."""
        found, options = self._container(request), stream_options(request)
        if not options.command:
            raise HttpError(400, "you must specify at least one command")
        return await self._connect(request, lambda asked: self._streams.open_exec(found, options, asked), options)

    async def attach(self, request: Request) -> Answer:
        """A container's own process."""
        found, options = self._container(request), stream_options(request)
        return await self._connect(request, lambda asked: self._streams.open_attach(found, options, asked), options)

    async def port_forward(self, request: Request) -> Answer:
        """Ports of a pod."""
        parts = request.parts[1:]
        if len(parts) not in (2, 3) or not all(parts):
            raise HttpError(404, "404 page not found")
        found = self._find(parts[0], parts[1], parts[2] if len(parts) == 3 else "", None)
        ports = _ports(request)
        return await self._connect(request, lambda asked: self._streams.open_ports(found, ports, asked))

    async def run(self, request: Request) -> Answer:
        """Run a command in a container to its end; its output on both streams."""
        found = self._container(request)
        command = (request.query.get("cmd") or [""])[0].split(" ")
        if not command[0]:
            raise HttpError(400, "you must specify the command as cmd")
        try:
            said = await self._streams.run(found, command)
        except OSError as error:
            raise HttpError(500, str(error)) from error
        return Answer(200, said)

    async def checkpoint(self, request: Request) -> Answer:
        """A container's state, as a file on the node."""
        found = self._container(request)
        seconds = request.whole("timeout") or 0
        if not 0 <= seconds <= _LONGEST_CHECKPOINT_SECONDS:
            raise HttpError(400, f"timeout: Invalid value: {seconds}: write seconds, at most a day")
        try:
            return json_answer({"items": [await self._streams.checkpoint(found, seconds)]})
        except OSError as error:
            meta = found.pod["metadata"]
            what = f"{meta['namespace']}/{meta['name']}/{found.container}"
            raise HttpError(500, f"checkpointing of {what} failed ({error})") from error

    def _container(self, request: Request) -> ContainerRef:
        parts = request.parts[1:]
        if len(parts) not in (3, 4) or not all(parts):
            raise HttpError(404, "404 page not found")
        return self._find(parts[0], parts[1], parts[2] if len(parts) == 4 else "", parts[-1])

    async def _connect(
        self,
        request: Request,
        opening: Callable[[StreamRequest], Awaitable[UpgradeResponse]],
        options: StreamOptions | None = None,
    ) -> Answer:
        if not wants_upgrade(request.scope["headers"]):
            raise HttpError(400, "Upgrade request required")
        try:
            socket = socket_of(request.scope, options)
        except StatusError as error:
            raise HttpError(error.code, error.message) from error
        if self._open >= self._most:
            raise HttpError(503, f"{self._most} ways into containers are open already")
        self._open += 1
        taken = False
        try:
            opened = await opening(_asked(request) if socket is None else socket.asked)
            if opened.status != 101:
                return text_answer(opened.body.decode("utf-8", "replace"), opened.status)
            taken = True
        except OSError as error:
            raise HttpError(500, str(error)) from error
        finally:
            if not taken:
                self._open -= 1

        async def upgraded(take_over: Callable[[], ByteStream]) -> None:
            try:
                if socket is not None:
                    return await socket.run(opened.stream)
                client = take_over()
                client.writer.write(opened.head)
                await splice(client, opened.stream)
            finally:
                self._open -= 1
                opened.stream.writer.close()

        return Answer(101, upgraded=upgraded)


def _asked(request: Request) -> StreamRequest:
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.scope["headers"]]
    return StreamRequest(request.method, [(name, value) for name, value in headers if name not in _NOT_PASSED])


def stream_options(request: Request) -> StreamOptions:
    """Parse the streams of a query; 400 without any."""
    stdin, stdout, stderr, tty = (request.param(name) == "1" for name in ("input", "output", "error", "tty"))
    if not (stdin or stdout or stderr):
        raise HttpError(400, "you must specify at least 1 of stdin, stdout, stderr")
    command = tuple(request.query.get("command") or ())
    # A terminal has one stream.
    return StreamOptions(command, stdin, stdout, stderr and not tty, tty)


def _ports(request: Request) -> Sequence[int]:
    """The ports that a WebSocket names beforehand; SPDY names them later."""
    if (request.header(b"upgrade") or "").lower() != "websocket" or is_translated(request.scope["headers"]):
        return ()
    given = [port for value in request.query.get("port") or () for port in value.split(",")]
    if not given:
        raise HttpError(400, 'query parameter "port" is required')
    for port in given:
        if not port.isascii() or not port.isdigit() or len(port) > 5 or not 0 < int(port) < 65536:
            raise HttpError(400, f'port "{port[:20]}" must be a positive integer')
    return [int(port) for port in given]
