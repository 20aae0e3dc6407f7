"""One device: who holds it, what blocks it, what it blocks, and why the work that asks for such does not get it."""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine import Options, Reason, Snapshot
from haru.engine.dra import AllocationError, Device, DeviceId, PoolKey, PoolView, decode_taint_rule
from haru.explain import hypothesis
from haru.explain.diagnosis.verdict import distinct
from haru.explain.diagnosis.workload_unit import hypothetical_options, not_readable
from haru.explain.explanation import Holder
from haru.explain.render.wording import holders_text
from haru.explain.results import DeviceStory
from haru.explain.stories.inventory import beside, nodes_of, states_of, views_of
from haru.explain.stories.values import DeviceState, Wanting
from haru.explain.stories.waiters import waiting_for_device
from haru.kube.names import counted
from haru.kube.node_taints import taint_text

_MOST_NODES = 16


def explain_device(
    snapshot: Snapshot, device: DeviceId, *, options: Options | None = None, unread: Sequence[str] = ()
) -> DeviceStory:
    """The story of a published device. Raises KeyError for one that no node sees."""
    settings = hypothetical_options(options)
    nodes = _seen_from(snapshot, device, settings)
    if not nodes:
        raise KeyError(str(device))
    view, index = nodes[0][1], nodes[0][2]
    states = states_of(snapshot, view)
    state, known = states[index], view.devices[index]
    others = tuple(states[number] for number in beside(view, index))
    # A node that takes pods tells more than one that is closed.
    node = next((name for name, _, _ in nodes if not _is_closed(snapshot, name)), nodes[0][0])
    exists = node in snapshot.nodes and snapshot.nodes[node].present
    waiting, more = waiting_for_device(snapshot, node, device, settings) if exists else ((), 0)
    reasons = distinct([*_reasons(snapshot, state, view, known), *_of_node(snapshot, node, state)])
    summary = _summary(state, reasons or (_of_waiting(waiting),))
    reasons = (*(reasons or (_of_waiting(waiting),)), *not_readable(unread))
    return DeviceStory(
        state,
        summary,
        reasons,
        tuple(name for name, _, _ in nodes[:_MOST_NODES]),
        {name: attribute.value for name, attribute in known.shape.attributes},
        {name: capacity.text for name, capacity in known.shape.capacity},
        _rules(snapshot, device, known),
        others,
        waiting,
        more,
    )


def _seen_from(snapshot: Snapshot, device: DeviceId, options: Options) -> list[tuple[str, PoolView, int]]:
    """The nodes that see the device, each with its pool there and the device's place in it."""
    found = []
    for name in nodes_of(snapshot, PoolKey(device.driver, device.pool), device.device) or snapshot.node_names:
        try:
            views = views_of(snapshot, name, options)
        except AllocationError:
            continue
        for view in views:
            if (view.key.driver, view.key.pool) == device[:2] and device.device in view.table.places:
                found.append((name, view, view.table.places[device.device]))
    return found


def _is_closed(snapshot: Snapshot, name: str) -> bool:
    info = snapshot.nodes.get(name)
    return info is None or not info.present or hypothesis.is_cordoned(info.spec.obj) or bool(info.taints)


def _reasons(snapshot: Snapshot, state: DeviceState, view: PoolView, device: Device) -> list[Reason]:
    found = []
    workloads = {holder.name: holder.devices for holder in state.holders}
    claims = [claim for holder in state.holders for claim in holder.claims]
    if state.status in ("Held", "Shared"):
        users = [pod for holder in state.holders for pod in holder.pods]
        data = {"claims": claims, "users": users, "workloads": workloads}
        found.append(Reason("Allocated", f"it is held by {_by(state.holders)}", data))
    short = {draw.counter: draw.needs - draw.left for draw in state.draws if draw.left < draw.needs}
    if state.status == "Blocked":
        text = (
            f"other parts of the same hardware are taken by {_by(state.holders)}: short of {', '.join(sorted(short))}"
        )
        found.append(Reason("CountersExhausted", text, {"exhausted": short, "workloads": workloads, "claims": claims}))
    repelling = {str(taint) for taint in device.taints if taint.repels}
    if repelling:
        data = {"taints": dict.fromkeys(sorted(repelling), 1)}
        found.append(Reason("DeviceTainted", f"it is tainted {', '.join(sorted(repelling))}", data))
    if view.status == "incomplete":
        found.append(Reason("PoolIncomplete", f"slices of pool {view.key} are missing", {"pool": str(view.key)}))
    if view.status == "invalid":
        data = {"pool": str(view.key), "problem": view.problem}
        found.append(Reason("PoolInvalid", f"pool {view.key} cannot be used: {view.problem}", data))
    return found


def _by(holders: Sequence[Holder]) -> str:
    """Who holds it; how many devices that makes goes without saying."""
    return holders_text(holders).replace(" 1 (", " (")


def _of_node(snapshot: Snapshot, name: str, state: DeviceState) -> list[Reason]:
    """Why a free device can be used by nobody: its node."""
    info = snapshot.nodes.get(name)
    if info is None or not info.present:
        return [Reason("NodeNameMismatch", f"its node {name} does not exist", {"node": name})]
    if state.status in ("Held", "Shared"):
        return []
    found = []
    if hypothesis.is_cordoned(info.spec.obj):
        found.append(Reason("NodeUnschedulable", f"its node {name} is cordoned", {"node": name}))
    for taint in filter(hypothesis.repels, info.taints):
        text = taint_text(taint)
        found.append(Reason("NodeTaints", f"its node {name} has the taint {text}", {"node": name, "taint": text}))
    return found


def _of_waiting(waiting: Sequence[Wanting]) -> Reason:
    takes = [unit for unit in waiting if unit.takes]
    if takes:
        text = f"it is free, and {takes[0].title} could use it"
        return Reason("Waiting", text, {"units": [unit.title for unit in takes]})
    if waiting:
        text = f"it is free; {counted(len(waiting), 'unit')} that wait ask for such a device and cannot use it"
        return Reason("Stranded", text, {"units": [unit.title for unit in waiting]})
    return Reason("NothingWaits", "it is free, and nothing that waits asks for such a device", {})


def _summary(state: DeviceState, reasons: Sequence[Reason]) -> str:
    product = f" ({state.product})" if state.product else ""
    return "; ".join(reason.message for reason in reasons) + product


def _rules(snapshot: Snapshot, device: DeviceId, known: Device) -> dict[str, str]:
    """The DeviceTaintRule behind each taint that one has put on the device."""
    found: dict[str, str] = {}
    for name, obj in sorted(snapshot.objects("DeviceTaintRule").items()):
        rule = decode_taint_rule(obj)
        if rule.taint in known.taints and rule.selects(device):
            found.setdefault(str(rule.taint), name.rpartition("/")[2])
    return found
