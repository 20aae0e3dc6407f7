"""Reads what the engine decides from: a live cluster through its API, or manifests in files."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haru.cli.main import UsageError
from haru.engine.inputs import KINDS

if TYPE_CHECKING:
    from haru.client.api import ApiClient
    from haru.engine.cluster import Cluster
    from haru.kube.gates import FeatureGates

Obj = dict[str, Any]


async def read_cluster(client: ApiClient) -> tuple[Cluster, list[str]]:
    """The cluster as the caller may see it, and the kinds that were refused. What is not served is absent."""
    from haru.engine.cluster import Cluster
    from haru.engine.groups.finished import count_succeeded

    objects, refused = await list_objects(client)
    cluster = Cluster.of(objects)
    count_succeeded(cluster)
    return cluster, refused


async def list_objects(client: ApiClient, kinds: Sequence[tuple[str, str]] = KINDS) -> tuple[list[Obj], list[str]]:
    """All objects of these kinds (those that decisions depend on), as the caller may see them; the kinds refused."""
    found: list[Obj] = []
    refused = []
    answers = await asyncio.gather(*(_read(client, *kind) for kind in kinds))
    for (api_version, name), items in zip(kinds, answers, strict=True):
        if items is None:
            refused.append(name)
        found += ({"apiVersion": api_version, "kind": name, **item} for item in items or ())
    return found, refused


async def _read(client: ApiClient, api_version: str, name: str) -> list[Obj] | None:
    from haru.kube.errors import StatusError
    from haru.kube.kinds import by_kind

    kind = by_kind(api_version, name)
    assert kind is not None
    try:
        items: list[Obj] = (await client.list(kind))["items"]
    except StatusError as error:
        if error.code == 404:
            return []
        if error.code == 403:
            return None
        raise
    return items


def read_files(paths: Iterable[str], namespace: str) -> Cluster:
    """A cluster of manifests (`-` is standard input); raises UsageError that names the file and the line."""
    return cluster_of(read_objects(paths, namespace))


def cluster_of(objects: Iterable[Obj]) -> Cluster:
    """A cluster that holds these objects; raises UsageError that names the one that cannot be used."""
    from haru.engine.cluster import Cluster
    from haru.engine.groups.finished import count_succeeded

    cluster = Cluster()
    for obj in objects:
        try:
            cluster.apply(obj)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise UsageError(f"{obj['kind']} {obj['metadata']['name']}: cannot be used: {what}") from error
    count_succeeded(cluster)
    return cluster


def read_objects(paths: Iterable[str], namespace: str) -> Iterator[Obj]:
    """The objects of manifests (`-` is standard input) as a server would store them, in their order."""
    return (stored for _, stored in read_manifests(paths, namespace))


def read_manifests(paths: Iterable[str], namespace: str) -> Iterator[tuple[Obj, Obj]]:
    """The objects of manifests (`-` is standard input), each as it is written and as a server would store it."""
    from haru.kube.errors import StatusError
    from haru.kube.yaml import load_all

    for path in paths:
        try:
            text = sys.stdin.read() if path == "-" else Path(path).read_text()
            for obj in _items(load_all(text)):
                yield obj, as_stored(obj, namespace)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
        except (ValueError, StatusError) as error:
            raise UsageError(f"{path}: {error}") from error


def as_stored(obj: Obj, namespace: str) -> Obj:
    """An object as a server would store it; ValueError or StatusError for one that no server would take."""
    from haru.kube.kinds import by_kind, storage_kind

    kind = by_kind(str(obj.get("apiVersion")), str(obj.get("kind")))
    if kind is None:
        raise ValueError(f'no kind "{obj.get("kind")}" in version "{obj.get("apiVersion")}"')
    stored = _stored(obj, kind, storage_kind(kind), namespace, _gates_of_files())
    return {"apiVersion": storage_kind(kind).api_version, "kind": kind.kind, **stored}


def file_gates(text: str) -> FeatureGates:
    """The gates under which manifests are read: those of `haru up`, but for what `--feature-gates` says."""
    from haru.kube.gates import FeatureGates, parse_overrides

    try:
        return FeatureGates.accelerator_defaults(parse_overrides(text))
    except ValueError as error:
        raise UsageError(f"--feature-gates: {error}") from error


@cache
def _gates_of_files() -> FeatureGates:
    return file_gates("")


def _items(objects: Iterable[Obj]) -> Iterator[Obj]:
    """The objects themselves, and those in lists (`kubectl get -o yaml` prints one)."""
    for obj in objects:
        items = obj.get("items")
        if str(obj.get("kind")).endswith("List") and isinstance(items, list):
            yield from (item for item in items if isinstance(item, dict))
        else:
            yield obj


def _stored(obj: Obj, kind: Any, storage: Any, namespace: str, gates: Any) -> Obj:
    from haru.kube.conversion import convert
    from haru.kube.decoding import strict_decode
    from haru.kube.defaulting import apply_defaults

    decoded, _ = strict_decode(obj, kind)
    metadata = dict(decoded.get("metadata") or {})
    if not metadata.get("name"):
        raise ValueError(f"{kind.kind}: metadata.name: Required value")
    if kind.namespaced:
        metadata.setdefault("namespace", namespace)
    # Objects of a file have no identity yet; what refers to them by UID finds them by name.
    metadata.setdefault("uid", f"{kind.kind}/{metadata.get('namespace', '')}/{metadata['name']}")
    result: Obj = convert(apply_defaults({**decoded, "metadata": metadata}, kind, gates), storage)
    return result
