"""Connections by which requests of users are passed on to other servers, and why one was not reached."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from haru.kube.errors import StatusError
from haru.kube.go_values import dial_problem

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


def unreached(error: BaseException, silence: str = "no answer in time") -> str:
    """Say why a server was not reached, without what a library shows of itself; `silence` where it did not answer."""
    import aiohttp

    if isinstance(error, StatusError):
        return error.message
    if isinstance(error, TimeoutError):
        return silence
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"tls: failed to verify certificate: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, ssl.SSLError):
        return dial_problem(error.host, error.port or 0, error.os_error)
    return str(error) or type(error).__name__
