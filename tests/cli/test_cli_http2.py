"""The flags for HTTP/2, from the command line to the socket."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest
from hpack import Decoder

from haru.cli.http2_flags import http2_streams_of
from haru.cli.main import build_parser
from haru.client.kubeconfig import load_kubeconfig
from haru.http2 import frames
from haru_process import Up

STREAMS = "--http2-max-streams-per-connection"


@pytest.mark.parametrize(
    ("flags", "streams"),
    [
        ([], 100),
        ([STREAMS, "0"], 100),
        ([STREAMS, "7"], 7),
        (["--disable-http2-serving"], 0),
        (["--disable-http2-serving", STREAMS, "7"], 0),
    ],
)
@pytest.mark.parametrize("command", [["up"], ["apiserver", "--etcd-servers", "http://127.0.0.1:1"]])
def test_http2_max_streams_flag_sets_streams_per_connection(command: list[str], flags: list[str], streams: int) -> None:
    assert http2_streams_of(build_parser().parse_args([*command, *flags])) == streams


def told(port: int, ca: str) -> tuple[str | None, dict[int, int]]:
    """The protocol that is agreed on, and the settings that the server tells."""
    context = ssl.create_default_context(cadata=ca)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("127.0.0.1", port), 20) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        if connection.selected_alpn_protocol() != "h2":
            return connection.selected_alpn_protocol(), {}
        block = b"\x82\x87\x04\x07/readyz"
        ends = frames.END_HEADERS | frames.END_STREAM
        connection.sendall(frames.PREFACE + frames.settings({}) + frames.frame(frames.HEADERS, ends, 1, block))
        cutter, found, settings = frames.FrameReader(1 << 20), b"", {}
        list(cutter.feed(frames.PREFACE))
        while b"ok" not in found:
            for kind, flags, _, payload in cutter.feed(connection.recv(1 << 16)):
                if kind == frames.SETTINGS and not flags:
                    settings = dict(frames.read_settings(payload))
                if kind == frames.HEADERS:
                    assert dict(Decoder().decode(payload))[":status"] == "200"
                found += payload if kind == frames.DATA else b""
        return "h2", settings


@pytest.mark.parametrize(
    ("flags", "protocol", "streams"),
    [((STREAMS, "7"), "h2", 7), (("--disable-http2-serving",), "http/1.1", None)],
)
def test_haru_up_negotiates_http2_with_the_flagged_streams(
    tmp_path: Path, flags: tuple[str, ...], protocol: str, streams: int | None
) -> None:
    """On uvloop, as it is served."""
    up = Up(tmp_path, "--profile", "cpu:0", "--no-scheduler", "--no-dashboard", *flags)
    try:
        config = load_kubeconfig(up.kubeconfig)
        assert config.ca_pem is not None
        port = int(config.server.rpartition(":")[2])
        agreed, settings = told(port, config.ca_pem.decode())
        assert agreed == protocol and settings.get(frames.Setting.MAX_CONCURRENT_STREAMS) == streams
    finally:
        up.stop()
