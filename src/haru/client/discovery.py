"""What a server is and serves: its version, its resources as `Kind`s, custom resources included.

Source: the aggregated discovery documents (KEP-3352), which tell everything in two answers; a server without them is
asked for the legacy ones (`/api/v1`, `/apis`, `/apis/<group>/<version>`), which every server has.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar

import orjson

from haru.client.api import ApiClient, path_of
from haru.client.server_version import ServerVersion
from haru.kube import kinds
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import Obj

T = TypeVar("T")

LOOK_SECONDS = 60.0
_ATTEMPTS = 6
_AGGREGATED = "APIGroupDiscoveryList"
_ACCEPT = {"accept": f"application/json;g=apidiscovery.k8s.io;v=v2;as={_AGGREGATED},application/json"}


async def _document(client: ApiClient, path: str, headers: Mapping[str, str] | None = None) -> Obj | None:
    status, _, body = await client.raw("GET", path, headers=headers)
    if status == 404:
        return None
    if status != 200:
        raise StatusError(status, "Unknown", f"discovery: GET {path}: the server answered {status}")
    return _decoded(path, body)


def _decoded(path: str, body: bytes) -> Obj:
    """Decode an object. Raises ConnectionError for anything else: something on the way has cut or replaced it."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        raise ConnectionError(f"GET {path}: the answer is no JSON object")
    return document


async def served_group_versions(client: ApiClient) -> list[tuple[str, str]]:
    """Every (group, version) that is served, the preferred version of a group first."""
    found = [("", "v1")]
    groups = await _document(client, "/apis") or {}
    for group in groups.get("groups") or ():
        preferred = (group.get("preferredVersion") or {}).get("version")
        versions = [entry["version"] for entry in group.get("versions") or ()]
        versions.sort(key=lambda version: version != preferred)
        found += [(group["name"], version) for version in versions]
    return found


async def resources_of(client: ApiClient, group: str, version: str) -> list[Kind]:
    """The resources of one group and version; nothing where it is not served."""
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    document = await _document(client, path) or {}
    entries = document.get("resources") or []
    plain = [entry for entry in entries if "/" not in entry["name"]]
    below: dict[str, list[str]] = {}
    for entry in entries:
        name, slash, subresource = entry["name"].partition("/")
        if slash:
            below.setdefault(name, []).append(subresource)
    return [_kind(group, version, entry, below.get(entry["name"], [])) for entry in plain]


async def served_resources(client: ApiClient) -> list[Kind]:
    """Every resource in every version of its group, the preferred versions first."""
    found: list[Kind] = []
    for root in ("/api", "/apis"):
        document = await _document(client, root, _ACCEPT) or {}
        if document.get("kind") != _AGGREGATED:
            versions = await served_group_versions(client)
            return [kind for version in versions for kind in await resources_of(client, *version)]
        for group in document.get("items") or ():
            for version in group.get("versions") or ():
                found += _aggregated(group["metadata"].get("name", ""), version)
    return found


def _aggregated(group: str, version: Mapping[str, Any]) -> Iterator[Kind]:
    for entry in version.get("resources") or ():
        if entry.get("verbs"):  # the others are only there for what is below them
            legacy = {
                "name": entry["resource"],
                "kind": entry["responseKind"]["kind"],
                "singularName": entry.get("singularResource"),
                "namespaced": entry.get("scope") == "Namespaced",
                "shortNames": entry.get("shortNames"),
                "categories": entry.get("categories"),
                "verbs": entry["verbs"],
            }
            below = [sub["subresource"] for sub in entry.get("subresources") or ()]
            yield _kind(group, version["version"], legacy, below)


def _kind(group: str, version: str, entry: Mapping[str, Any], subresources: list[str]) -> Kind:
    """The kind of an entry as the legacy documents have it."""
    known = kinds.lookup(group, version, entry["name"])
    if known is not None:
        return known
    verbs = tuple(entry.get("verbs") or ())
    return Kind(
        group=group,
        version=version,
        kind=entry["kind"],
        plural=entry["name"],
        singular=entry.get("singularName") or entry["kind"].lower(),
        namespaced=bool(entry.get("namespaced")),
        short_names=tuple(entry.get("shortNames") or ()),
        categories=tuple(entry.get("categories") or ()),
        verbs=verbs,
        subresources=tuple(subresources),
        storage_version=version,
        type_name="",
        virtual=verbs == ("create",),
    )


async def served_kinds(client: ApiClient) -> list[Kind]:
    """Each resource once, in the preferred version of its group (else the first version that has it)."""
    found: dict[tuple[str, str], Kind] = {}
    for kind in await served_resources(client):
        found.setdefault((kind.group, kind.plural), kind)
    return list(found.values())


async def newest_kind(client: ApiClient, group: str, plural: str) -> Kind | None:
    """A resource in the newest version of its group that has it (v1, else v1beta2, else v1beta1); None if none has."""
    versions = [version for of_group, version in await served_group_versions(client) if of_group == group]
    for version in sorted(versions, key=_rank, reverse=True):
        for kind in await resources_of(client, group, version):
            if kind.plural == plural:
                return kind
    return None


_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
_STAGES = {"alpha": 0, "beta": 1, None: 2}


def _rank(version: str) -> tuple[int, int, int]:
    """How versions are ordered: stable ones after betas after alphas, then by their numbers."""
    parts = _VERSION.fullmatch(version)
    if parts is None:
        return (-1, 0, 0)
    return _STAGES[parts[2]], int(parts[1]), int(parts[3] or 0)


async def adapt_to_server(client: ApiClient) -> ServerVersion:
    """Have a client send and read the versions that its server serves; what that server is.

    Raises StatusError and OSError, after a few attempts where the server may be out of order for a moment.
    """
    client.version = await retry_unavailable(lambda: read_server_version(client))
    return client.version


async def retry_unavailable(work: Callable[[], Awaitable[T]]) -> T:
    """Repeat what a StatusError of 429 or 5xx, or a cut connection, ends a few times: neither tells what is served."""
    for attempt in range(_ATTEMPTS - 1):
        try:
            return await work()
        except StatusError as error:
            if error.code < 500 and error.code != 429:
                raise
        except ConnectionRefusedError:
            raise
        except ConnectionError:
            pass
        await asyncio.sleep(0.1 * 2.0**attempt)
    return await work()


async def read_server_version(client: ApiClient) -> ServerVersion:
    """Ask a server for its version and for what it serves. Raises StatusError and OSError."""
    status, _, body = await client.raw("GET", "/version")
    if status != 200:
        raise StatusError(status, "Unknown", f"GET /version: the server answered {status}")
    found = await served_resources(client)
    return ServerVersion.of(
        _minor(_decoded("/version", body)), ((kind.group, kind.version, kind.plural) for kind in found)
    )


async def wait_for_change(client: ApiClient, version: ServerVersion, every: float = LOOK_SECONDS) -> ServerVersion:
    """Wait until the server is of another minor version, or serves other versions of what components read."""
    while True:
        await asyncio.sleep(every)
        try:
            found = await read_server_version(client)
        except (OSError, StatusError):
            continue
        if (found.minor, found.readable) != (version.minor, version.readable):
            return found


def _minor(info: Mapping[str, Any]) -> int:
    """The minor version that the server is, or stands in for; providers write `33+`."""
    digits = re.match(r"\d+", str(info.get("emulationMinor") or info.get("minor") or ""))
    return int(digits[0]) if digits else 0


async def may_list(client: ApiClient, kind: Kind) -> bool:
    """Tell whether the objects of a kind may be listed, in all namespaces."""
    path = path_of(kind)

    async def ask() -> int:
        status, _, _ = await client.raw("GET", path, query=[("limit", "1")])
        if status >= 500 or status == 429:
            raise StatusError(status, "Unknown", f"GET {path}: the server answered {status}")
        return status

    try:
        return await retry_unavailable(ask) == 200
    except StatusError:
        return False
