"""What an answer means: a failure with its reason, a pause to take, the lines of a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import orjson

from haru.client.transport import Request, Response
from haru.kube.errors import StatusError


def retry_after(request: Request, response: Response) -> float | None:
    """How long the server asks us to wait, where the request may be sent again."""
    if response.status not in (429, 503) and not (request.method == "GET" and response.status >= 500):
        return None
    if request.path.endswith("/eviction"):  # a disruption budget refuses: that is the answer, not a busy server
        return None
    try:
        return max(0.0, float(response.headers["retry-after"]))
    except (KeyError, ValueError):
        return None


def failure(response: Response, request: Request) -> StatusError:
    """The error that an answer with an error status (or a body that cannot be read) stands for."""
    try:
        decoded = orjson.loads(response.body)
    except orjson.JSONDecodeError:
        decoded = None
    if isinstance(decoded, dict) and decoded.get("kind") == "Status" and decoded.get("status") != "Success":
        return StatusError.from_status({**decoded, "code": decoded.get("code") or response.status})
    text = response.body[:1024].decode("utf-8", "replace").strip()
    message = f"{request.method} {request.path}: the server answered {response.status}: {text or 'nothing'}"
    return StatusError(response.status if response.status >= 300 else 500, "Unknown", message)


async def next_before(deadline: float, lines: AsyncIterator[bytes]) -> bytes | None:
    """The next line, None at the end; `TimeoutError` when it does not come before `deadline` (of the loop's clock)."""
    async with asyncio.timeout_at(deadline):
        return await anext(lines, None)


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The lines of a body that comes in chunks of any size."""
    pending: list[bytes] = []
    async for chunk in chunks:
        *complete, rest = chunk.split(b"\n")
        for line in complete:
            pending.append(line)
            whole = b"".join(pending)
            pending.clear()
            if whole:
                yield whole
        if rest:
            pending.append(rest)
