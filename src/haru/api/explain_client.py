"""Asks the resident answer of a cluster: the API `explain.haru.dev`, where it is served and the user may ask it.

Whoever gets None reads the cluster: it may be that nothing is served there, that the user may not ask, or that the
cache has not seen the object yet.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson

from haru.client.api import ApiClient
from haru.explain.object_names import LISTED, SubjectKind, listed_kind, parse_listed, parse_place, parse_subject
from haru.explain_server.discovery import CLUSTER_SCOPED, GROUP, explanation_path, list_path

if TYPE_CHECKING:
    from haru.explain.results import Explanation

_SECONDS = 35.0
_BUSY_ATTEMPTS = 3


async def resident_answer(
    client: ApiClient, kind: SubjectKind, name: str, namespace: str, *, remedies: bool = True
) -> tuple[Explanation | None, str]:
    """The explanation of an object, or None; with it what answered, or why nothing did."""
    from haru.explain.render import from_json

    query = {} if remedies else {"remedies": "false"}
    body, source = await _asked(client, explanation_path(namespace, f"{kind}s", name), query)
    if body is None:
        return None, source
    try:
        return from_json(orjson.loads(body)), source
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        return None, f"{GROUP}: the answer of another version is not understood: {error!r}"


async def resident_text(
    client: ApiClient,
    about: str,
    namespace: str,
    output: str,
    *,
    selector: str = "",
    remedies: bool = True,
    command: str = "",
) -> tuple[bytes | None, str]:
    """An explanation, the story of a node or device, or the table of what waits with an object, in an output form.

    Without `about`: the table of what waits in a namespace, without that in all. `command` is the one that asks. None
    where there is no answer; with it what answered, or why nothing.
    """
    query = {"output": output, "labelSelector": selector, "remedies": "" if remedies else "false", "command": command}
    return await _asked(client, _path(about, namespace), {key: value for key, value in query.items() if value})


def _path(about: str, namespace: str) -> str:
    if (place := parse_place(about)) is not None:
        return explanation_path("", f"{place[0]}s", place[1])
    if not about:
        return list_path(namespace)
    if (listed := parse_listed(about)) is None:
        subject, name = parse_subject(about)
        return explanation_path(namespace, f"{subject}s", name)
    kind, name = listed
    if kind == "Namespace":
        return list_path(name)
    # Of a kind that is not known here tables have the name in small letters.
    plural = listed_kind(kind).plural if kind in LISTED else f"{kind.removesuffix('s')}s"
    return explanation_path("" if plural in CLUSTER_SCOPED else namespace, plural, name)


async def _asked(client: ApiClient, path: str, query: dict[str, str]) -> tuple[bytes | None, str]:
    """The body of an answer, or None; with it what answered, or why nothing did."""
    try:
        async with asyncio.timeout(_SECONDS):
            for attempt in range(_BUSY_ATTEMPTS):
                status, _, body = await client.raw("GET", path, query=tuple(query.items()))
                if status != 429:
                    break
                await asyncio.sleep(1.0 + attempt)
    except OSError as error:
        return None, f"{GROUP}: {error or 'no answer in time'}"
    return (body, GROUP) if status == 200 else (None, f"{GROUP}: {_message(body) or status}")


def _message(body: bytes) -> str:
    try:
        return str(orjson.loads(body).get("message") or "")
    except (orjson.JSONDecodeError, AttributeError):
        return body.decode("utf-8", "replace").strip()[:200]
