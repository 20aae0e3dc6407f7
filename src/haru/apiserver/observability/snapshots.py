"""`GET /haru/snapshot`: a copy of the whole state, made while it is written to, for whoever may ask for this path.

It holds everything, Secrets too (encrypted, where they are encrypted at rest): of the roles that a cluster starts with
only that of `system:masters` covers the path.
"""

from __future__ import annotations

import asyncio

from haru.apiserver.request.http import Request, Response
from haru.kube.errors import StatusError
from haru.storage import Store

PATH = "/haru/snapshot"
CONTENT_TYPE = "application/vnd.haru.snapshot"
CHUNK_BYTES = 256 * 1024
SEND_SECONDS = 60.0


async def snapshot_response(store: Store) -> Response:
    """The copy as a stream; its last 32 bytes are the digest of the others."""
    if store.shared:
        message = "the state is in etcd: back it up with etcdctl snapshot save"
        raise StatusError(501, "NotImplemented", message)
    path = await store.snapshot()
    file = path.open("rb")
    path.unlink()  # what was opened stays readable; nothing is left behind, whatever happens

    async def send(request: Request) -> None:
        with file:
            while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
                async with asyncio.timeout(SEND_SECONDS):
                    await request.send({"type": "http.response.body", "body": chunk, "more_body": True})

    return Response(200, b"", CONTENT_TYPE, [], send)
