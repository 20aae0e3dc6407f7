"""Preemptions, evictions and faults of a cluster, from events, conditions of nodes and taints of devices.

Events tell of a moment. A fault lasts: as long as a node is not ready, and as long as a device is tainted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from haru.engine import Snapshot
from haru.engine.dra import PoolKey
from haru.explain.cards import Layout, Layouts, PoolLayout
from haru.kube.meta import Obj
from haru.kube.names import parse_milliseconds
from haru.kube.shared_parts import interned

HappeningKind = Literal["preempted", "evicted", "fault"]
_KINDS: dict[str, HappeningKind] = {
    "Preempted": "preempted",
    "Preempting": "preempted",
    "TaintManagerEviction": "evicted",
    "DeviceTaintManagerEviction": "evicted",
    "Evicted": "evicted",
    "NodeNotReady": "fault",
    "FailedPrepareDynamicResources": "fault",
    "UnhealthyDevice": "fault",
}
"""What the reasons of events say. Their other reasons are no happenings."""


class Happening(NamedTuple):
    """What happened on a node (empty: unknown), to something in a namespace (empty: to a node or a device).

    `began` and `ended` are ms since 1970: equal for a moment; an `ended` of 0 is a fault that lasts.
    """

    kind: HappeningKind
    node: str
    namespace: str
    text: str
    began: int
    ended: int

    @property
    def key(self) -> tuple[str, ...]:
        """What it has in common with the same happening at another time."""
        return self.kind, self.namespace, self.text


def moments(snapshot: Snapshot, events: Iterable[Obj]) -> list[Happening]:
    """List what events tell of."""
    return [_of_event(event, snapshot) for event in events if event.get("reason") in _KINDS]


def without_other_events(event: Obj) -> Obj:
    """What `moments` reads of an event: all of one that tells of a happening, of any other only which one it is."""
    if event.get("reason") in _KINDS:
        return event
    metadata = {name: event["metadata"].get(name, "") for name in ("name", "namespace", "uid", "resourceVersion")}
    kept: Obj = interned({"apiVersion": event["apiVersion"], "kind": event["kind"], "metadata": metadata})
    return kept


def faults(snapshot: Snapshot, layouts: Layouts, now: int) -> list[Happening]:
    """List the faults that last. One of which nobody knows the beginning stands at `now`."""
    of_nodes = (fault for name in snapshot.nodes for fault in faults_of_node(snapshot, name, now))
    pools = layouts.of(snapshot.devices.pools)
    return [*of_nodes, *(fault for known in pools for fault in faults_of_cards(known, now))]


def _of_event(event: Obj, snapshot: Snapshot) -> Happening:
    about = event.get("involvedObject") or {}
    name, namespace = str(about.get("name") or ""), str(about.get("namespace") or "")
    last = (event.get("series") or {}).get("lastObservedTime")
    times = (last, event.get("lastTimestamp"), event.get("eventTime"), event["metadata"].get("creationTimestamp"))
    at = parse_milliseconds(next((str(time) for time in times if time), ""))
    pod = snapshot.pods.get(f"{namespace}/{name}")
    node = name if about.get("kind") == "Node" else pod.node if pod is not None else ""
    who = f"{namespace}/{name}" if namespace else name
    text = f"{event['reason']}: {who}: {event.get('message') or ''}"
    return Happening(_KINDS[event["reason"]], node or "", namespace, text, at, at)


def faults_of_node(snapshot: Snapshot, name: str, now: int) -> list[Happening]:
    """List the faults of one node that last."""
    info = snapshot.nodes.get(name)
    conditions = ((info.spec.obj.get("status") or {}).get("conditions") or ()) if info is not None else ()
    return [
        Happening(
            "fault", name, "", node_fault(name), parse_milliseconds(condition.get("lastTransitionTime")) or now, 0
        )
        for condition in conditions
        if condition.get("type") == "Ready" and condition.get("status") != "True"
    ]


def faults_of_cards(known: PoolLayout, now: int) -> list[Happening]:
    """List the faults of a pool's cards that last."""
    return [
        Happening("fault", card.node, "", card_fault(card, known.pool.key), now, 0)
        for card in known.cards
        if card.taints
    ]


def node_fault(name: str) -> str:
    """Say that a node is not ready."""
    return f"node {name} is not ready"


def card_fault(card: Layout, pool: PoolKey) -> str:
    """Say that a card is tainted."""
    return f"{card.name} on {card.node or pool.pool} is tainted: {', '.join(card.taints)}"
