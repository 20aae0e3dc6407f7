"""Asks the resident answer of a cluster: the API `explain.haru.dev`, where it is served and the user may ask it."""

from __future__ import annotations

import asyncio
import logging

import orjson

from haru.client.api import ApiClient
from haru.explain.render import from_json
from haru.explain.results import Explanation

GROUP = "explain.haru.dev"
_ROOT = f"/apis/{GROUP}/v1alpha1"
_SECONDS = 35.0
_BUSY_ATTEMPTS = 3
_log = logging.getLogger(__name__)


async def resident_answer(
    client: ApiClient, resource: str, name: str, namespace: str, *, remedies: bool = True
) -> tuple[Explanation | None, str]:
    """The explanation of an object, or None; with it what answered, or why nothing did.

    Whoever gets None reads the cluster: it may be that nothing is served there, that the user may not ask, or that the
    cache has not seen the object yet.
    """
    path = f"{_ROOT}/namespaces/{namespace}/{resource}/{name}/explanation"
    query = () if remedies else (("remedies", "false"),)
    try:
        async with asyncio.timeout(_SECONDS):
            for attempt in range(_BUSY_ATTEMPTS):
                status, _, body = await client.raw("GET", path, query=query)
                if status != 429:
                    break
                await asyncio.sleep(1.0 + attempt)
    except OSError as error:
        return None, f"{GROUP}: {error or 'no answer in time'}"
    if status != 200:
        return None, f"{GROUP}: {_message(body) or status}"
    try:
        return from_json(orjson.loads(body)), GROUP
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        return None, f"{GROUP}: the answer of another version is not understood: {error!r}"


def _message(body: bytes) -> str:
    try:
        return str(orjson.loads(body).get("message") or "")
    except (orjson.JSONDecodeError, AttributeError):
        return body.decode("utf-8", "replace").strip()[:200]
