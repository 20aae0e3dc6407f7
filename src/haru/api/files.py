"""Manifests in files and as plain dicts, as a server would store them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haru.client.server_version import ServerVersion, gates_for_server
from haru.errors import InputError
from haru.files import text_of
from haru.gangs import foreign_kind, translated
from haru.kube.errors import StatusError
from haru.kube.gate_table import NEWEST
from haru.kube.gates import FeatureGates, parse_overrides
from haru.kube.kinds import group_versions
from haru.kube.meta import Obj
from haru.kube.stored import as_stored
from haru.kube.yaml import load_all

if TYPE_CHECKING:
    from haru.engine import SchedulerCache

_LOG = logging.getLogger("haru.api")
_MOST_TOLD = 5
_GROUPS = frozenset(group for group, _ in group_versions())
SUFFIXES = (".yaml", ".yml", ".json")
_OF_KUSTOMIZE = ("kustomization.yaml", "kustomization.yml")
"""They name the manifests beside them, and need not say what kind they are."""


def gates_of(given: str | Mapping[str, bool] = "", where: str = "feature_gates") -> FeatureGates:
    """Those of `haru up`, but for what is given: `A=true,B=false`, or a mapping; InputError names an unknown one."""
    text = given if isinstance(given, str) else ",".join(f"{name}={str(on).lower()}" for name, on in given.items())
    try:
        return FeatureGates.accelerator_defaults(parse_overrides(text))
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error


def gates_beside(version: ServerVersion, given: str | Mapping[str, bool] = "") -> Mapping[str, bool]:
    """The gates under which to decide for a server: those of `haru up`, or the defaults of its version before 1.36."""
    gates = gates_of(given)
    if not 0 < version.minor < NEWEST:
        return gates.all()
    found, _ = gates_for_server(parse_overrides(given) if isinstance(given, str) else given, version)
    return {gate.name: found.enabled(gate.name) for gate in FeatureGates.known() if not gate.locked}


def expanded(name: str) -> list[str]:
    """The files that a name stands for: a directory for the manifests in it, whatever its depth; InputError if none."""
    path = Path(name)
    if not name:
        raise InputError('"" names no file; is a variable of the shell empty?')
    if name == "-" or not path.is_dir():
        return [name]
    manifests = (each for each in path.rglob("*") if each.suffix in SUFFIXES and each.name not in _OF_KUSTOMIZE)
    found = sorted(str(each) for each in manifests if each.is_file())
    if not found:
        raise InputError(f"{name}: the directory has no {' or '.join(SUFFIXES)} files")
    return found


def read_objects(paths: Iterable[str], namespace: str) -> Iterator[Obj]:
    """The objects of files and directories (`-` is standard input) as a server would store them, in their order."""
    return (stored for _, stored in read_manifests(paths, namespace))


def read_manifests(paths: Iterable[str], namespace: str) -> Iterator[tuple[Obj, Obj]]:
    """The objects of files and directories, each as it is written and as a server would store it.

    Raises InputError that names the file and the line. Warns of fields that do not exist, which a server would refuse,
    of objects of groups that Kubernetes does not have, which it passes over, and of those that are there twice.
    """
    ignored = passed_over = 0
    seen = _SeenTwice()
    files = [file for name in paths for file in expanded(name)]
    is_empty = bool(files)
    for path in files:
        text = read_text(path)
        try:
            documents = list(load_all(text))
            is_empty = is_empty and not documents
            for obj in items_of(documents):
                if not isinstance(obj, dict):
                    raise ValueError(f"an item of a List is no Kubernetes object: {obj!r}")
                if _is_of_another_group(obj):
                    if passed_over < _MOST_TOLD:
                        _LOG.warning("%s%s: not a kind of Kubernetes, so not looked at", path, _named(obj))
                    passed_over += 1
                    continue
                unknown: list[str] = []
                try:
                    stored = _stored(obj, namespace, unknown)
                except (ValueError, StatusError) as error:
                    raise InputError(
                        f"{path}{_named(obj)}: {error}; haru lint tells where and what to write"
                    ) from error
                seen.add(path, obj, stored)
                yield obj, stored
                for each in unknown[: max(0, _MOST_TOLD - ignored)]:
                    _LOG.warning("%s%s: %s is ignored; haru lint tells what is meant", path, _named(obj), each)
                ignored += len(unknown)
        except InputError:
            raise
        except (ValueError, StatusError) as error:
            raise InputError(f"{path}: {error}") from error
    if is_empty:
        # Mostly a template or a program before the pipe that failed: nothing would wait, and all be well.
        names = ", ".join("standard input" if file == "-" else file for file in files)
        raise InputError(f"there is no object in {names}")
    if ignored > _MOST_TOLD:
        _LOG.warning("and %d more such fields", ignored - _MOST_TOLD)
    if passed_over > _MOST_TOLD:
        _LOG.warning("and %d more such objects", passed_over - _MOST_TOLD)
    seen.tell_rest()


class _SeenTwice:
    """Warns of objects that are there twice and equal: whoever wrote two of a name mostly meant two."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], Obj] = {}
        self._told = 0

    def add(self, path: str, given: Obj, stored: Obj) -> None:
        """Take in an object; one that replaces another of its name is meant as it is."""
        metadata, group = stored["metadata"], stored["apiVersion"].rpartition("/")[0]
        key = (group, stored["kind"], metadata.get("namespace") or "", metadata["name"])
        if self._seen.get(key) == given:
            if self._told < _MOST_TOLD:
                _LOG.warning(
                    "%s%s: is there twice, and counts once; another one needs another name", path, _named(given)
                )
            self._told += 1
        self._seen[key] = given

    def tell_rest(self) -> None:
        """Say how many more there are."""
        if self._told > _MOST_TOLD:
            _LOG.warning("and %d more objects that are there twice", self._told - _MOST_TOLD)


def _is_of_another_group(obj: Obj) -> bool:
    """Whether an object's API group is neither of Kubernetes nor one that is read (`haru.gangs`)."""
    group = str(obj.get("apiVersion") or "").rpartition("/")[0]
    return bool(group and obj.get("kind")) and group not in _GROUPS and foreign_kind(obj) is None


def read_text(path: str) -> str:
    """The text of a file (`-` is standard input): UTF-8, or UTF-16 with a byte order mark, as kubectl reads it.

    Raises InputError that names the file.
    """
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    try:
        return text_of(data)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error


def stored_objects(objects: Iterable[Mapping[str, Any]], namespace: str) -> Iterator[tuple[Obj, Obj]]:
    """The same for objects as plain dicts or other mappings, Lists among them; InputError names the object."""
    for number, obj in enumerate(items_of(map(plain, objects))):
        if not isinstance(obj, dict):
            raise InputError(f"object #{number}: this is no Kubernetes object: {obj!r}")
        try:
            yield obj, _stored(obj, namespace)
        except (ValueError, StatusError) as error:
            raise InputError(f"object #{number}{_named(obj)}: {error}") from error


def plain(value: Any) -> Any:
    """A mapping that is no dict as one, with all that is in it; a dict as it is."""
    return value if isinstance(value, dict) or not isinstance(value, Mapping) else _copied(value)


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list | tuple) else value


def _stored(obj: Obj, namespace: str, unknown: list[str] | None = None) -> Obj:
    """An object as a server would store it; of an object of another project's kind only its name is looked at."""
    if foreign_kind(obj) is None:
        return as_stored(obj, namespace, unknown)
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise ValueError(f"{obj['kind']}: metadata.name: Required value")
    uid = f"{obj['kind']}/{metadata.get('namespace') or namespace}/{metadata['name']}"
    return {**obj, "metadata": {"namespace": namespace, "uid": uid, **metadata}}


def cluster_of(objects: Iterable[Obj]) -> SchedulerCache:
    """The engine's cluster of these objects; raises InputError that names the one that cannot be used.

    The gangs of other projects are PodGroups in it (`haru.gangs`).
    """
    from haru.engine import SchedulerCache
    from haru.engine.podgroup import count_succeeded

    cluster = SchedulerCache()
    for obj in translated(objects):
        try:
            cluster.apply(obj)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{obj['kind']} {obj['metadata']['name']}: cannot be used: {what_fails(error)}") from error
    count_succeeded(cluster)
    return cluster


def what_fails(error: Exception) -> str:
    """Describe the error in an object that the engine cannot read."""
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def items_of(objects: Iterable[Obj]) -> Iterator[Obj]:
    """The objects themselves, and those in lists (`kubectl get -o yaml` prints one)."""
    for obj in objects:
        items = obj.get("items") if isinstance(obj, dict) else None
        if isinstance(items, list) and str(obj.get("kind")).endswith("List"):
            yield from items
        else:
            yield obj


def _named(obj: Obj) -> str:
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f" ({obj.get('kind') or 'of no kind'} {name})" if name else ""
