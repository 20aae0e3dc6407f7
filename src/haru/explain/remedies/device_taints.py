"""Taints on devices: take them off where they were put on, delete the rule that made them, or tolerate them.

A simulated node carries the taints of its devices in an annotation; other drivers publish them for reasons of their
own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from haru.engine import Options, Snapshot
from haru.engine.dra import Device, DeviceId, PoolKey, Taint, TaintRule, decode_taint_rule
from haru.explain import hypothesis
from haru.explain.changes import delete, listed, patch
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import Remedy
from haru.explain.remedies.claim_changes import changed_claims, claim_changes
from haru.explain.remedies.node_openings import smallest
from haru.kube.meta import Obj
from haru.kube.names import counted


def repelling_taints(snapshot: Snapshot) -> dict[str, Taint]:
    """The taints of all published devices, by their text."""
    found = {
        str(taint): taint
        for pool in snapshot.devices.pools.values()
        for item in pool.slices
        for device in item.devices
        for taint in device.taints
        if taint.repels
    }
    return dict(sorted(found.items()))


ANNOTATION = "simulated.haru.dev/device-taints"


@dataclass(frozen=True, slots=True)
class Tainted:
    """One taint on one device."""

    pool: PoolKey
    device: str
    taint: Taint
    node: str


def device_taints(snapshot: Snapshot, work: WorkloadUnit, options: Options) -> Iterator[Remedy]:
    """What can be done about taints, if they are in the way."""
    every = repelling_taints(snapshot)
    if not every or not work.fits(hypothesis.without_device_taints(snapshot, lambda p, d, t: True), options):
        return
    texts = smallest(
        list(every),
        lambda some: work.fits(hypothesis.without_device_taints(snapshot, lambda p, d, t: str(t) in some), options),
    )
    if not texts:
        return
    rules = {name: decode_taint_rule(rule) for name, rule in sorted(snapshot.objects("DeviceTaintRule").items())}
    yield from _tolerate(snapshot, work, options, [every[text] for text in texts])
    yield from _remove(snapshot, work, options, [t for t in _tainted(snapshot, rules) if str(t.taint) in texts])
    for name, rule in rules.items():
        yield from _delete_rule(snapshot, work, options, rule, snapshot.objects("DeviceTaintRule")[name])


def _tolerate(snapshot: Snapshot, work: WorkloadUnit, options: Options, taints: Sequence[Taint]) -> Iterator[Remedy]:
    more = [{"key": t.key, "operator": "Equal", "value": t.value, "effect": t.effect} for t in taints]

    def tolerant(ask: Obj) -> Obj:
        return {**ask, "tolerations": [*(ask.get("tolerations") or ()), *more]}

    changed = changed_claims(snapshot, work, tolerant)
    if changed and work.fits(hypothesis.with_claims(snapshot, changed), options):
        text = f"tolerate the device taint {listed([str(t) for t in taints])} in the requests"
        costs = "the work uses devices that somebody marked; its claims (or their template) are made again"
        yield Remedy("TolerateDevices", text, claim_changes(snapshot, changed), 3 + len(more), True, costs)


def _tainted(snapshot: Snapshot, rules: Mapping[str, TaintRule]) -> list[Tainted]:
    """Every repelling taint that was published with its device, not added by a rule."""
    return [
        Tainted(item.pool, device.name, taint, item.placement.node_name)
        for _, pool in sorted(snapshot.devices.pools.items())
        for item in pool.slices
        for device in item.devices
        for taint in device.taints
        if taint.repels and not any(_made_by(rule, item.pool, device.name, taint) for rule in rules.values())
    ]


def _made_by(rule: TaintRule, pool: PoolKey, device: str, taint: Taint) -> bool:
    return rule.taint == taint and rule.selects(DeviceId(*pool, device))


def _remove(snapshot: Snapshot, work: WorkloadUnit, options: Options, tainted: Sequence[Tainted]) -> Iterator[Remedy]:
    def fits(some: Sequence[Tainted]) -> bool:
        gone = {(item.pool, item.device, item.taint) for item in some}

        def drop(pool: PoolKey, device: Device, taint: Taint) -> bool:
            return (pool, device.name, taint) in gone

        return work.fits(hypothesis.without_device_taints(snapshot, drop), options)

    chosen = smallest(tainted, fits)
    if not chosen:
        return
    changes = _annotation_steps(snapshot, chosen)
    places = [f"{item.device} on {item.node}" if item.node else f"{item.pool}/{item.device}" for item in chosen]
    texts = listed(sorted({str(item.taint) for item in chosen}))
    text = f"remove the taint {texts} from {listed(places)}"
    costs = f"{counted(len(chosen), 'device')} in use again that somebody marked"
    if not changes:
        costs += f"; {by_driver(chosen)}"
    yield Remedy("RemoveDeviceTaint", text, tuple(changes), 1 + len(chosen), True, costs)


def by_driver(tainted: Sequence[Tainted]) -> str:
    """Who has to do it where nothing can be done through the API."""
    drivers = listed(sorted({item.pool.driver for item in tainted}))
    return f"the driver ({drivers}) publishes the taint and has to take it off"


def taint_removal(snapshot: Snapshot, text: str) -> tuple[list[Obj], list[Tainted]]:
    """How to take one taint off all devices: rules to delete and annotations to change; and what drivers have to do."""
    rules = {name: decode_taint_rule(rule) for name, rule in sorted(snapshot.objects("DeviceTaintRule").items())}
    made = [(name, rule) for name, rule in rules.items() if rule.has_selector and str(rule.taint) == text]
    objects = snapshot.objects("DeviceTaintRule")
    deletions = [delete(objects[name]["apiVersion"], "DeviceTaintRule", rule.name) for name, rule in made]
    published = [item for item in _tainted(snapshot, rules) if str(item.taint) == text]
    steps = _annotation_steps(snapshot, published)
    return [*deletions, *steps], published if not steps else []


def _annotation_steps(snapshot: Snapshot, tainted: Sequence[Tainted]) -> list[Obj]:
    nodes = sorted({item.node for item in tainted if item.node})
    steps = (_annotation_step(snapshot, node, [item for item in tainted if item.node == node]) for node in nodes)
    return [step for step in steps if step is not None]


def _annotation_step(snapshot: Snapshot, node: str, items: Sequence[Tainted]) -> Obj | None:
    """How to take the taints out of a simulated node's annotation; None if they are not in it."""
    info = snapshot.nodes.get(node)
    annotations = (info.spec.obj.get("metadata") or {}).get("annotations") or {} if info is not None else {}
    entries = [entry.strip() for entry in str(annotations.get(ANNOTATION) or "").split(",") if entry.strip()]
    gone = {f"{item.device}={item.taint}" for item in items}
    kept = [entry for entry in entries if entry not in gone]
    if len(kept) == len(entries):
        return None
    return patch("v1", "Node", node, {"metadata": {"annotations": {ANNOTATION: ",".join(kept) or None}}})


def _delete_rule(
    snapshot: Snapshot, work: WorkloadUnit, options: Options, rule: TaintRule, obj: Obj
) -> Iterator[Remedy]:
    def made(pool: PoolKey, device: Device, taint: Taint) -> bool:
        return _made_by(rule, pool, device.name, taint)

    if rule.has_selector and work.fits(hypothesis.without_device_taints(snapshot, made), options):
        change = delete(obj["apiVersion"], "DeviceTaintRule", rule.name)
        costs = "every device that it taints is in use again"
        yield Remedy("DeleteDeviceTaintRule", f"delete DeviceTaintRule {rule.name}", (change,), 3, True, costs)
