"""More nodes: of which kind that exists the fewest would be enough."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from haru.engine import Options, Reason, Snapshot
from haru.engine.dra import Pool, PoolKey, Shape, Slice
from haru.engine.equivalence import DecisionCache
from haru.explain import hypothesis
from haru.explain.changes import create, listed
from haru.explain.diagnosis.allocations import product_name
from haru.explain.diagnosis.diagnosis import Diagnosis
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import Funnel, Remedy
from haru.explain.remedies.commands import SIMULATED
from haru.explain.remedies.node_openings import Openings
from haru.explain.remedies.selectors import words_of
from haru.explain.render.wording import amount_text, brief
from haru.kube.meta import Obj
from haru.kube.names import counted
from haru.kube.node_labels import is_found_out

_MAX_COPIES = 64
_MAX_KINDS = 16
_MOST_READ = 8


def add_nodes(openings: Openings) -> Iterator[Remedy]:
    """More nodes like one that exists: the kind of which the fewest are needed for the pods that lack a place."""
    snapshot, work, options = openings.snapshot, openings.work, openings.options
    rooms = [(_room(snapshot, work, options, model), model) for model in _kinds(snapshot, work)]
    best: tuple[int, str, list[Obj]] | None = None
    for each, model in sorted((pair for pair in rooms if pair[0]), key=lambda pair: -pair[0]):
        limit = _MAX_COPIES if best is None else best[0] - 1
        for count in _guesses(openings.missing, each, limit):
            larger, manifests = hypothesis.with_copies(snapshot, model, count)
            if work.fits(larger, options):
                best = (count, model, manifests)
                break
    if best is not None:
        count, model, manifests = best
        devices = sum(len(s.devices) for s in _slices(snapshot, model))
        text = f"add {counted(count, 'node')} like {model}{_kind_of(snapshot, work, model)}"
        text += ", with its devices" if devices else ""
        costs = f"{counted(count, 'more machine')} to provide"
        costs += (
            f",{' each' if count > 1 else ''} with the {counted(devices, 'device')} that {model} publishes"
            if devices
            else ""
        )
        yield _added(openings, model, manifests, Remedy("AddNodes", text, (), 20 + 10 * count, True, costs))


def _added(
    openings: Openings, model: str, manifests: Sequence[Obj], remedy: Remedy, change: Callable[[Obj], Obj] | None = None
) -> Remedy:
    """The remedy with its nodes to create; in words only, where simulated ones would lack what another driver has."""
    absent = _pools_of_others(openings.snapshot, model)
    if absent:
        bare, _ = hypothesis.with_copies(openings.snapshot, model, len(manifests), change, absent)
        if not openings.work.fits(bare, openings.options):
            who = listed(sorted({key.driver for key in absent}))
            text = f"{remedy.summary}; {who} has to publish devices there"
            return replace(remedy, summary=text, costs=f"{remedy.costs}; a copy of the Node alone has none of those")
    return replace(remedy, changes=tuple(create(manifest) for manifest in manifests))


def _pools_of_others(snapshot: Snapshot, model: str) -> list[PoolKey]:
    """The pools of a simulated node that its profile does not bring along, by the names of their slices.

    A name that the API server generates, as for a kubelet plugin's slices, never ends like that: it has no vowels.
    """
    if SIMULATED not in snapshot.nodes[model].labels:
        return []
    keys = {item.pool: None for item in _slices(snapshot, model) if not _OF_PROFILE.search(item.name)}
    return list(keys)


_OF_PROFILE = re.compile(r"-(counters|devices|gpu)(-\d+)?$")


def _kind_of(snapshot: Snapshot, work: WorkloadUnit, model: str) -> str:
    """What to order where no command makes the node: its type and pool, its devices, and labels that the work reads."""
    labels = snapshot.nodes[model].labels
    if SIMULATED in labels:
        return ""
    told = [f"{word} {labels[key]}" for key, word in _ORDERED.items() if key in labels]
    found = (product_name(s.pool.driver, device) for s in _slices(snapshot, model) for device in s.devices)
    told += [f"{count} {name}" for name, count in Counter(name for name in found if name).items()]
    read = sorted(_labels_read(snapshot, work) & labels.keys())
    told += [f"{key}={labels[key]}" for key in read if not is_found_out(key)]
    return f" ({', '.join(told)})" if told else ""


_ORDERED = {
    "node.kubernetes.io/instance-type": "instance type",
    "cloud.google.com/gke-nodepool": "node pool",
    "eks.amazonaws.com/nodegroup": "node group",
    "karpenter.sh/nodepool": "node pool",
    "kubernetes.azure.com/agentpool": "node pool",
}
"""Labels that say what a provider makes a node of."""


def different_nodes(openings: Openings, reasons: Sequence[Reason]) -> Iterator[Remedy]:
    """Nodes like one that exists, but large enough for such a pod, or with the labels that it asks for."""
    snapshot, work, options = openings.snapshot, openings.work, openings.options
    labels = _missing_labels(reasons)
    asked: dict[str, int] = {}
    for pod in work.pending(snapshot):
        for resource, amount in pod.requests.items():
            asked[resource] = max(amount, asked.get(resource, 0))
    for model in _kinds(snapshot, work):
        allocatable = snapshot.nodes[model].allocatable
        more = {r: amount for r, amount in sorted(asked.items()) if "/" not in r and amount > allocatable.get(r, 0)}
        texts = {resource: amount_text(resource, amount) for resource, amount in more.items()}
        words = [f"{resource} {text}" for resource, text in texts.items()] + [words_of(pair) for pair in labels.items()]
        change = partial(_different, texts, labels)
        for count in sorted({1, openings.missing}) if words else ():
            larger, made = hypothesis.with_copies(snapshot, model, count, change)
            if count <= _MAX_COPIES and work.fits(larger, options):
                each = " each" if count > 1 else ""
                text = f"add {counted(count, 'node')} like {model}, but with {' and '.join(words)}{each}"
                costs = f"{counted(count, 'more machine')} to provide, of a kind that is not there"
                remedy = Remedy("AddNodes", text, (), 40 + 10 * count, True, costs)
                yield _added(openings, model, made, remedy, change)
                return


def _missing_labels(reasons: Sequence[Reason]) -> dict[str, str]:
    """The labels that no node has, the first value of each."""
    found: dict[str, str] = {}
    for reason in reasons:
        if reason.type == "NodeLabelMissing" and reason.data.get("values"):
            found.setdefault(str(reason.data["label"]), str(reason.data["values"][0]))
    return found


def _different(amounts: Mapping[str, str], labels: Mapping[str, str], node: Obj) -> Obj:
    meta, status = node["metadata"], node["status"]
    larger = {key: {**status[key], **amounts} for key in ("allocatable", "capacity")}
    return {**node, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), **labels}}, "status": larger}


def other_nodes(found: Diagnosis) -> Iterator[Remedy]:
    """Nodes of a kind that the cluster does not have: what has to be on them is all that can be said."""
    lacking = [f for f in found.requests if not f.error and f.needed and not f.asked.alternative and not _matching(f)]
    if lacking:
        asked = lacking[0].asked
        conditions = [brief(selector) for selector in asked.selectors if selector]
        what = counted(lacking[0].needed or 0, "device") + f" of class {asked.device_class}"
        what += f" with {' and '.join(conditions)}" if conditions else ""
        costs = "machines to provide; there is none of that kind, so this could not be tried"
        yield Remedy("AddNodes", f"add nodes with {what} in all", (), 60, False, costs)


def _matching(funnel: Funnel) -> int:
    return next((s.left for s in reversed(funnel.stages) if s.stage in ("devices", "class", "selector")), 0)


def _guesses(missing: int, each: int, limit: int) -> list[int]:
    """No new node takes more than `each`, so fewer than these are not enough."""
    likely = -(-missing // each)
    return sorted({count for count in (likely, likely + 1, 2 * likely) if count <= limit})


def _room(snapshot: Snapshot, work: WorkloadUnit, options: Options, model: str) -> int:
    """How many of the pods one such node takes when it is all there is."""
    larger, _ = hypothesis.with_copies(snapshot, model, 1)
    new = tuple(sorted(set(larger.node_names) - set(snapshot.node_names)))
    # What is noted of the cluster tells of the nodes that are left out here.
    alone = replace(larger, node_names=new, decision_cache=DecisionCache())
    decision = work.decide(alone, options)
    if decision.status == "scheduled":
        return len(decision.placed)
    return next((int(r.data["fit"]) for r in decision.reasons if r.type == "Quorum"), 0)


def _kinds(snapshot: Snapshot, work: WorkloadUnit) -> list[str]:
    """One node of each kind: equal room, devices of equal make, and equal labels of those that the work looks at."""
    wanted = _labels_read(snapshot, work)
    makes = snapshot.decision_cache.get_or_compute("makes", None, _Makes)
    kinds: dict[object, str] = {}
    for name in snapshot.node_names:
        info = snapshot.nodes[name]
        labels = tuple(sorted((k, v) for k, v in info.labels.items() if k in wanted and v != name))
        kinds.setdefault((info.spec.kind, labels, makes.of(snapshot, name)), name)
    return list(kinds.values())[:_MAX_KINDS]


def _labels_read(snapshot: Snapshot, work: WorkloadUnit) -> frozenset[str]:
    """The node labels that the pods, or their group, name anywhere."""
    found: set[str] = set()
    pending: list[object] = [work.pod_group(snapshot), *(pod.spec for pod in work.pending(snapshot)[:_MOST_READ])]
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            found.update(str(key) for key in value)
            found.update(str(text) for key, text in value.items() if key in ("key", "topologyKey"))
            pending.extend(value.values())
        elif isinstance(value, (list, tuple)):
            pending.extend(value)
    return frozenset(found)


class _Makes:
    """Of which make the devices of nodes are, kept with the cluster."""

    def __init__(self) -> None:
        self._of_pool: dict[Pool, Mapping[str, Hashable]] = {}

    def of(self, snapshot: Snapshot, node: str) -> Hashable:
        """How many devices of which make belong to a node."""
        devices = snapshot.devices
        if len(self._of_pool) > 2 * len(devices.pools) + _MAX_COPIES:
            self._of_pool.clear()
        parts = []
        for key in sorted(devices.by_node.get(node) or ()):
            pool = devices.pools[key]
            known = self._of_pool.get(pool)
            if known is None:
                known = self._of_pool[pool] = _makes_by_node(pool)
            parts.append(known.get(node))
        return tuple(parts)


def _makes_by_node(pool: Pool) -> Mapping[str, Hashable]:
    found: dict[str, Counter[Hashable]] = {}
    for item in pool.slices:
        found.setdefault(item.placement.node_name, Counter()).update(_make(device.shape) for device in item.devices)
    return {name: frozenset(makes.items()) for name, makes in found.items()}


def _slices(snapshot: Snapshot, name: str) -> list[Slice]:
    pools = sorted(snapshot.devices.by_node.get(name) or ())
    return [s for pool in pools for s in snapshot.devices.pools[pool].slices if s.placement.node_name == name]


def _make(shape: Shape) -> Hashable:
    """What kind of device it is: its driver and the attributes by which makes are told apart."""
    names = _names_of_make(shape.driver) & shape.by_name.keys()
    return (shape.driver, *((name, shape.by_name[name].value) for name in sorted(names)))


@cache
def _names_of_make(driver: str) -> frozenset[str]:
    return frozenset(name for short in _MAKE for name in (short, f"{driver}/{short}"))


_MAKE = ("productName", "product", "model", "architecture", "type", "profile", "brand")
