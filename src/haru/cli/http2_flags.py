"""Define the HTTP/2 flags of `haru apiserver` and `haru up`, named as kube-apiserver's."""

from __future__ import annotations

import argparse

from haru.cli.number_flags import whole
from haru.http2 import MAX_STREAMS

_MOST = (1 << 31) - 1


def add_http2_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    group = parser.add_argument_group("HTTP/2")
    group.add_argument(
        "--disable-http2-serving",
        action="store_true",
        help="offer HTTP/1.1 only: one connection per request and per watch",
    )
    group.add_argument(
        "--http2-max-streams-per-connection",
        type=_streams,
        metavar="N",
        help=f"maximum of concurrent requests and watches per connection (0: the default, {MAX_STREAMS})",
    )


def http2_streams_of(flags: argparse.Namespace) -> int:
    """How many requests a connection may have at once; 0: HTTP/2 is not offered."""
    return 0 if flags.disable_http2_serving else flags.http2_max_streams_per_connection or MAX_STREAMS


def _streams(text: str) -> int:
    return whole(text, f"write a number from 0 to {_MOST}", most=_MOST)
