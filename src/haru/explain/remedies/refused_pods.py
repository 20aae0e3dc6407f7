"""Pods that the API server refuses: what their workload names is created, or it asks for what a LimitRange allows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from haru.engine import Reason, Snapshot
from haru.explain.changes import create
from haru.explain.explanation import Remedy
from haru.explain.remedies.pod_changes import owner_changes
from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity

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
_BOUND = re.compile(
    r"(?P<bound>maximum|minimum) (?P<resource>\S+) usage per (?P<of>Container|Pod) is (?P<amount>[^\s,]+?)"
    r"(?:, but (?:request|limit) is (?P<asked>[^\s,\]]+)|\.  No request is specified)"
)
_RATIO = re.compile(
    r"(?P<resource>[^\s\[]+) max limit to request ratio per (?P<of>Container|Pod) is (?P<amount>[^\s,]+), "
    r"but provided ratio is "
)
_UNITS = {"cpu": 10**6}
"""The least amounts (10^-9) that requests are written in; of other resources whole ones."""


@dataclass(frozen=True, slots=True)
class _Allowed:
    """What a LimitRange allows, by resource: amounts, and how many times the request a limit may be."""

    most: Mapping[str, str]
    least: Mapping[str, str]
    ratios: Mapping[str, str]

    @classmethod
    def of(cls, faults: Sequence[re.Match[str]]) -> _Allowed:
        """By its words; of several bounds of one resource the tightest counts."""
        by_amount = sorted(faults, key=lambda fault: parse_quantity(fault["amount"]))

        def tightest(bound: str, these: Iterable[re.Match[str]]) -> Mapping[str, str]:
            return {f["resource"]: f["amount"] for f in these if f.groupdict().get("bound", "ratio") == bound}

        loosest_first = by_amount[::-1]
        return cls(tightest("maximum", loosest_first), tightest("minimum", by_amount), tightest("ratio", loosest_first))

    def within(self, container: Obj) -> Obj:
        """The container with requests and limits as they are allowed."""
        sizes = container.get("resources") or {}
        requests, limits = dict(sizes.get("requests") or {}), dict(sizes.get("limits") or {})
        for name, most in self.most.items():
            for amounts in (requests, limits):
                amounts.update({name: most} if name in amounts and _is_less(most, amounts[name]) else {})
        for name, least in self.least.items():
            requests.update({name: least} if _is_less(requests.get(name, "0"), least) else {})
            limits.update({name: least} if name in limits and _is_less(limits[name], least) else {})
        for name, ratio in self.ratios.items():
            needed = _part_of(name, limits[name], ratio) if name in limits else "0"
            requests.update({name: needed} if _is_less(requests.get(name, "0"), needed) else {})
        changed = {name: amounts for name, amounts in (("requests", requests), ("limits", limits)) if amounts}
        return {**container, "resources": {**sizes, **changed}} if changed else container


def allowed_amounts(snapshot: Snapshot, maker: Obj, refused: Reason, starts: Callable[[Obj], bool]) -> Iterator[Remedy]:
    """To ask for what a LimitRange allows; `starts`: whether pods of the workload then have a place.

    The LimitRange itself is not read: its words have the numbers. Source: the words of the plugin LimitRanger.
    """
    bounds, ratios = (list(each.finditer(refused.message)) for each in (_BOUND, _RATIO))
    faults = [*bounds, *ratios]
    template = (maker["spec"].get("template") or {}).get("spec") or {}
    several = len([*(template.get("containers") or ()), *(template.get("initContainers") or ())]) > 1
    if not faults or (several and any(fault["of"] == "Pod" for fault in faults)):
        return  # which of its containers is to have another amount is for its author to say
    allowed = _Allowed.of(faults)

    def change(spec: Obj) -> Obj:
        parts = {part: spec[part] for part in ("initContainers", "containers") if spec.get(part)}
        return {**spec, **{part: [allowed.within(one) for one in containers] for part, containers in parts.items()}}

    meta = maker["metadata"]
    told = owner_changes(snapshot, maker["kind"], meta.get("namespace") or "default", meta["name"], (), change)
    if told is None:
        return
    other = {**maker, "spec": {**maker["spec"], "template": {**maker["spec"]["template"], "spec": change(template)}}}
    confirmed = len(_FAULT.findall(refused.message)) == len(faults) and starts(other)
    costs = "each pod has less, and must be able to work so" if allowed.most else "each pod takes more of its node"
    costs = f"{costs}; {told[1]}" if confirmed else f"{costs}; {told[1]}; it would then wait for something else"
    kind = "LowerRequest" if allowed.most else "RaiseRequest"
    yield Remedy(kind, f"ask for {_amounts_text(allowed, bounds)}", told[0], 2, confirmed, costs)


def _amounts_text(allowed: _Allowed, bounds: Sequence[re.Match[str]]) -> str:
    """What to ask for, and instead of what: `cpu 2 instead of 4`."""
    amounts = [f"{name} {amount}" for name, amount in (*allowed.most.items(), *allowed.least.items())]
    asked = dict.fromkeys(fault["asked"] or "nothing" for fault in sorted(bounds, key=lambda fault: fault["bound"]))
    told = [f"{' and '.join(amounts)} instead of {' and '.join(asked)}"] if amounts else []
    times = [f"a limit of {name} of at most {ratio} times the request" for name, ratio in allowed.ratios.items()]
    return " and ".join([*told, *times])


def _is_less(amount: str, than: str) -> bool:
    return parse_quantity(amount) < parse_quantity(than)


def _part_of(resource: str, limit: str, ratio: str) -> str:
    """The least request with which a limit is no more than so many times as large."""
    whole, unit = parse_quantity(limit), _UNITS.get(resource, 10**9)
    least = -(-whole.nano * 10**9 // parse_quantity(ratio).nano)
    return str(Quantity(-(-least // unit) * unit, whole.format))
