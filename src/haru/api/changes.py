"""Hypothetical changes as people ask for them, and what `haru.whatif` is told for them, given the cluster.

Cordon("dgx-h100-0")                                the node takes no more pods
Taint("dgx-h100-0/gpu-3", "fan=broken:NoExecute")   a node, or one device by NODE/DEVICE, gets a taint
Delete("job/training", namespace="research")        an object goes with all that it owns, a podgroup with its pods
Apply("job.yaml"), Apply(job), Apply([a, b])        manifests are created, or merged into what is there
AddNodes("dgx-h100", 2)                             so many empty nodes of a profile come
Repartition("dgx-h100-0", "dgx-h100-mig-balanced")  the node's cards are cut as the profile has them
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any

from haru.api.admission import settled
from haru.api.cluster_reader import FORKED_KINDS
from haru.api.files import read_manifests, stored_objects
from haru.arguments import check_type
from haru.drivers.simulated.profiles import ProfileError, load_profile
from haru.engine.dra import Taint as TaintValue
from haru.engine.state import object_path
from haru.errors import ChangeInputError, InputError
from haru.explain.device_names import DeviceNameError, find_device
from haru.explain.tainting import TaintTextError, parse_taint
from haru.gangs import foreign_kind, with_own_kind
from haru.kube.conversion import convert
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj
from haru.kube.workload_pods import made_by
from haru.whatif import AddNodes as NodesAdded
from haru.whatif import Apply as Applied
from haru.whatif import Change, Cordon, TaintDevice, TaintNode
from haru.whatif import Delete as Deleted
from haru.whatif import Repartition as Repartitioned

__all__ = ["AddNodes", "Apply", "AskedChange", "Cordon", "Delete", "Repartition", "Taint", "resolved"]


@dataclass(frozen=True, slots=True)
class Apply:
    """Manifests are created, or merged into what is there: a file, a directory (`-`: standard input), or dicts."""

    manifests: str | Path | Mapping[str, Any] | Iterable[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Delete:
    """An object, as KIND/NAME, goes with all that it owns; a PodGroup with its pods. No namespace: the snapshot's."""

    object: str
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint KEY[=VALUE]:EFFECT is put on a node, or on one device (NODE/DEVICE) by a DeviceTaintRule."""

    where: str
    taint: str


@dataclass(frozen=True, slots=True)
class AddNodes:
    """Add empty nodes of a profile (a name, or a FILE.yaml), with their devices."""

    profile: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Repartition:
    """The devices of a node are cut as a profile (a name, or a FILE.yaml) has them."""

    node: str
    profile: str


AskedChange = Apply | Delete | Taint | Cordon | AddNodes | Repartition


def resolved(
    asked: Iterable[AskedChange], objects: Sequence[Obj], gates: Mapping[str, bool], namespace: str
) -> list[Change]:
    """The changes as `haru.whatif` takes them; raises ChangeInputError for one that makes no sense."""
    resolver = _Resolver(namespace, objects, gates)
    found: list[Change] = []
    for change in asked:
        try:
            found += resolver.changes(change)
        except (InputError, DeviceNameError, ProfileError, TaintTextError) as error:
            raise ChangeInputError(change, str(error)) from error
    return found


class _Resolver:
    def __init__(self, namespace: str, objects: Sequence[Obj], gates: Mapping[str, bool]) -> None:
        self._namespace = namespace
        self._objects = list(objects)
        self._gates = gates

    def changes(self, asked: AskedChange) -> Iterator[Change]:
        for field in fields(asked) if isinstance(asked, AskedChange) else ():
            check_type(field.name, getattr(asked, field.name), str(field.type), globals())
        match asked:
            case Cordon():
                yield asked
            case Apply(manifests):
                yield from self._apply(manifests)
            case Delete(text, namespace):
                kind, name = kind_of_word(text)
                path = f"{namespace or self._namespace}/{name}" if kind.namespaced else name
                yield Deleted(kind.kind, path)
            case Taint(where, taint):
                yield self._taint(where, taint)
            case AddNodes(profile, count):
                if count < 1:
                    raise InputError(f"count {count!r}: give a number of nodes, 1 or more")
                yield NodesAdded(load_profile(profile), count)
            case Repartition(node, profile):
                yield Repartitioned(node, load_profile(profile))
            case _:
                raise InputError(f"{asked!r} is no change: give Apply, Delete, Taint, Cordon, AddNodes or Repartition")

    def _apply(self, manifests: Any) -> Iterator[Change]:
        known = {_key(obj) for obj in self._objects}
        patches: dict[tuple[str, str], Obj] = {}
        read: list[Obj] = []
        for written, stored in self._read(manifests):
            read.append(stored)
            if _key(stored) in known and foreign_kind(stored) is not None:
                patches[_key(stored)] = written
            elif _key(stored) in known:
                kind = known_kind(stored["apiVersion"], stored["kind"])
                metadata = {**written["metadata"], "namespace": stored["metadata"].get("namespace")}
                patches[_key(stored)] = convert({**written, "metadata": metadata}, kind)
        made = [more for obj in read if _key(obj) not in known for more in made_by(obj, self._gates)]
        together = settled([*self._objects, *read, *made], group_claims=self._gates["DRAWorkloadResourceClaims"])
        fresh = [obj for obj in together if _key(obj) not in known]
        self._objects += fresh
        by_key = {_key(obj): obj for obj in fresh}
        for obj in read:
            yield Applied(by_key.pop(_key(obj), obj), patches.get(_key(obj)))
        for obj in by_key.values():
            yield Applied(obj, follows=True)

    def _read(self, manifests: Any) -> Iterator[tuple[Obj, Obj]]:
        if isinstance(manifests, str | PathLike):
            found = read_manifests([str(manifests)], self._namespace)
        else:
            found = stored_objects([manifests] if isinstance(manifests, Mapping) else manifests, self._namespace)
        return ((written, with_own_kind(stored)) for written, stored in found)

    def _taint(self, where: str, text: str) -> Change:
        if "/" in where:
            slices = [obj for obj in self._objects if obj["kind"] == "ResourceSlice"]
            nodes = [obj for obj in self._objects if obj["kind"] == "Node"]
            return TaintDevice(find_device(where, slices, nodes), parse_taint(text))
        described, _, effect = text.rpartition(":")
        if effect == "PreferNoSchedule":  # nodes have it, devices do not
            parsed = parse_taint(f"{described}:NoSchedule")
            return TaintNode(where, TaintValue(parsed.key, parsed.value, effect))
        if effect == "None":
            raise InputError(f'"{text}": a node taint has the effect NoSchedule, PreferNoSchedule, NoExecute')
        return TaintNode(where, parse_taint(text))


def _key(obj: Obj) -> tuple[str, str]:
    return obj["kind"], object_path(obj)


_SHORT = {"claim": "ResourceClaim", "claims": "ResourceClaim"}


def kind_of_word(text: str) -> tuple[Kind, str]:
    """The kind and the name of KIND/NAME, of all kinds that a snapshot has; raises InputError."""
    word, slash, name = text.partition("/")
    kinds = [known_kind(*kind) for kind in FORKED_KINDS]
    for kind in kinds if slash and name else ():
        words = (kind.singular, kind.plural, kind.kind.lower(), *kind.short_names)
        if word.lower() in words or _SHORT.get(word.lower()) == kind.kind:
            return kind, name
    listed = ", ".join(sorted(kind.kind.lower() for kind in kinds))
    raise InputError(f'"{text}": write KIND/NAME; KIND is one of {listed}')
