"""What would help: one change at a time, tried on a snapshot that has it, and offered only with what came of it.

Cheapest kinds come first: a gate to remove, a cordon or taint to lift, a toleration, a smaller request; then others'
work to end; then more nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from haru.engine.cluster import Snapshot
from haru.engine.decision import Obj
from haru.engine.devices.model import Taint
from haru.engine.groups import Options
from haru.engine.groups.claims import resolve_claims
from haru.engine.pods import PodInfo
from haru.explain import hypothesis
from haru.explain.changes import create, delete, listed, patch, replacement
from haru.explain.combined import combined
from haru.explain.explanation import Remedy
from haru.explain.holders import smallest_eviction
from haru.explain.taints import repelling_taints
from haru.explain.work import Work

MOST = 5
_MAX_COPIES = 64
_MAX_KINDS = 16


def remedies(snapshot: Snapshot, work: Work, options: Options) -> tuple[Remedy, ...]:
    """Confirmed remedies for work that the scheduler refuses, the cheapest first."""
    found: list[Remedy] = []
    for kind in _KINDS:
        found.extend(kind(snapshot, work, options))
    if not any(remedy.kind in _OF_THE_CLUSTER for remedy in found):
        found.extend(combined(snapshot, work, options))
    return tuple(sorted(found, key=lambda r: (r.cost, r.kind))[:MOST])


def _uncordon(snapshot: Snapshot, work: Work, options: Options) -> Iterator[Remedy]:
    cordoned = [n for n in snapshot.node_names if snapshot.nodes[n].spec.unschedulable]

    def fits(names: Sequence[str]) -> bool:
        return work.fits(hypothesis.with_nodes(snapshot, hypothesis.uncordoned, names), options)

    names = smallest(cordoned, fits)
    if names:
        changes = tuple(patch("v1", "Node", name, {"spec": {"unschedulable": None}}) for name in names)
        yield Remedy("Uncordon", f"uncordon {listed(names)}", changes, len(names), True)


def _untaint_nodes(snapshot: Snapshot, work: Work, options: Options) -> Iterator[Remedy]:
    tainted = [n for n in snapshot.node_names if any(hypothesis.repels(t) for t in snapshot.nodes[n].taints)]

    def fits(names: Sequence[str]) -> bool:
        return work.fits(hypothesis.with_nodes(snapshot, hypothesis.untainted, names), options)

    names = smallest(tainted, fits)
    if not names:
        return
    taints: list[Obj] = []
    removal: list[Obj] = []
    for name in names:
        on_node = snapshot.nodes[name].taints
        taints += [u for t in on_node if hypothesis.repels(t) and (u := _untimed(t)) not in taints]
        kept = [t for t in on_node if not hypothesis.repels(t)]
        removal.append(patch("v1", "Node", name, {"spec": {"taints": kept}}))
    texts = listed([f"{t['key']}={t.get('value') or ''}:{t['effect']}" for t in taints])
    yield Remedy("Untaint", f"remove {texts} from {listed(names)}", tuple(removal), 2 * len(names), True)
    tolerated = _with_tolerations(work.pending(snapshot), [_toleration(t) for t in taints])
    if work.fits(hypothesis.with_pods(snapshot, tolerated), options):
        changes = tuple(
            patch("v1", "Pod", p.key.name, {"spec": {"tolerations": p.obj["spec"]["tolerations"]}}, p.key.namespace)
            for p in tolerated
        )
        yield Remedy("Tolerate", f"tolerate {texts} in the pods", changes, 1, True)


def _untimed(taint: Obj) -> Obj:
    return {key: value for key, value in taint.items() if key != "timeAdded"}


def _with_tolerations(pods: Sequence[PodInfo], more: Sequence[Obj]) -> list[PodInfo]:
    return [PodInfo.of({**p.obj, "spec": {**p.spec, "tolerations": [*p.tolerations, *more]}}) for p in pods]


def _toleration(taint: Obj) -> Obj:
    return {"key": taint["key"], "operator": "Equal", "value": taint.get("value") or "", "effect": taint["effect"]}


def _label_nodes(snapshot: Snapshot, work: Work, options: Options) -> Iterator[Remedy]:
    """Labels that the pods' nodeSelector asks for, on nodes that lack them."""
    wanted: dict[str, str] = {}
    for pod in work.pending(snapshot):
        wanted.update(pod.spec.get("nodeSelector") or {})

    def labelled(node: Obj) -> Obj:
        meta = node["metadata"]
        return {**node, "metadata": {**meta, "labels": {**(meta.get("labels") or {}), **wanted}}}

    def fits(names: Sequence[str]) -> bool:
        return work.fits(hypothesis.with_nodes(snapshot, labelled, names), options)

    lacking = [n for n in snapshot.node_names if wanted.items() - snapshot.nodes[n].labels.items()] if wanted else []
    names = smallest(lacking, fits)
    if names:
        changes = tuple(patch("v1", "Node", name, {"metadata": {"labels": wanted}}) for name in names)
        texts = listed([f"{key}={value}" for key, value in sorted(wanted.items())])
        yield Remedy("LabelNodes", f"label {listed(names)} with {texts}", changes, 6 + len(names), True)


def _device_taints(snapshot: Snapshot, work: Work, options: Options) -> Iterator[Remedy]:
    """Taints on devices: tolerate them in the requests; or delete the rule that made them."""
    if work.fits(hypothesis.without_device_taints(snapshot, lambda p, d, t: True), options):
        wanted = smallest(
            list(repelling_taints(snapshot)),
            lambda some: work.fits(hypothesis.without_device_taints(snapshot, lambda p, d, t: str(t) in some), options),
        )
        taints = [taint for text, taint in repelling_taints(snapshot).items() if text in wanted]
        yield from _tolerate_devices(snapshot, work, options, taints)
    for name, rule in sorted(snapshot.objects("DeviceTaintRule").items()):
        yield from _delete_rule(snapshot, work, options, name, rule)


def _tolerate_devices(snapshot: Snapshot, work: Work, options: Options, taints: Sequence[Taint]) -> Iterator[Remedy]:
    more = [{"key": t.key, "operator": "Equal", "value": t.value, "effect": t.effect} for t in taints]

    def tolerant(ask: Obj) -> Obj:
        return {**ask, "tolerations": [*(ask.get("tolerations") or ()), *more]}

    changed = changed_claims(snapshot, work, tolerant)
    if changed and work.fits(hypothesis.with_claims(snapshot, changed), options):
        text = f"tolerate device taint {listed([str(t) for t in taints])} in the requests"
        yield Remedy("TolerateDevices", text, claim_changes(changed), 1 + len(more), True)


def _delete_rule(snapshot: Snapshot, work: Work, options: Options, name: str, rule: Obj) -> Iterator[Remedy]:
    spec = rule.get("spec") or {}
    taint = spec.get("taint") or {}
    selector = spec.get("deviceSelector")
    if selector is None:
        return

    def made_by_rule(pool: object, device: object, found: Taint) -> bool:
        driver, pool_name = getattr(pool, "driver", ""), getattr(pool, "pool", "")
        given = (selector.get("driver"), selector.get("pool"), selector.get("device"))
        actual = (driver, pool_name, getattr(device, "name", ""))
        selected = all(want in (None, "", have) for want, have in zip(given, actual, strict=True))
        same = (found.key, found.value, found.effect) == (
            taint.get("key"),
            taint.get("value") or "",
            taint.get("effect"),
        )
        return selected and same

    if work.fits(hypothesis.without_device_taints(snapshot, made_by_rule), options):
        change = delete(rule["apiVersion"], "DeviceTaintRule", name)
        yield Remedy("DeleteDeviceTaintRule", f"delete DeviceTaintRule {name}", (change,), 3, True)


def changed_claims(snapshot: Snapshot, work: Work, change: Callable[[Obj], Obj]) -> dict[str, Obj]:
    """The work's claims that are to be allocated, with every request changed."""
    found: dict[str, Obj] = {}
    for pod in work.pending(snapshot):
        uses = resolve_claims(snapshot, pod, work.pod_group(snapshot), workload_claims=True)
        for use in uses if isinstance(uses, tuple) else ():
            if use.allocation is None:
                found[use.path] = _with_requests(use.claim, change)
    return {path: claim for path, claim in found.items() if claim != snapshot.claims[path]}


def _with_requests(claim: Obj, change: Callable[[Obj], Obj]) -> Obj:
    devices = (claim.get("spec") or {}).get("devices") or {}
    requests = []
    for request in devices.get("requests") or ():
        changed = dict(request)
        if request.get("exactly") is not None:
            changed["exactly"] = change(request["exactly"])
        if request.get("firstAvailable"):
            changed["firstAvailable"] = [change(alternative) for alternative in request["firstAvailable"]]
        requests.append(changed)
    return {**claim, "spec": {**claim["spec"], "devices": {**devices, "requests": requests}}}


def claim_changes(changed: Mapping[str, Obj]) -> tuple[Obj, ...]:
    """A claim's spec never changes: the claim is deleted and made anew."""
    return tuple(step for _, claim in sorted(changed.items()) for step in replacement(claim, claim["spec"]))


def _smaller_request(snapshot: Snapshot, work: Work, options: Options) -> Iterator[Remedy]:
    """The largest number of devices per request that would fit now."""
    counts = [int(ask.get("count") or 1) for ask in _asks(snapshot, work)]
    most = max(counts, default=1)

    def changed(limit: int) -> dict[str, Obj]:
        def capped(ask: Obj) -> Obj:
            return {**ask, "count": limit} if int(ask.get("count") or 1) > limit else ask

        return changed_claims(snapshot, work, capped)

    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        if work.fits(hypothesis.with_claims(snapshot, changed(middle)), options):
            low = middle
        else:
            high = middle
    if low:
        text = f"ask for {low} devices instead of {most}"
        yield Remedy("LowerCount", text, claim_changes(changed(low)), 4, True)


def _asks(snapshot: Snapshot, work: Work) -> Iterator[Obj]:
    asks: list[Obj] = []

    def collect(ask: Obj) -> Obj:
        asks.append(ask)
        return {**ask, "seen": True}

    changed_claims(snapshot, work, collect)
    yield from (ask for ask in asks if ask.get("allocationMode", "ExactCount") == "ExactCount")


def _lower_min_count(snapshot: Snapshot, work: Work, options: Options) -> Iterator[Remedy]:
    group = work.pod_group(snapshot)
    gang = ((group or {}).get("spec") or {}).get("schedulingPolicy", {}).get("gang")
    if group is None or gang is None or work.group is None:
        return
    for count in range(int(gang["minCount"]) - 1, 0, -1):
        spec = {**group["spec"], "schedulingPolicy": {"gang": {**gang, "minCount": count}}}
        smaller = {**group, "spec": spec}
        if work.fits(hypothesis.with_pod_group(snapshot, work.group.path, smaller), options):
            text = f"let the gang start with {count} {'member' if count == 1 else 'members'}"
            yield Remedy("LowerMinCount", text, replacement(group, spec), 5, True)
            return


def _evict(snapshot: Snapshot, work: Work, options: Options) -> Iterator[Remedy]:
    units = smallest_eviction(snapshot, work, options)
    if units:
        pods = [pod for unit in units for pod in unit.pods]
        changes = tuple(delete("v1", "Pod", p.key.name, p.key.namespace) for p in pods)
        text = f"end {listed([unit.name for unit in units])}" + (f" ({len(pods)} pods)" if len(pods) > 1 else "")
        yield Remedy("Evict", text, changes, 10 + len(pods), True)


def _add_nodes(snapshot: Snapshot, work: Work, options: Options) -> Iterator[Remedy]:
    """More nodes like one that exists: the kind of which the fewest are needed."""
    best: tuple[int, str, list[Obj]] | None = None
    for model in _kinds(snapshot):
        limit = min(_MAX_COPIES, len(work.pending(snapshot))) if best is None else best[0] - 1
        count = _copies_needed(snapshot, work, options, model, limit)
        if count:
            best = (count, model, hypothesis.with_copies(snapshot, model, count)[1])
    if best is not None:
        count, model, manifests = best
        text = f"add {count} {'node' if count == 1 else 'nodes'} like {model}, with its devices"
        yield Remedy("AddNodes", text, tuple(create(manifest) for manifest in manifests), 20 + 10 * count, True)


def _copies_needed(snapshot: Snapshot, work: Work, options: Options, model: str, limit: int) -> int:
    """The fewest copies with which the work fits, 0 if `limit` copies do not suffice."""

    def fits(count: int) -> bool:
        return work.fits(hypothesis.with_copies(snapshot, model, count)[0], options)

    if limit < 1 or not fits(limit):
        return 0
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _kinds(snapshot: Snapshot) -> list[str]:
    """One node of each kind: equal labels but for names, equal room, equally many devices."""
    kinds: dict[object, str] = {}
    for name in snapshot.node_names:
        info = snapshot.nodes[name]
        labels = tuple(sorted((k, v) for k, v in info.labels.items() if v != name))
        pools = sorted(snapshot.devices.by_node.get(name) or ())
        devices = tuple(len(s.devices) for pool in pools for s in snapshot.devices.pools[pool].slices)
        kinds.setdefault((info.spec.kind, labels, devices), name)
    return list(kinds.values())[:_MAX_KINDS]


def smallest(items: Sequence[str], fits: Callable[[Sequence[str]], bool]) -> list[str]:
    """A set of items with which it fits and none of which can be done without; empty if all of them do not help."""
    if not items or not fits(items):
        return []
    kept = list(items)
    step = max(1, len(kept) // 2)
    while True:
        index = 0
        while index < len(kept):
            fewer = kept[:index] + kept[index + step :]
            if fewer and fits(fewer):
                kept = fewer
            else:
                index += step
        if step == 1:
            return kept
        step //= 2


_KINDS: tuple[Callable[[Snapshot, Work, Options], Iterator[Remedy]], ...] = (
    _uncordon,
    _untaint_nodes,
    _device_taints,
    _label_nodes,
    _smaller_request,
    _lower_min_count,
    _evict,
    _add_nodes,
)
_OF_THE_CLUSTER = frozenset(
    {"Uncordon", "Untaint", "Tolerate", "TolerateDevices", "DeleteDeviceTaintRule", "LabelNodes", "Evict", "AddNodes"}
)
