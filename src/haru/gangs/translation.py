"""Rewrite a stream of objects so that the gangs of other projects are PodGroups of Kubernetes 1.36 in it.

A member's pod gets a `spec.schedulingGroup`, and each gang with living members gets a PodGroup, in what is read only:
nothing of it is ever written. Whoever decides, explains or counts sees one kind of gang. A pod that names a PodGroup of
Kubernetes itself keeps that. Members that have succeeded count as present: none of these projects starts them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from haru.gangs.gang import DISRUPTION_MODE, MIN_COUNT, NO_GANG, SEPARATOR, Adapter, Gang, Source, annotation, number
from haru.gangs.registry import ADAPTERS, KINDS, adapters_for, foreign_kind
from haru.kube.meta import Obj, annotations_of, podgroup_of

TIMEOUT = "haru.dev/schedule-timeout-seconds"
"""Annotation of a translated PodGroup: how long its author lets the pods wait for one another."""


class Translated(NamedTuple):
    """What an event comes to: objects that come or change, in order, then objects that go."""

    changed: tuple[Obj, ...] = ()
    removed: tuple[Obj, ...] = ()


class _Member(NamedTuple):
    """A living member: what it says of its gang, and its priority."""

    gang: Gang
    priority: int


@dataclass(slots=True)
class _Group:
    """One gang: what its living members say of it (mostly all the same), and which have succeeded."""

    metadata: Obj
    living: dict[str, _Member] = field(default_factory=dict)
    said: Counter[_Member] = field(default_factory=Counter)
    succeeded: set[str] = field(default_factory=set)
    told: Obj | None = None

    def put(self, key: str, member: _Member | None) -> None:
        """Count a member as living, or, without what it says, as succeeded."""
        self.drop(key)
        if member is None:
            self.succeeded.add(key)
        else:
            self.living[key] = member
            self.said[member] += 1

    def drop(self, key: str) -> None:
        """Forget a member."""
        self.succeeded.discard(key)
        member = self.living.pop(key, None)
        if member is not None:
            self.said[member] -= 1
            if not self.said[member]:
                del self.said[member]

    def as_pod_group(self) -> Obj:
        """Return the gang as a PodGroup of scheduling.k8s.io/v1alpha2."""
        gangs = [member.gang for member in self.said]
        timeout = max(gang.timeout or 0 for gang in gangs)
        annotations = {**self.metadata["annotations"], **({TIMEOUT: str(timeout)} if timeout else {})}
        metadata = {**self.metadata, "name": gangs[0].name, "annotations": annotations}
        needed = max(1, max(gang.min_count for gang in gangs) - len(self.succeeded))
        spec = {
            "schedulingPolicy": {"gang": {"minCount": needed}},
            "disruptionMode": "PodGroup" if all(gang.whole for gang in gangs) else "Pod",
            "priority": min(member.priority for member in self.said),
        }
        return {**_HEAD, "metadata": metadata, "spec": spec, "status": {}}


_NOTHING: Obj = {"metadata": {}}
_HEAD = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup"}


class _Place(NamedTuple):
    """Where a pod belongs: its gang's path, what it says of it (None: not known yet), and where more is written."""

    group: str
    member: _Member | None
    source: Source


@dataclass(slots=True)
class _Known:
    """A pod of one of the projects. `group` is empty while it is in no gang, or in one that is not described yet."""

    pod: Obj
    source: tuple[str, str] | None
    group: str
    shown: str
    native: bool


class GangTranslator:
    """Translate events one by one; what it knows is what it was shown.

    Without `native`, PodGroups of Kubernetes are left out and their members are pods without a group.
    """

    def __init__(self, adapters: Sequence[Adapter], *, native: bool = True) -> None:
        self._adapters = adapters
        self._native = native
        self._objects: dict[tuple[str, str], Obj] = {}
        self._pods: dict[str, _Known] = {}
        self._by_source: dict[tuple[str, str], dict[str, None]] = {}
        self._native_pods: dict[tuple[str, str], set[str]] = {}
        """The pods that name PodGroups of Kubernetes, by the object that their labels name."""
        self._groups: dict[str, _Group] = {}

    def use(self, adapters: Sequence[Adapter]) -> None:
        """Use other adapters from now on; pods that were shown before are to be shown again."""
        self._adapters = adapters

    def apply(self, obj: Obj) -> Translated:
        """Translate an object that is new or has changed."""
        if obj["kind"] == "Pod":
            metadata = obj["metadata"]
            if not metadata.get("labels") and not metadata.get("annotations") and _path(obj) not in self._pods:
                return Translated((self.seen(obj),))  # it says nothing of a gang of others, and never did
            touched, again = self._put_all(_path(obj), obj)
            return self._with_groups(touched, (self.seen(obj), *again))
        kind = foreign_kind(obj)
        if kind is not None:
            return self._source_changed((kind.key, _path(obj)), obj)
        return Translated() if obj["kind"] == "PodGroup" and not self._native else Translated((obj,))

    def remove(self, obj: Obj) -> Translated:
        """Translate the removal of an object."""
        if obj["kind"] == "Pod":
            last = self.seen(obj)
            touched, again = self._put_all(_path(obj), None)
            changed, removed = self._tell(touched)
            return Translated((*changed, *again), (last, *removed))
        kind = foreign_kind(obj)
        if kind is not None:
            return self._source_changed((kind.key, _path(obj)), None)
        return Translated() if obj["kind"] == "PodGroup" and not self._native else Translated((), (obj,))

    def finished(self, pod: Obj) -> Translated:
        """Count a member that has succeeded, where living pods alone are shown by `apply`."""
        return Translated(*self._tell(self._put(_FINISHED + pod["metadata"]["uid"], pod)))

    def finished_gone(self, pod: Obj) -> Translated:
        """Forget a member that had succeeded."""
        return Translated(*self._tell(self._drop(_FINISHED + pod["metadata"]["uid"])))

    def seen(self, pod: Obj) -> Obj:
        """Return a pod as it was last translated."""
        known = self._pods.get(_path(pod))
        shown = known.shown if known is not None else ""
        native = podgroup_of(pod)
        if shown:
            return {**pod, "spec": {**(pod.get("spec") or {}), "schedulingGroup": {"podGroupName": shown}}}
        if native and (SEPARATOR in native or not self._native):
            return {**pod, "spec": {k: v for k, v in pod["spec"].items() if k != "schedulingGroup"}}
        return pod

    # -- which gang ----------------------------------------------------------------------------------------------------

    def _put_all(self, key: str, pod: Obj | None) -> tuple[set[str], list[Obj]]:
        """Take a pod in, or forget it (None); return the gangs that this may change, and other pods to show again.

        Where some pods of an object name a PodGroup of Kubernetes, its other pods are no gang: it would never be whole.
        """
        known = self._pods.get(key)
        sources = {known.source} if known is not None and known.source is not None else set()
        were = {source for source in sources if source in self._native_pods}
        touched = self._put(key, pod) if pod is not None else self._drop(key)
        now = self._pods.get(key)
        sources |= {now.source} if now is not None and now.source is not None else set()
        again: list[Obj] = []
        for source in sources:
            if (source in were) != (source in self._native_pods):
                more, pods = self._look_again(source)
                touched |= more
                again += [other for other in pods if _path(other) != key]
        return touched, again

    def _put(self, key: str, pod: Obj) -> set[str]:
        """Take a pod in; return the paths of the gangs that this may change."""
        source_key, place = self._place(pod)
        if source_key is None and place is None:
            return self._drop(key)
        native = _is_native(pod)
        shown = place.group.split("/", 1)[1] if place is not None else ""
        phase = (pod.get("status") or {}).get("phase")
        group = place.group if place is not None and place.member is not None and phase != "Failed" else ""
        before = self._pods.get(key)
        touched = self._drop(key) if before is not None and before.group not in ("", group) else set()
        if before is not None and before.source != source_key:
            self._unlink(key, before.source)
        self._pods[key] = _Known(pod, source_key, group, shown, native)
        if source_key is not None:
            self._by_source.setdefault(source_key, {})[key] = None
            if native:
                self._native_pods.setdefault(source_key, set()).add(key)
            else:
                _discard(self._native_pods, source_key, key)
        if place is not None and group:
            self._group(pod, place).put(key, None if phase == "Succeeded" else place.member)
            touched.add(group)
        return touched

    def _place(self, pod: Obj) -> tuple[tuple[str, str] | None, _Place | None]:
        """Return the object that a pod names, and its gang; the gang says nothing while that object is not there."""
        if annotation(pod, MIN_COUNT) == "0" or annotation(pod, NO_GANG) == "false":
            return None, None
        namespace = _namespace(pod)
        for adapter in self._adapters:
            source = adapter.source_of(pod)
            if source is None:
                continue
            if source.kind is None and _is_native(pod):
                continue
            if source.kind is None:
                gang = adapter.gang_of(pod, None)
                return None, _placed(pod, gang, source) if gang is not None else None
            key = (source.kind.key, f"{namespace}/{source.name}")
            obj = self._objects.get(key)
            if _is_native(pod) or key in self._native_pods or annotation(obj or _NOTHING, NO_GANG) == "false":
                return key, None
            if obj is None:
                return key, _Place(f"{namespace}/{source.kind.prefix}{source.name}", None, source)
            gang = adapter.gang_of(pod, obj)
            return key, _placed(pod, gang, source) if gang is not None else None
        return None, None

    def _group(self, pod: Obj, place: _Place) -> _Group:
        """Return the gang of a place, described as its object has it now."""
        source, namespace = place.source, _namespace(pod)
        described = _NOTHING
        if source.kind is not None:
            described = self._objects[source.kind.key, f"{namespace}/{source.name}"]
        metadata = {
            "namespace": namespace,
            "uid": f"{described['metadata'].get('uid') or ''}/{place.group}",
            "creationTimestamp": described["metadata"].get("creationTimestamp"),
            "annotations": {n: text for n, text in annotations_of(described).items() if n.startswith("haru.dev/")},
        }
        group = self._groups.setdefault(place.group, _Group(metadata))
        group.metadata = metadata
        return group

    def _drop(self, key: str) -> set[str]:
        known = self._pods.pop(key, None)
        if known is None:
            return set()
        self._unlink(key, known.source)
        group = self._groups.get(known.group)
        if group is None:
            return set()
        group.drop(key)
        return {known.group}

    def _unlink(self, key: str, source: tuple[str, str] | None) -> None:
        if source is not None and source in self._by_source:
            self._by_source[source].pop(key, None)
            if not self._by_source[source]:
                del self._by_source[source]
            _discard(self._native_pods, source, key)

    # -- what is told --------------------------------------------------------------------------------------------------

    def _source_changed(self, key: tuple[str, str], obj: Obj | None) -> Translated:
        """Look again at the pods that name an object, unless nothing changed that adapters read."""
        before = self._objects.get(key)
        if obj is None:
            self._objects.pop(key, None)
        else:
            self._objects[key] = obj
        if before is not None and obj is not None and _described(before) == _described(obj):
            return Translated()
        return self._with_groups(*self._look_again(key))

    def _look_again(self, key: tuple[str, str]) -> tuple[set[str], list[Obj]]:
        """Place all pods of an object anew; return the gangs that may change, and the pods that are seen otherwise."""
        touched: set[str] = set()
        pods: list[Obj] = []
        for name in list(self._by_source.get(key, ())):
            known = self._pods[name]
            touched |= self._put(name, known.pod)
            now = self._pods.get(name)
            if not name.startswith(_FINISHED) and (now is None or now.shown != known.shown):
                pods.append(self.seen(known.pod))
        return touched, pods

    def _with_groups(self, touched: Iterable[str], pods: Iterable[Obj]) -> Translated:
        changed, removed = self._tell(touched)
        return Translated((*changed, *pods), removed)

    def _tell(self, touched: Iterable[str]) -> tuple[tuple[Obj, ...], tuple[Obj, ...]]:
        """Return the PodGroups that come or change, and those that go."""
        changed, removed = [], []
        for path in sorted(touched):
            group = self._groups[path]
            obj = group.as_pod_group() if group.said else None
            if obj is None and group.told is not None:
                removed.append(group.told)
            elif obj is not None and obj != group.told:
                changed.append(obj)
            group.told = obj
            if obj is None and not group.succeeded:
                del self._groups[path]
        return tuple(changed), tuple(removed)


_FINISHED = "finished "


def translated(objects: Iterable[Obj], names: Iterable[str] = tuple(ADAPTERS)) -> list[Obj]:
    """Translate a whole cluster at once; PodGroups that an earlier translation made are made again.

    Objects of other projects stay, each under a kind of its own (`with_own_kind`): there is more than one PodGroup.
    """
    given = [with_own_kind(obj) for obj in objects if not is_translated(obj)]
    foreign = [obj for obj in given if foreign_kind(obj) is not None]
    kinds = [kind for kind in KINDS if any(kind.is_kind_of(obj) for obj in foreign)]
    translator = GangTranslator(adapters_for(names, kinds))
    for obj in foreign:
        translator.apply(obj)
    found: dict[tuple[str, str], Obj] = {}
    for obj in given:
        if foreign_kind(obj) is None:
            for changed in translator.apply(obj).changed:
                found[changed["kind"], _path(changed)] = changed
    return [*found.values(), *foreign]


def untranslated(objects: Iterable[Obj]) -> list[Obj]:
    """Return the objects as a server has them."""
    return [_as_served(obj) for obj in objects if not is_translated(obj)]


def _as_served(obj: Obj) -> Obj:
    if obj["kind"] == "Pod":
        return as_written(obj)
    kind = foreign_kind(obj)
    return {**obj, "kind": kind.kind} if kind is not None and obj["kind"] != kind.kind else obj


def with_own_kind(obj: Obj) -> Obj:
    """Return an object of another project under the kind `Kind.group`, and any other as it is."""
    kind = foreign_kind(obj)
    return {**obj, "kind": kind.key} if kind is not None and obj["kind"] != kind.key else obj


def names_gang(pod: Obj) -> bool:
    """Return whether some project's labels or annotations may say of a pod which gang it belongs to."""
    return any(adapter.source_of(pod) is not None for adapter in ADAPTERS.values())


def is_translated(obj: Obj) -> bool:
    """Return whether an object is the PodGroup of a gang of another project."""
    return obj.get("kind") == "PodGroup" and SEPARATOR in str(obj["metadata"].get("name"))


def as_written(pod: Obj) -> Obj:
    """Return a pod as its author wrote it, without the group of a translation."""
    if SEPARATOR not in podgroup_of(pod):
        return pod
    return {**pod, "spec": {key: value for key, value in pod["spec"].items() if key != "schedulingGroup"}}


def _placed(pod: Obj, gang: Gang, source: Source) -> _Place:
    own, mode = number(annotation(pod, MIN_COUNT)), annotation(pod, DISRUPTION_MODE)
    if own:
        gang = replace(gang, min_count=own)
    if mode in ("Pod", "PodGroup"):
        gang = replace(gang, whole=mode == "PodGroup")
    priority = int((pod.get("spec") or {}).get("priority") or 0)
    return _Place(f"{_namespace(pod)}/{gang.name}", _Member(gang, priority), source)


def _described(obj: Obj) -> Any:
    return obj.get("spec"), annotations_of(obj)


def _is_native(pod: Obj) -> bool:
    """Return whether a pod names a PodGroup of Kubernetes."""
    name = podgroup_of(pod)
    return bool(name) and SEPARATOR not in name


def _discard(sets: dict[tuple[str, str], set[str]], source: tuple[str, str], key: str) -> None:
    """Take a key out of the set of a source; an empty set goes."""
    found = sets.get(source)
    if found is not None:
        found.discard(key)
        if not found:
            del sets[source]


def _namespace(obj: Obj) -> str:
    return str(obj["metadata"].get("namespace") or "default")


def _path(obj: Obj) -> str:
    return f"{_namespace(obj)}/{obj['metadata']['name']}"
