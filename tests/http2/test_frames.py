"""Frames and heads: cut as they come, read as `hpack` and python-hyper's tables have them."""

from __future__ import annotations

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.http2 import frames
from haru.http2.frames import FrameReader, Http2ConnectionError, frame
from haru.http2.headers import HeaderBlocks, HeaderListTooLargeError, parse_request, response_block

LIMIT = 1000
FRAMES = st.lists(
    st.tuples(st.integers(0, 255), st.integers(0, 255), st.integers(0, 2**31 - 1), st.binary(max_size=LIMIT)),
    max_size=8,
)


@given(FRAMES, st.lists(st.integers(1, 300), min_size=1))
def test_frames_are_equal_for_any_split_of_bytes(sent: list[tuple[int, int, int, bytes]], cuts: list[int]) -> None:
    data = frames.PREFACE + b"".join(frame(*each) for each in sent)
    cutter, found, at, turn = FrameReader(LIMIT), [], 0, 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        found += list(cutter.feed(data[at : at + size]))
        at, turn = at + size, turn + 1
    assert found == sent
    assert cutter.partial is None and cutter.count == len(sent)


def test_incomplete_frame_is_reported() -> None:
    cutter = FrameReader(LIMIT)
    assert not list(cutter.feed(frames.PREFACE[:10])) and cutter.partial == -1
    assert not list(cutter.feed(frames.PREFACE[10:] + b"\0\0")) and cutter.partial == -1
    assert not list(cutter.feed(b"\x05\0\0\0\0\0\1ab")) and cutter.partial == frames.DATA
    assert list(cutter.feed(b"cde")) == [(frames.DATA, 0, 1, b"abcde")] and cutter.partial is None


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"P", frames.PREFACE[:-1] + b"x", b"\0" * 100])
def test_wrong_connection_preface_is_refused_at_first_wrong_byte(data: bytes) -> None:
    cutter = FrameReader(LIMIT)
    if frames.PREFACE.startswith(data):
        assert not list(cutter.feed(data))
        data = b"x"
    with pytest.raises(Http2ConnectionError):
        list(cutter.feed(data))


NAMES = st.from_regex(rb"[a-z][a-z0-9-]{0,150}", fullmatch=True)
VALUES = st.from_regex(rb"([!-~\x80-\xff]([ -~]{0,300}[!-~])?)?", fullmatch=True)


@given(st.integers(200, 599), st.lists(st.tuples(NAMES, VALUES)))
def test_response_header_block_decodes_with_hpack(status: int, headers: list[tuple[bytes, bytes]]) -> None:
    found = hpack.Decoder(1 << 20).decode(response_block(status, headers), raw=True)
    dropped = ("connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade")
    kept = [(name, value) for name, value in headers if name.decode() not in dropped]
    assert [tuple(each) for each in found] == [(b":status", b"%d" % status), *kept]


@pytest.mark.parametrize("status", [200, 201, 204, 206, 304, 400, 404, 409, 500, 503])
@pytest.mark.parametrize(
    "name", [b"Content-Type", b"content-length", b"Date", b"etag", b"Location", b"retry-after", b"vary"]
)
def test_static_table_entries_of_response_decode_with_hpack(status: int, name: bytes) -> None:
    found = hpack.Decoder().decode(response_block(status, [(name, b"x")]), raw=True)
    assert [tuple(each) for each in found] == [(b":status", b"%d" % status), (name.lower(), b"x")]


@pytest.mark.parametrize("header", [(b"a", b"b\r\nc: d"), (b"a", b"b\0"), (b"a b", b"c"), (b"a\n", b"c"), (b"", b"c")])
def test_response_header_with_line_break_is_refused(header: tuple[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match=r"more than a line|is none"):
        response_block(200, [header])


def test_request_headers_become_asgi_scope() -> None:
    fields = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"a:1"), (b":path", b"/a%2Fb%20c?d=%20")]
    scope = parse_request([*fields, (b"accept", b"x"), (b"content-length", b"3")]).scope()
    assert (scope["method"], scope["path"], scope["raw_path"]) == ("GET", "/a/b c", b"/a%2Fb%20c")
    assert (scope["query_string"], scope["http_version"]) == (b"d=%20", "2")
    assert scope["headers"] == [(b"host", b"a:1"), (b"accept", b"x"), (b"content-length", b"3")]
    assert parse_request([*fields, (b"host", b"a:1")]).headers == [(b"host", b"a:1")]


@given(st.binary(max_size=300))
def test_any_header_block_decodes_within_limit_or_is_refused(block: bytes) -> None:
    blocks = HeaderBlocks(1000)
    try:
        fields = blocks.decode(block)
    except (Http2ConnectionError, HeaderListTooLargeError):
        return
    assert sum(len(name) + len(value) + 32 for name, value in fields) <= 1000
