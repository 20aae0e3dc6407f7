"""Manifests as a cluster would have them a moment later: priorities as numbers, claims made from templates.

Source: the admission plugin Priority and the claim controller of 1.36, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from haru.controllers import claim_names
from haru.controllers.objects import POD_GROUPS, PODS
from haru.engine.state import namespaced_name
from haru.errors import InputError
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, podgroup_of

_SYSTEM_CLASSES: dict[str, Obj] = {
    "system-cluster-critical": {"value": 2_000_000_000},
    "system-node-critical": {"value": 2_000_001_000},
}


def settled(objects: Sequence[Obj], *, group_claims: bool = True) -> list[Obj]:
    """The objects and the claims made for them; raises InputError for a priority class that is not among them."""
    classes = {**_SYSTEM_CLASSES, **{o["metadata"]["name"]: o for o in objects if o["kind"] == "PriorityClass"}}
    prioritized = [_prioritized(o, classes) if o["kind"] in ("Pod", "PodGroup") else o for o in objects]
    return list(_with_claims(prioritized, group_claims=group_claims))


def _prioritized(obj: Obj, classes: dict[str, Obj]) -> Obj:
    spec = obj.get("spec") or {}
    if spec.get("priority") is not None:
        return obj
    name = spec.get("priorityClassName")
    chosen = _class_of(obj, name, classes) if name else _default_class(classes.values())
    if chosen is None:
        return obj
    added: Obj = {"priority": int(chosen.get("value") or 0)}
    if obj["kind"] == "Pod" and chosen.get("preemptionPolicy"):
        added["preemptionPolicy"] = chosen["preemptionPolicy"]
    return {**obj, "spec": {**spec, **added}}


def _class_of(obj: Obj, name: str, classes: dict[str, Obj]) -> Obj:
    if name in classes:
        return classes[name]
    where = f"{obj['kind']} {obj['metadata']['name']}: spec.priorityClassName"
    raise InputError(f'{where}: no PriorityClass "{name}" in the files: add it, or write spec.priority')


def _default_class(classes: Iterable[Obj]) -> Obj | None:
    defaults = [found for found in classes if found.get("globalDefault")]
    return min(defaults, key=lambda found: int(found["value"]), default=None)


def _with_claims(objects: Sequence[Obj], *, group_claims: bool) -> Iterator[Obj]:
    templates = {namespaced_name(o): o for o in objects if o["kind"] == "ResourceClaimTemplate"}
    groups = {namespaced_name(o): o for o in objects if o["kind"] == "PodGroup"} if group_claims else {}
    made: dict[str, Obj] = {}
    for obj in objects:
        if obj["kind"] != "Pod":
            yield obj
            continue
        recorded = claim_names.recorded_names(obj)
        added: list[Obj] = []
        group = groups.get(f"{obj['metadata']['namespace']}/{podgroup_of(obj)}")
        for entry in claim_names.entries_of(obj):
            name = entry.get("resourceClaimTemplateName")
            template = templates.get(f"{obj['metadata']['namespace']}/{name}")
            if entry["name"] in recorded or template is None:
                continue
            shared = group is not None and claim_names.matches_group(group, entry)
            owner, kind = (group, POD_GROUPS) if group is not None and shared else (obj, PODS)
            claim = _claim(owner, kind, entry["name"], template)
            made.setdefault(namespaced_name(claim), claim)
            added.append({"name": entry["name"], "resourceClaimName": claim["metadata"]["name"]})
        yield _recorded(obj, added) if added else obj
    yield from made.values()


def _claim(owner: Obj, kind: Kind, entry: str, template: Obj) -> Obj:
    claim = claim_names.generated_claim(owner, kind, entry, template)
    name = claim["metadata"].pop("generateName").rstrip("-")
    claim["metadata"] |= {"name": name, "uid": f"ResourceClaim/{owner['metadata']['namespace']}/{name}"}
    return claim


def _recorded(pod: Obj, names: list[Obj]) -> Obj:
    status = pod.get("status") or {}
    return {
        **pod,
        "status": {**status, "resourceClaimStatuses": [*(status.get("resourceClaimStatuses") or ()), *names]},
    }
