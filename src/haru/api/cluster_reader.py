"""Reads what questions are about from a cluster: through its API, or from what a `haru up` that is not running kept.

A cluster is found as kubectl finds it, with the running `haru up` of this user in between: the kubeconfig that is
named; the environment variable KUBECONFIG; the running `haru up`; `~/.kube/config`; in a pod, its ServiceAccount. It is
only read: a data directory is copied first and opened as the copy; one that a running `haru up` holds is asked for
through that instead.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from haru.api.connection import connect, told_as_cluster_error
from haru.client.api import ApiClient
from haru.client.discovery import adapt_to_server
from haru.client.server_version import AS_WRITTEN, ServerVersion
from haru.embedded.lock import holder_of
from haru.engine.state import HELD_BACK_BY, WATCHED_KINDS
from haru.errors import InputError
from haru.gangs import served
from haru.kube.errors import StatusError, suppress_status
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj
from haru.kube.pod_claims import FAILED_PREPARE, awaits_preparation
from haru.kube.workload_pods import FAILED_CREATE

T = TypeVar("T")

MAKERS = (
    ("scheduling.k8s.io/v1", "PriorityClass"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
)
"""What decisions do not depend on, but what becomes of a change does."""

FORKED_KINDS = (*WATCHED_KINDS, *MAKERS)
_ALL_KINDS = tuple(dict.fromkeys((*FORKED_KINDS, *HELD_BACK_BY)))
ELSEWHERE = "of other namespaces"
_PAGE = 5_000
"""Objects in one answer: somebody waits, and a busy server lets every further page wait again."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The objects as the caller may see them, the kinds that may not be read, and the namespace of the context."""

    objects: list[Obj]
    refused: list[str]
    namespace: str
    version: ServerVersion = AS_WRITTEN
    not_served: tuple[str, ...] = ()


async def fetch(client: ApiClient, kinds: Sequence[tuple[str, str]] = FORKED_KINDS, namespace: str = "") -> Fetched:
    """All objects of these kinds, or those of one namespace where no others may be read. The client is not closed."""
    with told_as_cluster_error(client):
        objects, refused = await list_objects(client, kinds, namespace or client.namespace)
        described, more = await list_foreign(client, namespace or client.namespace)
    objects, refused = objects + described, refused + more
    version = client.version
    not_served = [name for of, name in kinds if version.resources and not version.serves(known_kind(of, name))]
    return Fetched(objects, refused, client.namespace, version, tuple(not_served))


async def fetch_all(client: ApiClient, namespace: str = "") -> Fetched:
    """Whatever an answer of any command may depend on; the client is not closed."""
    return await with_signs(client, await fetch(client, _ALL_KINDS, namespace), namespace)


async def list_objects(
    client: ApiClient, kinds: Sequence[tuple[str, str]] = WATCHED_KINDS, namespace: str = ""
) -> tuple[list[Obj], list[str]]:
    """All objects of these kinds (those that decisions depend on), as the caller may see them; the kinds refused.

    What may be read in `namespace` only is read there; it is refused `of other namespaces`. What the server does not
    serve is absent.
    """
    found: list[Obj] = []
    refused = []
    await know_server(client)
    answers = await asyncio.gather(*(_read(client, *kind) for kind in kinds))
    for (api_version, name), items in zip(kinds, answers, strict=True):
        if items is None and namespace and known_kind(api_version, name).namespaced:
            items = await _read(client, api_version, name, namespace)
            refused.append(name if items is None else f"{name} {ELSEWHERE}")
        elif items is None:
            refused.append(name)
        found += ({"apiVersion": api_version, "kind": name, **item} for item in items or ())
    return found, refused


async def list_foreign(client: ApiClient, namespace: str) -> tuple[list[Obj], list[str]]:
    """All objects by which other projects describe gangs, as far as they are served; the kinds refused."""
    resources = client.version.resources
    kinds = [kind.as_kind(kind.served_version(resources)) for kind in served(resources)]
    found: list[Obj] = []
    refused = []
    for kind, items in zip(kinds, await asyncio.gather(*(_read_kind(client, kind) for kind in kinds)), strict=True):
        if items is None:
            items = await _read_kind(client, kind, namespace)
            name = f"{kind.kind}.{kind.group}"
            refused.append(name if items is None else f"{name} {ELSEWHERE}")
        found += ({**item, "apiVersion": kind.api_version, "kind": kind.kind} for item in items or ())
    return found, refused


async def know_server(client: ApiClient) -> None:
    """Adapt a client to its server, once; where the caller may not read discovery, kinds are read as they are."""
    if client.version is not AS_WRITTEN:
        return
    with suppress_status(401, 403):
        await adapt_to_server(client)


async def with_signs(client: ApiClient, fetched: Fetched, namespace: str) -> Fetched:
    """Also what is seen in events (of one namespace, or "": of all) and Leases only: whose pods cannot be created or
    prepared, and which schedulers run.

    Leases are read if some of the objects are for another scheduler than the default one.
    """
    with told_as_cluster_error(client):
        events = await _read_events(client, namespace, FAILED_CREATE)
        if namespace == "" and events is None:
            return await with_signs(client, fetched, fetched.namespace)
        pods = (obj for obj in fetched.objects if obj["kind"] == "Pod")
        if any(awaits_preparation(pod) for pod in pods if namespace in ("", pod["metadata"].get("namespace"))):
            events = _joined(events, await _read_events(client, namespace, FAILED_PREPARE))
        foreign = any(map(_is_foreign, fetched.objects))
        leases = await _read(client, _LEASES[0], _LEASES[1], "kube-system") if foreign else []
    found = [{"apiVersion": "v1", "kind": "Event", **item} for item in events or ()]
    found += [{"apiVersion": _LEASES[0], "kind": _LEASES[1], **item} for item in leases or ()]
    refused = ["Event"] if events is None else []
    return replace(fetched, objects=[*fetched.objects, *found], refused=[*fetched.refused, *refused])


async def _read_events(client: ApiClient, namespace: str, reason: str) -> list[Obj] | None:
    return await _read(client, "v1", "Event", namespace, f"reason={reason}")


_LEASES = ("coordination.k8s.io/v1", "Lease")


def _joined(some: list[Obj] | None, more: list[Obj] | None) -> list[Obj] | None:
    return None if some is None or more is None else some + more


def _is_foreign(obj: Obj) -> bool:
    spec = obj.get("spec") or {}
    pod = spec if obj["kind"] == "Pod" else (spec.get("template") or {}).get("spec") or {}
    return pod.get("schedulerName") not in (None, "default-scheduler")


async def _read(
    client: ApiClient, api_version: str, name: str, namespace: str = "", fields: str = ""
) -> list[Obj] | None:
    return await _read_kind(client, known_kind(api_version, name), namespace, fields)


async def _read_kind(client: ApiClient, kind: Kind, namespace: str = "", fields: str = "") -> list[Obj] | None:
    try:
        items: list[Obj] = (await client.list(kind, namespace, field_selector=fields, limit=_PAGE))["items"]
    except StatusError as error:
        if error.code == 404:
            return []
        if error.code == 403:
            return None
        raise
    return items


async def fetch_kept(directory: Path, user_agent: str, where: str = "data_dir") -> Fetched:
    """What a `haru up` with this data directory has, running or not; InputError if none has ever run there."""
    if not (directory / "state.db").is_file():
        raise InputError(f"{where}: {directory}: holds no state.db: name the data directory of a haru up")
    holder = holder_of(directory)
    if holder is None:
        return await _from_directory(directory, where)
    async with connect(Path(holder["kubeconfig"]), None, user_agent) as client:
        return await fetch_all(client)


async def _from_directory(directory: Path, where: str) -> Fetched:
    """An API server over a copy of the store is asked."""
    from haru.apiserver.config import AuthenticationOptions, ServerConfig, UserInfo
    from haru.apiserver.encoding import damage_of
    from haru.apiserver.server import ApiServer
    from haru.kube.gates import FeatureGates
    from haru.storage.interface import StoreError
    from haru.storage.sqlite import SqliteStore

    with tempfile.TemporaryDirectory(prefix="haru-fork-") as copy:
        _copy_store(directory, Path(copy))
        store = SqliteStore(Path(copy) / "state.db", check=damage_of)
        try:
            await store.start()
        except StoreError as error:
            raise InputError(f"{where}: {directory}: {error}") from error
        users = {"fork": UserInfo("fork", ("system:masters",))}
        gates = FeatureGates.accelerator_defaults()
        authentication = AuthenticationOptions(users)
        server = ApiServer(ServerConfig(store, gates, {"api/all": True}, authentication))
        try:
            await server.start()
            return await fetch_all(ApiClient.in_process(server, "fork"))
        finally:
            await server.stop()
            await store.stop()


def _copy_store(directory: Path, to: Path) -> None:
    for part in directory.glob("state.db*"):
        shutil.copy2(part, to)


def finished(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run asynchronous work to its end, also under a running event loop, as in notebooks."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="haru") as pool:
        return pool.submit(lambda: asyncio.run(work())).result()
