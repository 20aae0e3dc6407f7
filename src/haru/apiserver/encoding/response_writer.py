"""Whole answers on their way to the client: the head, a long body in pieces or compressed, and the end of patience."""

from __future__ import annotations

import asyncio
import gzip
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate

import orjson

from haru.apiserver.encoding import gzip_parts
from haru.apiserver.encoding.negotiation import PROTOBUF, preferred_for_errors, wants_protobuf, wants_yaml
from haru.apiserver.request.http import JSON, TRUE, MadePieces, Request, Response, Scope
from haru.kube import yaml
from haru.kube.wire import CONTENT_TYPE
from haru.kube.wire_out import encode_protobuf
from haru.serving import ABORT, ANSWER, OBJECT

GZIP_FROM = 128 * 1024
PIECE_BYTES = 1024 * 1024
PIECE_SECONDS = 60.0
WARNING_RUNES = 4096
WARNING_RUNES_EACH = 256
WARNINGS_LIMIT = 50
"""Many HTTP clients, Python's among them, take at most 100 headers."""
_GZIPPED = ((b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding"))
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


def head_of(response: Response, audit_id: str, length: int | None) -> Scope:
    """The message that begins an answer; without a `length` it comes in chunks."""
    if response.passed_on:
        return {"type": "http.response.start", "status": response.status, "headers": response.headers}
    headers = [
        (b"content-type", response.content_type.encode()),
        (b"audit-id", audit_id.encode()),
        *response.headers,
    ]
    if not any(name == b"cache-control" for name, _ in response.headers):
        headers.append((b"cache-control", b"no-cache, private"))
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    return {"type": "http.response.start", "status": response.status, "headers": headers}


def in_wanted_form(request: Request, response: Response) -> Response:
    """The answer in protobuf, or in YAML, where its client wants it so; what has no such form stays as it is."""
    accept = request.header(b"accept")
    if response.content_type != JSON or response.passed_on:
        return response
    if response.status >= 400:
        return in_error_form(request, response)
    if wants_yaml(accept) and (whole := response.whole()):
        obj = orjson.loads(whole)
        if not isinstance(obj, dict) or "kind" not in obj:  # no object of the API
            return response
        return replace(response, body=yaml.dump(obj).encode(), pieces=(), gzipped=None, content_type="application/yaml")
    if not wants_protobuf(accept):
        return response
    whole = response.whole()
    obj = orjson.loads(whole) if whole else None
    encoded = encode_protobuf(obj) if isinstance(obj, dict) else None
    if encoded is None:
        return response
    return replace(response, body=encoded, pieces=(), gzipped=None, content_type=CONTENT_TYPE)


def in_error_form(request: Request, response: Response) -> Response:
    """A failure in the media type that its client likes best. It is short: protobuf costs nothing here."""
    accept = request.header(b"accept")
    if response.content_type != JSON or not accept or accept == JSON:
        return response
    wanted = preferred_for_errors(accept)
    if wanted == "application/yaml":
        return replace(response, body=yaml.dump(orjson.loads(response.body)).encode(), content_type=wanted)
    encoded = encode_protobuf(orjson.loads(response.body)) if wanted == PROTOBUF else None
    return response if encoded is None else replace(response, body=encoded, content_type=CONTENT_TYPE)


async def send_whole(request: Request, response: Response) -> None:
    """Send an answer that is no stream, compressed where the client takes that and it is long."""
    body = response.body
    if response.obj is not None:
        request.scope["extensions"][OBJECT](response.status, response.headers, response.obj)
        return
    if len(body) <= GZIP_FROM and not response.pieces:
        head = head_of(response, request.audit_id, len(body))
        body = body if request.method != "HEAD" else b""
        at_once = (request.scope.get("extensions") or {}).get(ANSWER)
        if at_once is None or response.passed_on or not at_once(response.status, head["headers"], body):
            await request.send(head)
            await request.send({"type": "http.response.body", "body": body})
        return
    pieces = response.pieces or _pieces(body)
    if isinstance(pieces, MadePieces):
        await _send_made(request, response, pieces)
        return
    size = sum(map(len, pieces))
    if size > GZIP_FROM and not response.passed_on and _takes_gzip(request):
        if response.gzipped is not None:
            pieces = await response.gzipped()
        elif size <= PIECE_BYTES:
            # Two milliseconds: to wait for a thread, and for the loop's next turn, takes longer on a busy machine.
            pieces = _pieces(gzip.compress(response.whole(), gzip_parts.LEVEL))
        else:
            pieces = _pieces(await asyncio.to_thread(gzip.compress, response.whole(), gzip_parts.LEVEL))
        size = sum(map(len, pieces))
        response.headers += _GZIPPED
    await request.send(head_of(response, request.audit_id, size))
    await _send_pieces(request, pieces if request.method != "HEAD" else [b""])


def _takes_gzip(request: Request) -> bool:
    """Whether gzip is among what the client takes; with a weight, which may be zero, it is not, as in 1.36."""
    return b"gzip" in (one.strip() for one in request.headers.get(b"accept-encoding", b"").split(b","))


async def _send_pieces(request: Request, pieces: Sequence[bytes]) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(PIECE_SECONDS) as patience:
            for number, piece in enumerate(pieces, 1):
                patience.reschedule(loop.time() + PIECE_SECONDS)
                await request.send({"type": "http.response.body", "body": piece, "more_body": number < len(pieces)})
    except TimeoutError:
        abort(request)


async def _send_made(request: Request, response: Response, pieces: Iterable[bytes]) -> None:
    """Send pieces of which one at a time is in memory: without a length, compressed in a thread."""
    pack = zlib.compressobj(gzip_parts.LEVEL, wbits=zlib.MAX_WBITS + 16) if _takes_gzip(request) else None
    if pack is not None:
        response.headers += _GZIPPED
    await request.send(head_of(response, request.audit_id, None))
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(PIECE_SECONDS) as patience:
            for made in pieces:
                patience.reschedule(loop.time() + PIECE_SECONDS)
                piece = made if pack is None else await asyncio.to_thread(pack.compress, made)
                await request.send({"type": "http.response.body", "body": piece, "more_body": True})
            rest = pack.flush() if pack is not None else b""
            await request.send({"type": "http.response.body", "body": rest, "more_body": False})
    except TimeoutError:
        abort(request)


def _pieces(body: bytes) -> Sequence[bytes]:
    """TLS takes a large body in pieces in half the time, and what the client has read need not be kept."""
    if len(body) <= PIECE_BYTES:
        return (body,)
    view = memoryview(body)
    return [bytes(view[begin : begin + PIECE_BYTES]) for begin in range(0, len(body), PIECE_BYTES)]


def abort(request: Request) -> None:
    """Cut a client off that does not read."""
    cut = (request.scope.get("extensions") or {}).get(ABORT)
    if cut is not None:
        cut()


def pretty_printed(response: Response) -> None:
    """Indent the JSON body of an answer."""
    response.body = orjson.dumps(orjson.loads(response.whole()), option=orjson.OPT_INDENT_2) + b"\n"
    response.pieces, response.gzipped = (), None


def wants_pretty(request: Request) -> bool:
    """Whether the answer is read by people: they say so, or use a browser or a tool for the command line."""
    wanted = request.param("pretty") if request.query else ""
    return wanted in TRUE if wanted else request.header(b"user-agent").startswith(("curl", "Wget", "Mozilla/5.0"))


def _cut_short(texts: Sequence[str]) -> list[str]:
    """As 1.36 does it: the first ones that are too long together, each cut, and more until these are too long."""
    sums = list(accumulate(map(len, texts)))
    least = bisect_right(sums, WARNING_RUNES) + 1
    told: list[str] = []
    written = 0
    for text in texts:
        if written >= WARNING_RUNES and len(told) >= least:
            break
        told.append(text[:WARNING_RUNES_EACH])
        written += len(told[-1])
    return told


def warning_headers(warnings: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """One header for each warning, in what a header may hold; many or long ones are cut short."""
    texts = [_CONTROLS.sub(" ", text) for text in dict.fromkeys(warnings) if text]
    if sum(map(len, texts)) > WARNING_RUNES:
        texts = _cut_short(texts)
    if len(texts) > WARNINGS_LIMIT:
        texts = [*texts[: WARNINGS_LIMIT - 1], f"and {len(texts) - WARNINGS_LIMIT + 1} more warnings"]
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in texts]
    return [(b"warning", f'299 - "{text}"'.encode()) for text in quoted]
