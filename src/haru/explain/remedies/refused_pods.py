"""Pods that the API server refuses: what their workload names is created, or it asks for what a LimitRange allows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from haru.engine import Reason, Snapshot
from haru.explain.changes import create
from haru.explain.explanation import Remedy
from haru.explain.remedies.pod_changes import owner_changes
from haru.kube.meta import Obj
from haru.kube.quantity import parse_quantity

_SERVICE_ACCOUNT = re.compile(r"error looking up service account (?P<namespace>[^/ ]+)/(?P<name>[^ :]+): .*not found")
_PRIORITY_CLASS = re.compile(r"no PriorityClass with name (?P<name>\S+) was found")


def missing_object_remedies(refused: Reason, *, confirmed: bool) -> Iterator[Remedy]:
    """What the pods need to be let in; `confirmed`: there is room for them then.

    Source: the words of the admission plugins ServiceAccount and Priority.
    """
    if found := _SERVICE_ACCOUNT.search(refused.message):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": found.groupdict()}
        text = f"create ServiceAccount {found['namespace']}/{found['name']}"
        costs = "what its pods may do at the API server is for Roles to say"
        yield Remedy("CreateServiceAccount", text, (create(account),), 0, confirmed, costs)
    if found := _PRIORITY_CLASS.search(refused.message):
        meta = {"name": found["name"]}
        priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": 0}
        costs = "its value is for an administrator to say: here 0"
        yield Remedy(
            "CreatePriorityClass", f"create PriorityClass {found['name']}", (create(priority),), 1, confirmed, costs
        )


_FAULT = re.compile(r"(?:usage|ratio) per (?:Container|Pod) is ")
_TOO_MUCH = re.compile(
    r"maximum (?P<resource>\S+) usage per (?P<of>Container|Pod) is (?P<most>[^\s,]+), "
    r"but (?:request|limit) is (?P<asked>[^\s,\]]+)"
)


def allowed_amounts(snapshot: Snapshot, maker: Obj, refused: Reason, starts: Callable[[Obj], bool]) -> Iterator[Remedy]:
    """To ask for no more than a LimitRange allows; `starts`: whether pods of the workload then have a place.

    The LimitRange itself is not read: its words have the numbers. Source: the words of the plugin LimitRanger.
    """
    faults = list(_TOO_MUCH.finditer(refused.message))
    template = (maker["spec"].get("template") or {}).get("spec") or {}
    several = len([*(template.get("containers") or ()), *(template.get("initContainers") or ())]) > 1
    if not faults or (several and any(fault["of"] == "Pod" for fault in faults)):
        return  # which of its containers is to have less is for its author to say
    loosest_first = sorted(faults, key=lambda fault: parse_quantity(fault["most"]), reverse=True)
    most = {fault["resource"]: fault["most"] for fault in loosest_first}

    def change(spec: Obj) -> Obj:
        parts = {part: spec[part] for part in ("initContainers", "containers") if spec.get(part)}
        return {**spec, **{part: [_at_most(one, most) for one in containers] for part, containers in parts.items()}}

    meta = maker["metadata"]
    told = owner_changes(snapshot, maker["kind"], meta.get("namespace") or "default", meta["name"], (), change)
    if told is None:
        return
    less = {**maker, "spec": {**maker["spec"], "template": {**maker["spec"]["template"], "spec": change(template)}}}
    confirmed = len(_FAULT.findall(refused.message)) == len(faults) and starts(less)
    asked = " and ".join(dict.fromkeys(fault["asked"] for fault in faults))
    text = f"ask for {' and '.join(f'{resource} {amount}' for resource, amount in most.items())} instead of {asked}"
    costs = f"each pod has less, and must be able to work so; {told[1]}"
    costs = costs if confirmed else f"{costs}; it would then wait for something else"
    yield Remedy("LowerRequest", text, told[0], 2, confirmed, costs)


def _at_most(container: Obj, most: Mapping[str, str]) -> Obj:
    """The container with requests and limits that are no larger."""
    sizes = container.get("resources") or {}
    parts = {part: sizes[part] for part in ("requests", "limits") if sizes.get(part)}
    less = {
        part: {
            name: most[name] if name in most and parse_quantity(amount) > parse_quantity(most[name]) else amount
            for name, amount in amounts.items()
        }
        for part, amounts in parts.items()
    }
    return {**container, "resources": {**sizes, **less}} if less else container
