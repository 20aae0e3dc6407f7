"""Calling webhooks: HTTPS to a URL or to a service's endpoints, bounded in time and size.

Connections are kept and shared; a service is resolved anew for each call. The texts of what goes wrong are those that
client-go gives them where there is a counterpart.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import posixpath
import ssl
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from haru.apiserver.namesakes import trust_namesake
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.service_endpoints import endpoint_behind
from haru.event_loop import imported
from haru.kube.errors import StatusError
from haru.kube.go_values import dial_problem
from haru.kube.meta import Obj
from haru.proxy_settings import http_proxy_to
from haru.tls import client_context

if TYPE_CHECKING:
    import aiohttp

ANSWER_LIMIT = 8 * 1024 * 1024
"""Bytes of an answer: enough for a patch of the largest object."""
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json, */*", "User-Agent": "haru-apiserver"}


class WebhookError(Exception):
    """A webhook gave no usable answer; `str()` says why."""


class _Location(NamedTuple):
    """Where a webhook is: the URL that is told, the one that is connected to, and the name its certificate is for."""

    told: str
    url: str
    server_name: str


class WebhookClient:
    """Calls webhooks for one server."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._session: aiohttp.ClientSession | None = None

    async def stop(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(self, config: Obj, body: bytes, seconds: float) -> bytes:
        """Send a body to the webhook of a client configuration; the body of its answer. Raises WebhookError."""
        await imported("aiohttp")
        import aiohttp

        told = _shown_url(config)
        try:
            async with asyncio.timeout(seconds):
                return await self._post(config, body, int(-(-seconds // 1)))
        except TimeoutError:
            why = "context deadline exceeded"
        except StatusError as error:
            why = error.message
        except aiohttp.ClientConnectorCertificateError as error:
            why = f"tls: failed to verify certificate: {error.certificate_error}"
        except aiohttp.ClientConnectorSSLError as error:
            why = f"tls: {error}"
        except aiohttp.ClientConnectorError as error:
            why = dial_problem(error.host, error.port or 0, error.os_error)
        except (aiohttp.ClientError, ssl.SSLError, OSError, ValueError) as error:
            why = str(error) or type(error).__name__
        raise WebhookError(f'Post "{told}?timeout={int(-(-seconds // 1))}s": {why}')

    async def _post(self, config: Obj, body: bytes, seconds: int) -> bytes:
        await imported("aiohttp")
        import aiohttp

        place = await self._resolved(config)
        # The endpoints of a service are in the cluster.
        proxy = http_proxy_to(place.url, "", os.environ) if config.get("url") else None
        tls = _tls_context(config.get("caBundle") or "")
        try:
            return await self._sent(place, tls, proxy, body, seconds)
        except aiohttp.ClientConnectorCertificateError as error:
            if proxy is not None or not await trust_namesake(tls, error, place.server_name):
                raise
        return await self._sent(place, tls, proxy, body, seconds)

    async def _sent(self, place: _Location, tls: ssl.SSLContext, proxy: str | None, body: bytes, seconds: int) -> bytes:
        await imported("aiohttp")
        import aiohttp

        headers = {**_HEADERS, "Host": urlsplit(place.told).netloc}
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, limit_per_host=0)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False, auto_decompress=True)
        async with self._session.post(
            f"{place.url}?timeout={seconds}s",
            data=body,
            headers=headers,
            ssl=tls,
            server_hostname=place.server_name,
            proxy=proxy,
            allow_redirects=False,
        ) as answer:
            data = await answer.content.read(ANSWER_LIMIT + 1)
            while len(data) <= ANSWER_LIMIT and (more := await answer.content.read(ANSWER_LIMIT + 1 - len(data))):
                data += more
            if len(data) > ANSWER_LIMIT:
                raise WebhookError(f"the answer is larger than {ANSWER_LIMIT} bytes")
            if not 200 <= answer.status < 300:
                raise WebhookError(_failure(answer.status, data))
            if not data:
                told = f"status code: {answer.status} and content type: {answer.headers.get('Content-Type', '')}"
                raise WebhookError(f"0-length response with {told}")
            return data

    async def _resolved(self, config: Obj) -> _Location:
        told = _shown_url(config)
        parts = urlsplit(told)
        if config.get("url"):
            return _Location(told, told, parts.hostname or "")
        service = config["service"]
        host, port = await endpoint_behind(
            self._objects, service["namespace"], service["name"], int(service.get("port") or 443)
        )
        shown = f"[{host}]" if ":" in host else host
        return _Location(told, f"https://{shown}:{port}{parts.path}", parts.hostname or "")


def _shown_url(config: Obj) -> str:
    """The URL of a client configuration."""
    if config.get("url"):
        parts = urlsplit(config["url"])
        # As Go's client does: envtest, for one, writes two slashes.
        return f"{parts.scheme}://{parts.netloc}{posixpath.normpath('/' + parts.path.lstrip('/'))}"
    service = config["service"]
    host, port = f"{service['name']}.{service['namespace']}.svc", service.get("port") or 443
    return f"https://{host}:{port}{service.get('path') or ''}"


@lru_cache(maxsize=64)
def _tls_context(bundle: str) -> ssl.SSLContext:
    """Whose certificates are believed: those of the bundle (PEM, in base64), or what the machine believes."""
    if not bundle:
        return client_context()
    try:
        pem = base64.b64decode(bundle, validate=True).decode("utf-8", "replace")
        return client_context(pem)
    except (binascii.Error, ssl.SSLError) as error:
        raise ValueError(f"unable to load root certificates: unable to parse bytes as PEM block ({error})") from None


def _failure(status: int, data: bytes) -> str:
    """What an HTTP status that is no success means."""
    if status == 404:
        return "the server could not find the requested resource"
    text = data[:2048].decode("utf-8", "replace").strip()
    if status >= 500:
        return f'an error on the server ("{text}") has prevented the request from succeeding'
    return f"the server answered with status {status}: {text}" if text else f"the server answered with status {status}"
