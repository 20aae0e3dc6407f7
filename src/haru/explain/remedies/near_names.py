"""Names that nothing has, close to the name of something that is there: what was probably meant.

That is tried like any other change; it is offered first, because nobody would create what is there under another name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from haru.engine import Reason, Snapshot
from haru.engine.state import GroupKey
from haru.explain import hypothesis
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import Remedy
from haru.explain.remedies.claim_changes import changed_claims, claim_changes
from haru.explain.remedies.pod_changes import changed_pods, pod_changes
from haru.gangs import is_foreign_group
from haru.kube.decoding import suggest_name
from haru.kube.meta import Obj

_IMPLICIT = "deviceclass.resource.kubernetes.io/"


@dataclass(frozen=True, slots=True)
class Correction:
    """The cluster and the work as they would be with the other name, and what has to be done for it."""

    text: str
    snapshot: Snapshot
    work: WorkloadUnit
    changes: tuple[Obj, ...]
    costs: str

    def remedy(self, confirmed: bool) -> Remedy:
        """To write the other name."""
        costs = self.costs if confirmed else f"{self.costs}; it would then wait for something else"
        return Remedy("CorrectName", self.text, self.changes, 0, confirmed, costs)


def of_reasons(snapshot: Snapshot, work: WorkloadUnit, reasons: Sequence[Reason]) -> Iterator[Correction]:
    """What was probably meant by names that the scheduler does not find."""
    classes = {str(r.data["deviceClass"]) for r in reasons if r.type == "DeviceClassMissing" and r.data["deviceClass"]}
    for name in sorted(classes):
        close = suggest_name(name, snapshot.devices.classes)
        if close:
            yield _other_class(snapshot, work, name, close)
    for name in resources_nobody_offers(snapshot, reasons):
        close = suggest_name(name, set(_offered(snapshot)))
        if close:
            yield _other_resource(snapshot, work, name, close)


def resources_nobody_offers(snapshot: Snapshot, reasons: Sequence[Reason]) -> list[str]:
    """The resources of devices that no node has and no DeviceClass provides."""
    asked = {str(r.data["resource"]) for r in reasons if r.type == "InsufficientResource"}
    asked = {name for name in asked if "/" in name}
    return sorted(asked - set(_offered(snapshot))) if asked else []


def of_hold(snapshot: Snapshot, work: WorkloadUnit, hold: Reason) -> Iterator[Correction]:
    """What was probably meant by the name of an object that the pods wait for."""
    if hold.type == "PodGroupMissing":
        yield from _other_group(snapshot, work, str(hold.data["podGroup"]))
    elif hold.type == "ClaimMissing":
        namespace, _, name = str(hold.data["claim"]).rpartition("/")
        close = suggest_name(name, _names_in(snapshot.claims, namespace))
        yield from _other_claim(snapshot, work, "ResourceClaim", name, close)
    elif hold.type == "ClaimNotCreated" and hold.data.get("template"):
        namespace, name = work.paths[0].partition("/")[0], str(hold.data["template"])
        known = _names_in(snapshot.objects("ResourceClaimTemplate"), namespace)
        if name not in known:
            yield from _other_claim(snapshot, work, "ResourceClaimTemplate", name, suggest_name(name, known))


def _other_class(snapshot: Snapshot, work: WorkloadUnit, name: str, close: str) -> Correction:
    def renamed(ask: Obj) -> Obj:
        return {**ask, "deviceClassName": close} if ask.get("deviceClassName") == name else ask

    changed = changed_claims(snapshot, work, renamed)
    costs = "the claims (or their template) are made again"
    after = hypothesis.with_claims(snapshot, changed)
    return Correction(_text("DeviceClass", name, close), after, work, claim_changes(snapshot, changed), costs)


def _other_resource(snapshot: Snapshot, work: WorkloadUnit, name: str, close: str) -> Correction:
    def renamed(spec: Obj) -> Obj:
        parts = {
            part: [_with_resource(container, name, close) for container in spec[part]]
            for part in ("initContainers", "containers")
            if spec.get(part)
        }
        return {**spec, **parts}

    return _with_other_pods(snapshot, work, renamed, _text("resource", name, close))


def _with_resource(container: Obj, name: str, close: str) -> Obj:
    resources = container.get("resources") or {}
    changed = {
        part: {close if key == name else key: amount for key, amount in (resources.get(part) or {}).items()}
        for part in ("requests", "limits")
        if name in (resources.get(part) or {})
    }
    return {**container, "resources": {**resources, **changed}} if changed else container


def _other_group(snapshot: Snapshot, work: WorkloadUnit, path: str) -> Iterator[Correction]:
    namespace, _, name = path.partition("/")
    close = suggest_name(name, _names_in(snapshot.pod_groups, namespace))
    if close and not is_foreign_group(name):
        key = GroupKey(namespace, close)
        together = WorkloadUnit(tuple(sorted({*work.paths, *snapshot.group_state(key).unscheduled})), key)

        def renamed(spec: Obj) -> Obj:
            return {**spec, "schedulingGroup": {**(spec.get("schedulingGroup") or {}), "podGroupName": close}}

        # They leave one group for another one: to be seen as members of it they have to come anew.
        gone = hypothesis.without_pods(snapshot, work.paths)
        pods = changed_pods(snapshot, work, renamed)
        changes, costs = pod_changes(snapshot, pods, renamed)
        yield Correction(_text("PodGroup", name, close), hypothesis.with_pods(gone, pods), together, changes, costs)


def _other_claim(snapshot: Snapshot, work: WorkloadUnit, kind: str, name: str, close: str) -> Iterator[Correction]:
    field = f"r{kind[1:]}Name"  # resourceClaimName, resourceClaimTemplateName

    def renamed(spec: Obj) -> Obj:
        entries = spec.get("resourceClaims") or ()
        return {**spec, "resourceClaims": [{**e, field: close} if e.get(field) == name else e for e in entries]}

    if close:
        yield _with_other_pods(snapshot, work, renamed, _text(kind, name, close))


def _with_other_pods(snapshot: Snapshot, work: WorkloadUnit, change: Callable[[Obj], Obj], text: str) -> Correction:
    pods = changed_pods(snapshot, work, change)
    return Correction(text, hypothesis.with_pods(snapshot, pods), work, *pod_changes(snapshot, pods, change))


def _text(kind: str, name: str, close: str) -> str:
    return f"name {kind} {close} in place of {name}: did you mean that?"


def _names_in(objects: Iterable[str], namespace: str) -> list[str]:
    """The names of objects of a namespace, by their paths."""
    return [name for space, _, name in (path.partition("/") for path in objects) if space == namespace]


def _offered(snapshot: Snapshot) -> Iterator[str]:
    """The resources of devices that nodes or DeviceClasses offer."""
    for lot in snapshot.node_classes:
        yield from (name for name in lot.first.allocatable if "/" in name)
    for name, found in snapshot.objects("DeviceClass").items():
        yield _IMPLICIT + name
        if (found.get("spec") or {}).get("extendedResourceName"):
            yield str(found["spec"]["extendedResourceName"])
