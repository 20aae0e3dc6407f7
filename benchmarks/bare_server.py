"""The server stack of the API server with nothing in it: what a request costs before Haru does anything.

    python -m benchmarks.bare_server CERTIFICATE KEY BODY

prints its port. Every request is answered with the bytes of the file BODY, in pieces if they are many.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from haru.apiserver.serving import TlsFiles, make_server
from haru.http2 import MAX_STREAMS
from haru.serving import listening_socket

PIECE_BYTES = 512 * 1024


def main() -> None:
    """Serves until it is killed."""
    import uvloop

    certificate, key, file = sys.argv[1:]
    body = Path(file).read_bytes()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]

    pieces = [body[begin : begin + PIECE_BYTES] for begin in range(0, len(body), PIECE_BYTES)]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number, piece in enumerate(pieces, 1):
            await send({"type": "http.response.body", "body": piece, "more_body": number < len(pieces)})

    async def serve() -> None:
        listener = listening_socket("127.0.0.1", 0, "port")
        server = make_server(app, TlsFiles(Path(certificate), Path(key)), MAX_STREAMS)
        print(listener.getsockname()[1], flush=True)
        await server.serve([listener])

    uvloop.run(serve())


if __name__ == "__main__":
    main()
