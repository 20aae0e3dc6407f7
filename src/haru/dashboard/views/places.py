"""Nodes and devices: what each has, who holds it, what waits for it, and what happened to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from haru.dashboard.views import tables
from haru.dashboard.views.queue import KnownPods, created_at
from haru.dashboard.views.tables import Cell, Column, Table
from haru.dashboard.views.timeline import Entry, timeline
from haru.dashboard.views.workloads import ANOTHER, Workload, workload
from haru.engine import Snapshot
from haru.explain import DeviceStory, NodeStory
from haru.explain.diagnosis import since_of
from haru.explain.stories import DeviceState, Wanting
from haru.kube.meta import Obj, labels_of

DEVICE_COLUMNS = (
    Column("device", "Device"),
    Column("product", "Model"),
    Column("state", "State"),
    Column("holders", "Held by"),
    Column("taints", "Taints"),
)
POD_COLUMNS = (
    Column("pod", "Pod"),
    Column("workload", "Workload"),
    Column("phase", "Phase"),
    Column("since", "Since"),
    Column("priority", "Priority", numeric=True),
)
WAITING_COLUMNS = (
    Column("workload", "Workload"),
    Column("pods", "Pods", numeric=True),
    Column("priority", "Priority", numeric=True),
    Column("fits", "Fits here"),
    Column("why", "Why not"),
)
_TONES = {"Free": "good", "Held": "", "Shared": "", "Blocked": "later", "Tainted": "bad", "Unusable": "bad"}


@dataclass(frozen=True, slots=True)
class NodePage:
    """A node: its story, its labels and taints, and tables of its resources, devices, pods and what waits."""

    story: NodeStory
    labels: Mapping[str, str]
    taints: tuple[str, ...]
    resources: tuple[tuple[str, str, str, float], ...]
    """Name, what is used, what there is, and the share of 100."""
    devices: Table
    pods: Table
    waiting: Table
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class DevicePage:
    """A device: its story, and tables of what shares its hardware and what waits."""

    story: DeviceStory
    holders: tuple[Workload, ...]
    beside: Table
    waiting: Table


def node_page(
    snapshot: Snapshot, story: NodeStory, events: Iterable[Obj], known: KnownPods, query: Mapping[str, str]
) -> NodePage:
    """Make the page of a node from its story; `events` may be about anything."""
    info = snapshot.nodes.get(story.name)
    spec = info.spec.obj if info is not None and info.present else None
    own = [event for event in events if _is_about(event, "Node", story.name)]
    pods = sorted(info.pods.values(), key=lambda pod: pod.key) if info is not None else []
    rows = [
        (
            _pod_cell(workload(pod), pod.key.namespace, pod.key.name),
            tables.work(workload(pod)),
            tables.text("Terminating" if pod.deleting else str(pod.status.get("phase") or "Pending")),
            tables.time(since_of(pod) or created_at(pod)),
            tables.number(pod.priority),
        )
        for pod in pods
    ]
    taints = info.spec.taints if info is not None and info.present else ()
    return NodePage(
        story,
        labels_of(spec) if spec is not None else {},
        tuple(f"{t.get('key')}{'=' + t['value'] if t.get('value') else ''}:{t.get('effect')}" for t in taints),
        tuple(_resource(each.resource, each.used, each.allocatable) for each in story.resources),
        _devices("devices", "Devices", story.devices, query),
        tables.table("pods", "Pods", POD_COLUMNS, rows, query),
        _waiting(story, known, query),
        timeline([spec] if spec is not None else (), own),
    )


def device_page(story: DeviceStory, known: KnownPods, query: Mapping[str, str]) -> DevicePage:
    """Make the page of a device from its story."""
    holders = tuple(dict.fromkeys(_holder(holder.namespace, holder.name) for holder in story.state.holders))
    beside = _devices("beside", "Parts of the same card", story.beside, query)
    return DevicePage(story, holders, beside, _waiting(story, known, query))


def _holder(namespace: str, name: str) -> Workload:
    return Workload(namespace, name) if namespace else ANOTHER


def _pod_cell(work: Workload, namespace: str, name: str) -> Cell:
    """A pod of hidden work has no name, and no page."""
    return tables.text(ANOTHER.name) if work == ANOTHER else tables.link(name, f"/workload/{namespace}/pod/{name}")


def _resource(name: str, used: int, total: int) -> tuple[str, str, str, float]:
    share = 100.0 * used / total if total else 0.0
    if name == "cpu":
        return name, f"{used / 1000:g}", f"{total / 1000:g}", share
    if name in ("memory", "ephemeral-storage"):
        return name, f"{used / 2**30:.1f} GiB", f"{total / 2**30:.1f} GiB", share
    return name, f"{used:g}", f"{total:g}", share


def _devices(name: str, caption: str, found: Sequence[DeviceState], query: Mapping[str, str]) -> Table:
    return tables.table(name, caption, DEVICE_COLUMNS, [_device_row(state) for state in found], query)


def _device_row(state: DeviceState) -> tuple[Cell, ...]:
    works = [_holder(holder.namespace, holder.name) for holder in state.holders]
    held = tables.works(tuple(dict.fromkeys(works)))
    return (
        tables.link(state.device, f"/device/{state.driver}/{state.pool}/{state.device}"),
        tables.text(state.product),
        tables.badge(state.status, _TONES[state.status]),
        held,
        tables.text(", ".join(state.taints)),
    )


def _work_of(unit: Wanting, known: KnownPods) -> Workload:
    """The workload whose pods wait as a PodGroup; the unit itself where there is none."""
    path = f"{unit.namespace}/{unit.name}"
    members = known.of("group", path) if unit.kind == "PodGroup" else ()
    return next((workload(pod) for pod in members), Workload(unit.namespace, f"{unit.kind.lower()}/{unit.name}"))


def _waiting(story: NodeStory | DeviceStory, known: KnownPods, query: Mapping[str, str]) -> Table:
    rows = [
        (
            tables.work(_work_of(unit, known)),
            tables.number(unit.pods),
            tables.number(unit.priority),
            tables.badge("yes", "good") if unit.takes else tables.badge("no", "later"),
            tables.text("; ".join(dict.fromkeys(reason.message for reason in unit.reasons))),
        )
        for unit in story.waiting
    ]
    return tables.table("waiting", "What waits", WAITING_COLUMNS, rows, query)


def _is_about(event: Obj, kind: str, name: str) -> bool:
    about = event.get("involvedObject") or {}
    return about.get("kind") == kind and about.get("name") == name
