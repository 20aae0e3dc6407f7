"""What is out of service: nodes that are not ready or cordoned, and cards with taints, each with its page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from haru.dashboard.views.workloads import EVERYTHING, Filter
from haru.engine import Snapshot
from haru.explain.cards import Layouts
from haru.explain.happenings import Happening, card_fault, node_fault
from haru.kube.meta import get_condition
from haru.kube.names import format_milliseconds

MOST = 8


@dataclass(frozen=True, slots=True)
class Outage:
    """A node or a card out of service: its name, its page, why, and since when (RFC 3339; empty: unknown)."""

    name: str
    href: str
    node: str
    """The node of a card; empty for a node."""
    why: str
    since: str
    grave: bool = True


def outages(
    snapshot: Snapshot, layouts: Layouts, recorded: Iterable[Happening] = (), chosen: Filter = EVERYTHING
) -> tuple[Outage, ...]:
    """List what is out of service; `recorded` is what the history knows of faults that last."""
    since = {each.text: format_milliseconds(each.began) for each in recorded if not each.ended}
    found: list[Outage] = []
    for name in sorted(snapshot.node_names):
        spec = snapshot.nodes[name].spec
        ready = get_condition(spec.obj, "Ready") or {}
        if ready.get("status") not in (None, "True"):
            began = str(ready.get("lastTransitionTime") or "") or since.get(node_fault(name), "")
            found.append(Outage(name, f"/node/{name}", "", str(ready.get("message") or "not ready"), began))
        elif spec.unschedulable:
            found.append(Outage(name, f"/node/{name}", "", "cordoned", "", False))
    for known in layouts.of(snapshot.devices.pools):
        key = known.pool.key
        for card in known.cards:
            if card.taints:
                href = f"/device/{key.driver}/{key.pool}/{card.name}"
                why = ", ".join(card.taints)
                found.append(Outage(card.name, href, card.node, why, since.get(card_fault(card, key), "")))
    return tuple(each for each in found if chosen.takes_node(each.node or each.name))
