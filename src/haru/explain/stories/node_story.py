"""A node: what it has, who uses it, what is free, and why the work that waits does not use that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from haru.engine import Options, Reason, Snapshot
from haru.engine.dra import AllocationError, PoolKey
from haru.engine.state import NodeInfo, workload_of
from haru.explain import hypothesis
from haru.explain.card_counts import CardCounts, card_counts
from haru.explain.cards import layout_of
from haru.explain.diagnosis.holders import since_of
from haru.explain.diagnosis.verdict import distinct
from haru.explain.diagnosis.workload_unit import hypothetical_options, not_readable
from haru.explain.explanation import Holder
from haru.explain.render.wording import amount_text
from haru.explain.results import NodeStory
from haru.explain.stories.inventory import states_of, views_of
from haru.explain.stories.values import Amount, DeviceState, NodeState, Wanting
from haru.explain.stories.waiters import waiting_for_node
from haru.kube.names import counted
from haru.kube.node_taints import taint_text

_OF_ROOM = frozenset({"InsufficientResource", "TooManyPods"})


def explain_node(
    snapshot: Snapshot, name: str, *, options: Options | None = None, unread: Sequence[str] = ()
) -> NodeStory:
    """The story of a node. Raises KeyError for one that neither exists nor has pods or devices."""
    settings = hypothetical_options(options)
    devices, troubles = _devices(snapshot, name, settings)
    info = snapshot.nodes.get(name)
    if info is None or not info.present:
        if info is None and not devices:
            raise KeyError(name)
        pods = len(info.pods) if info is not None else 0
        text = f"there is no such node; {counted(pods, 'pod')} bound to it, {counted(len(devices), 'device')} published"
        reason = Reason("NodeNameMismatch", text, {"node": name})
        cards = _cards(snapshot, name, devices, settings)
        return NodeStory(name, "Absent", text, (reason,), (), devices, _workloads(info, devices), cards=cards)
    waiting, more = waiting_for_node(snapshot, name, settings)
    resources = _resources(info)
    closed = _closed(info)
    hidden = not_readable(unread)
    reasons = distinct([*closed, *_of_devices(devices), *troubles, *_stranding(devices, resources, waiting)])
    state = _state(info, devices, resources, waiting, closed)
    reasons = (*(reasons or (_of_waiting(waiting),)), *hidden)
    summary = _summary(closed, devices, resources, waiting)
    cards = _cards(snapshot, name, devices, settings)
    return NodeStory(name, state, summary, reasons, resources, devices, _workloads(info, devices), waiting, more, cards)


def _cards(snapshot: Snapshot, name: str, devices: Sequence[DeviceState], options: Options) -> CardCounts | None:
    """The node's cards by the words of the vocabulary."""
    pools = {str(PoolKey(device.driver, device.pool)) for device in devices}
    layouts = [layout_of(snapshot.devices.pools[pool]) for pool in sorted(pools)]
    found = card_counts(snapshot, layouts, node=name, options=options)
    return found if found.total else None


def _devices(snapshot: Snapshot, name: str, options: Options) -> tuple[tuple[DeviceState, ...], list[Reason]]:
    try:
        views = views_of(snapshot, name, options)
    except AllocationError as error:
        return (), [Reason("PoolInvalid", str(error), {"problem": str(error)})]
    troubles: list[Reason] = []
    for view in views:
        if view.status == "incomplete":
            troubles.append(Reason("PoolIncomplete", f"slices of pool {view.key} are missing", {"pool": str(view.key)}))
        elif view.status == "invalid":
            data = {"pool": str(view.key), "problem": view.problem}
            troubles.append(Reason("PoolInvalid", f"pool {view.key} cannot be used: {view.problem}", data))
    return tuple(state for view in views for state in states_of(snapshot, view)), troubles


def _resources(info: NodeInfo) -> tuple[Amount, ...]:
    amounts = [
        Amount(name, total, len(info.pods) if name == "pods" else info.requested.get(name, 0))
        for name, total in info.allocatable.items()
        if total
    ]
    return tuple(sorted(amounts, key=lambda amount: amount.resource))


def _workloads(info: NodeInfo | None, devices: Sequence[DeviceState]) -> tuple[Holder, ...]:
    """The workloads that have pods on the node, with how many devices of it they hold; the one with the most first."""
    held: Counter[tuple[str, str]] = Counter()
    claims: dict[tuple[str, str], set[str]] = {}
    for device in devices:
        for holder in device.holders if device.status in ("Held", "Shared") else ():
            held[holder.namespace, holder.name] += 1
            claims.setdefault((holder.namespace, holder.name), set()).update(holder.claims)
    pods: dict[tuple[str, str], list[str]] = {key: [] for key in held}
    since: dict[tuple[str, str], str] = {}
    priority: dict[tuple[str, str], int] = {}
    for path, pod in sorted(info.pods.items()) if info is not None else ():
        key = (pod.key.namespace, workload_of(pod))
        pods.setdefault(key, []).append(path)
        since[key] = min(filter(None, (since.get(key), since_of(pod))), default="")
        priority[key] = max(priority.get(key, pod.priority), pod.priority)
    found = [
        Holder(
            name=key[1],
            namespace=key[0],
            devices=held[key],
            pods=tuple(own),
            claims=tuple(sorted(claims.get(key, ()))),
            priority=priority.get(key),
            since=since.get(key, ""),
        )
        for key, own in pods.items()
    ]
    return tuple(sorted(found, key=lambda h: (-h.devices, h.namespace, h.name)))


def _closed(info: NodeInfo) -> list[Reason]:
    found = []
    if hypothesis.is_cordoned(info.spec.obj):
        found.append(Reason("NodeUnschedulable", "it is cordoned"))
    for taint in filter(hypothesis.repels, info.taints):
        text = taint_text(taint)
        found.append(Reason("NodeTaints", f"it has the taint {text}", {"taint": text}))
    return found


def _of_devices(devices: Sequence[DeviceState]) -> list[Reason]:
    """What keeps devices from being given out."""
    found = []
    held = [d for d in devices if d.status in ("Held", "Shared")]
    if held:
        workloads = Counter(holder.name for device in held for holder in device.holders)
        text = f"{counted(len(held), 'device')} taken: " + _most(workloads)
        found.append(Reason("DevicesTaken", text, {"workloads": dict(workloads)}))
    blocked = [d for d in devices if d.status == "Blocked"]
    if blocked:
        short = Counter(draw.counter for device in blocked for draw in device.draws if draw.left < draw.needs)
        workloads = Counter(holder.name for device in blocked for holder in device.holders)
        text = f"{counted(len(blocked), 'device')} used in part by others, short of {', '.join(sorted(short)[:3])}: "
        data = {"exhausted": dict(short), "workloads": dict(workloads)}
        found.append(Reason("CountersExhausted", text + _most(workloads), data))
    tainted = [d for d in devices if d.status == "Tainted"]
    if tainted:
        taints = Counter(taint for device in tainted for taint in device.taints)
        text = f"{counted(len(tainted), 'free device')} tainted {', '.join(sorted(taints))}"
        found.append(Reason("DeviceTainted", text, {"taints": dict(taints)}))
    return found


def _most(workloads: Counter[str]) -> str:
    shown = [f"{name} {count}" for name, count in workloads.most_common(3)]
    return ", ".join([*shown, f"{len(workloads) - 3} more"] if len(workloads) > 3 else shown)


def _free(devices: Sequence[DeviceState]) -> int:
    return sum(device.status == "Free" for device in devices)


def _stranding(devices: Sequence[DeviceState], resources: Sequence[Amount], waiting: Sequence[Wanting]) -> list[Reason]:
    """Devices are free, and nothing that waits for devices can use them: what the node lacks, and how much of it."""
    free = _free(devices)
    wanting = [unit for unit in waiting if unit.requests]
    if not free or not wanting or any(unit.takes for unit in wanting):
        return []
    asked: dict[str, int] = {}
    for unit in wanting:
        for reason in unit.reasons:
            if reason.type in _OF_ROOM:
                resource, wanted = str(reason.data["resource"]), int(reason.data["requested"])
                asked[resource] = min(asked.get(resource, wanted), wanted)
    found = []
    for amount in resources:
        if amount.resource in asked:
            least = asked[amount.resource]
            left, most = (amount_text(amount.resource, value) for value in (amount.free, least))
            text = f"{counted(free, 'device')} free, but {amount.resource} {left} left: what waits asks for {most}"
            data = {
                "resource": amount.resource,
                "requested": least,
                "used": amount.used,
                "allocatable": amount.allocatable,
                "devices": free,
            }
            found.append(Reason("Stranded", text, data))
    return found


def _state(
    info: NodeInfo,
    devices: Sequence[DeviceState],
    resources: Sequence[Amount],
    waiting: Sequence[Wanting],
    closed: Sequence[Reason],
) -> NodeState:
    if closed:
        return "Closed"
    if _stranding(devices, resources, waiting):
        return "Stranded"
    no_room = any(not amount.free for amount in resources if amount.resource in ("cpu", "memory", "pods"))
    # Room for more shares of a shared device is room.
    no_devices = bool(devices) and not any(device.status in ("Free", "Shared") for device in devices)
    return "Full" if no_room or no_devices else "Open"


def _of_waiting(waiting: Sequence[Wanting]) -> Reason:
    takes = [unit for unit in waiting if unit.takes]
    if takes:
        return Reason("Waiting", f"{takes[0].title} would find a place here", {"units": [unit.title for unit in takes]})
    if waiting:
        return Reason("NothingWaits", f"nothing of the {counted(len(waiting), 'unit')} that wait would use it", {})
    return Reason("NothingWaits", "nothing waits", {})


def _summary(
    closed: Sequence[Reason], devices: Sequence[DeviceState], resources: Sequence[Amount], waiting: Sequence[Wanting]
) -> str:
    parts = [reason.message for reason in closed]
    if devices:
        words = {"Held": "held", "Shared": "shared", "Blocked": "used in part", "Tainted": "tainted", "Free": "free"}
        words["Unusable"] = "in pools that cannot be used"
        counts = Counter(device.status for device in devices)
        told = ", ".join(f"{counts[status]} {word}" for status, word in words.items() if counts[status])  # type: ignore[index]
        parts.append(f"{counted(len(devices), 'device')}: {told}")
    for amount in resources:
        if amount.resource in ("cpu", "memory"):
            left, size = (amount_text(amount.resource, value) for value in (amount.free, amount.allocatable))
            parts.append(f"{amount.resource} {left} of {size} free")
    fitting = [unit.title for unit in waiting if unit.takes]
    if waiting:
        of = f"{len(fitting)} of {counted(len(waiting), 'waiting unit')} would fit here"
        parts.append(f"{of}: {fitting[0]}" if fitting else f"none of {counted(len(waiting), 'waiting unit')} fits here")
    return "; ".join(parts) or "it has nothing to give"
