"""Connections by which requests of users are passed on to other API servers: peers, and extension API servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiohttp


_LINE_BYTES = 1 << 16
_SILENT = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Headers that aiohttp would add by itself."""


def passing_session(connect_seconds: float) -> aiohttp.ClientSession:
    """A session that adds nothing to a request and leaves its answer as it was sent."""
    import aiohttp

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, limit_per_host=0, keepalive_timeout=30.0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds),
        cookie_jar=aiohttp.DummyCookieJar(),  # one user's cookies are not another one's
        trust_env=False,
        auto_decompress=False,
        skip_auto_headers=_SILENT,
        max_line_size=_LINE_BYTES,
        max_field_size=_LINE_BYTES,
    )
