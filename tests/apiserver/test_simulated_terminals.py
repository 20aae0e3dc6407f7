"""Frames of SPDY and lines of terminals, as `kubectl exec` into simulated containers uses them."""

from __future__ import annotations

import struct

import pytest

from haru.apiserver.proxy.simulated.sessions import status_of
from haru.apiserver.proxy.simulated.terminal import LineInput
from haru.remote_command.spdy import DATA, DICTIONARY, SYN_REPLY, SYN_STREAM, SpdyConnection, SpdyError


def typed(text: bytes, *, tty: bool) -> tuple[bytes, list[str], bool]:
    found = list(LineInput(tty=tty).feed(text))
    lines = [one.line for one in found if one.line is not None]
    return b"".join(one.echo for one in found), lines, any(one.ends for one in found)


@pytest.mark.parametrize(
    ("keys", "tty", "echo", "lines", "ends"),
    [
        (b"ls\r", True, b"ls\r\n", ["ls"], False),
        (b"lx\x7fs\r", True, b"lx\b \bs\r\n", ["ls"], False),
        (b"\x7f\x04", True, b"", [], True),
        (b"abc\x03ls\r", True, b"abc^C\r\nls\r\n", ["", "ls"], False),
        ("å\r".encode(), True, "å\r\n".encode(), ["å"], False),
        (b"one\ntwo", False, b"", ["one"], False),
    ],
)
def test_keys_become_lines(keys: bytes, tty: bool, echo: bytes, lines: list[str], ends: bool) -> None:
    assert typed(keys, tty=tty) == (echo, lines, ends)


def test_dictionary_of_headers_has_the_published_length() -> None:
    assert len(DICTIONARY) == 1423


def test_frames_arrive_in_pieces_with_headers_compressed_across_them() -> None:
    client, server = SpdyConnection(), SpdyConnection()
    sent = client.open(1, {"streamtype": "error"}) + client.open(3, {"streamtype": "stdin"})
    sent += client.data(3, b"hello", fin=True)
    frames = [frame for begin in range(0, len(sent), 7) for frame in server.receive(sent[begin : begin + 7])]
    assert [(frame.type, frame.stream) for frame in frames] == [(SYN_STREAM, 1), (SYN_STREAM, 3), (DATA, 3)]
    assert [frame.headers.get("streamtype") for frame in frames[:2]] == ["error", "stdin"]
    assert (frames[2].data, frames[2].fin) == (b"hello", True)
    (reply,) = client.receive(server.reply(3))
    assert (reply.type, reply.stream) == (SYN_REPLY, 3)


@pytest.mark.parametrize(
    "data", [struct.pack(">II", 0x80020001, 0), struct.pack(">II", 0x80030001, 14) + b"\0" * 10 + b"\xff\xff\xff\xff"]
)
def test_what_is_not_spdy_is_an_error(data: bytes) -> None:
    with pytest.raises(SpdyError):
        list(SpdyConnection().receive(data))


def test_status_of_a_failed_command_has_its_code() -> None:
    assert status_of(0)["status"] == "Success"
    failed = status_of(3)
    assert (failed["reason"], failed["details"]["causes"]) == (
        "NonZeroExitCode",
        [{"reason": "ExitCode", "message": "3"}],
    )
