"""The timeline: gangs as bars over devices and time, what waits, and what happened to them.

Bars of one workload on neighbouring cards that began and ended together are one bar. Positions are percent of the time
that is shown, rows are cards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from haru.dashboard.views.queue import ShownExplanation, WaitingWorkload
from haru.dashboard.views.workloads import EVERYTHING, Filter, Owners, Workload
from haru.engine import Snapshot
from haru.engine.dra import DeviceId
from haru.explain.cards import Layouts
from haru.explain.diagnosis import since_of
from haru.explain.hypothesis import consumers
from haru.explain.utilization import utilization
from haru.kube.meta import Obj

MOST_NODES = 60
_TOGETHER = 3_000
"""Bars whose ends are so many ms apart began or ended together."""
_STEPS = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400)
_TICKS = 8


@dataclass(frozen=True, slots=True)
class Held:
    """A device that a workload held from `began` to `ended` (ms since 1970; 0: it still does)."""

    node: str
    driver: str
    pool: str
    card: str
    device: str
    work: Workload
    began: int
    ended: int
    percent: float | None = None


HeldBetween = Callable[[int, int], Sequence[Held]]
"""Reads who held which device between two moments; raises OSError or ValueError with the reason."""
MarkKind = Literal["preempted", "evicted", "fault"]


@dataclass(frozen=True, slots=True)
class Happening:
    """A moment at which something happened to work, a node or a device. `x` is in percent."""

    at: int
    x: float
    kind: MarkKind
    node: str
    text: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar over `rows` cards from `row` on; `x` and `width` in percent. `open`: it is still held."""

    work: Workload
    row: int
    rows: int
    x: float
    width: float
    began: int
    ended: int
    percent: float | None
    devices: tuple[str, ...]

    @property
    def open(self) -> bool:
        """Whether it is still held."""
        return not self.ended


@dataclass(frozen=True, slots=True)
class Lane:
    """A node with its cards, one row each, and what happened on it."""

    node: str
    cards: tuple[str, ...]
    bars: tuple[Bar, ...]
    happened: tuple[Happening, ...]


@dataclass(frozen=True, slots=True)
class WaitingBar:
    """Work that waits from `x` on; `expected` is when it is expected to start, in percent, None if unknown."""

    work: Workload
    pods: int
    x: float
    width: float
    since: str
    expected: float | None
    expected_at: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A moment on the axis."""

    x: float
    at: str


@dataclass(frozen=True, slots=True)
class DeviceTimeline:
    """Everything from `since` to `until` (ms since 1970); `now` in percent, None if it is not shown."""

    since: int
    until: int
    now: float | None
    ticks: tuple[Tick, ...]
    lanes: tuple[Lane, ...]
    more_nodes: int
    waiting: tuple[WaitingBar, ...]
    happened: tuple[Happening, ...]


def held_now(snapshot: Snapshot, layouts: Layouts, owners: Owners | None = None) -> list[Held]:
    """List who holds which device, since when its pods are bound; where nobody knows, since the claim exists."""
    owners = owners or Owners(snapshot)
    cards: dict[tuple[str, str, str], tuple[str, str]] = {}
    for known in layouts.of(snapshot.devices.pools):
        key = known.pool.key
        use = snapshot.allocated.use(key)
        for layout in known.cards if use.devices or use.shares else ():
            for device in layout.devices:
                if device.name in use.devices or device.name in use.shares:
                    cards[key.driver, key.pool, device.name] = (layout.node, layout.name)
    found: list[Held] = []
    for path, claim in snapshot.claims.items():
        allocation = (claim.get("status") or {}).get("allocation") or {}
        results = (allocation.get("devices") or {}).get("results") or ()
        if not results:
            continue
        users = consumers(snapshot, claim)
        began = min((milliseconds(since_of(pod)) for pod in users if since_of(pod)), default=0)
        began = began or milliseconds(str(claim["metadata"].get("creationTimestamp") or ""))
        work = owners.of_claim(path)[0]
        for result in results:
            driver, pool, name = result["driver"], result["pool"], result["device"]
            node, card = cards.get((driver, pool, name), ("", name))
            percent = utilization(snapshot, path, users, DeviceId(driver, pool, name))
            found.append(Held(node or f"pool {pool}", driver, pool, card, name, work, began, 0, percent))
    return found


def device_timeline(
    now_held: Iterable[Held],
    history: Iterable[Held],
    queue: Sequence[WaitingWorkload],
    explanations: Mapping[Workload, ShownExplanation],
    happened: Iterable[Happening],
    since: int,
    until: int,
    now: int,
    chosen: Filter = EVERYTHING,
    most: int = MOST_NODES,
) -> DeviceTimeline:
    """Draw a time. What is held now is known from the cluster, what was held from the history."""
    current = list(now_held)
    open_keys = {_key(each) for each in current}
    every = [each for each in history if each.ended or _key(each) not in open_keys] + current
    shown = [
        each
        for each in every
        if each.began < until and (each.ended or now) > since
        and chosen.takes_node(each.node) and chosen.takes(each.work)
    ]  # fmt: skip
    scale = _Scale(since, until, now)
    marks = [replace(mark, x=scale.x(mark.at)) for mark in happened if since <= mark.at <= until]
    marks = [mark for mark in marks if chosen.takes_node(mark.node)] if chosen.node else marks
    by_node: dict[str, list[Held]] = {}
    for each in shown:
        by_node.setdefault(each.node, []).append(each)
    nodes = sorted(by_node, key=_natural)
    lanes = [_lane(node, by_node[node], [mark for mark in marks if mark.node == node], scale) for node in nodes[:most]]
    waiting = tuple(
        _waiting_bar(each, explanations.get(each.workload), scale) for each in queue if chosen.takes(each.workload)
    )
    end = scale.x(now) if since <= now <= until else None
    return DeviceTimeline(
        since, until, end, tuple(_ticks(scale)), tuple(lanes), max(0, len(nodes) - most), waiting, tuple(marks)
    )


def _key(each: Held) -> tuple[str, ...]:
    return each.driver, each.pool, each.device, *each.work


@dataclass(frozen=True, slots=True)
class _Scale:
    since: int
    until: int
    now: int

    def x(self, at: int) -> float:
        """Return where a moment is, in percent."""
        return round(max(0.0, min(100.0, 100 * (at - self.since) / (self.until - self.since))), 3)


def _lane(node: str, held: Sequence[Held], marks: Sequence[Happening], scale: _Scale) -> Lane:
    cards = tuple(sorted({each.card for each in held}, key=_natural))
    rows = {card: row for row, card in enumerate(cards)}
    bars: list[Bar] = []
    # By holder and time, then by card: neighbours that began and ended together follow each other.
    for each in sorted(held, key=lambda h: (h.work, h.began // _TOGETHER, h.ended // _TOGETHER, rows[h.card])):
        row, last = rows[each.card], bars[-1] if bars else None
        if last is not None and _continues(last, each, row):
            names = last.devices if each.device in last.devices else (*last.devices, each.device)
            bars[-1] = Bar(
                last.work, last.row, row - last.row + 1, last.x, last.width, last.began, last.ended, last.percent, names
            )
            continue
        x = scale.x(each.began)
        width = max(0.15, round(scale.x(each.ended or scale.now) - x, 3))
        bars.append(Bar(each.work, row, 1, x, width, each.began, each.ended, each.percent, (each.device,)))
    return Lane(node, cards, tuple(bars), tuple(marks))


def _continues(last: Bar, each: Held, row: int) -> bool:
    return (
        last.work == each.work
        and row - (last.row + last.rows) in (0, -1)
        and abs(last.began - each.began) < _TOGETHER
        and abs(last.ended - each.ended) < _TOGETHER
    )


def _waiting_bar(each: WaitingWorkload, shown: ShownExplanation | None, scale: _Scale) -> WaitingBar:
    later = shown.explanation.later if shown is not None else None
    at = later.until if later is not None else ""
    x = scale.x(milliseconds(each.since) if each.since else scale.since)
    end = scale.x(scale.now)
    expected = scale.x(milliseconds(at)) if at else None
    return WaitingBar(each.workload, each.pods, x, round(max(0.15, end - x), 3), each.since, expected, at)


def happenings(snapshot: Snapshot, layouts: Layouts, events: Iterable[Obj], now: int) -> list[Happening]:
    """List preemptions, evictions and faults, from events and conditions of nodes; taints of devices stand at `now`."""
    found = [mark for event in events if (mark := _of_event(event, snapshot)) is not None]
    for name, info in snapshot.nodes.items():
        for condition in (info.spec.obj.get("status") or {}).get("conditions") or ():
            if condition.get("type") == "Ready" and condition.get("status") != "True":
                at = milliseconds(str(condition.get("lastTransitionTime") or ""))
                found.append(Happening(at, 0.0, "fault", name, f"node {name} is not ready"))
    for known in layouts.of(snapshot.devices.pools):
        for card in known.cards:
            if card.taints:
                text = f"{card.name} on {card.node or known.pool.key.pool} is tainted: {', '.join(card.taints)}"
                found.append(Happening(now, 0.0, "fault", card.node, text))
    return sorted(found, key=lambda mark: mark.at)


_PREEMPTED = frozenset({"Preempted", "Preempting"})
_EVICTED = frozenset({"TaintManagerEviction", "DeviceTaintManagerEviction", "Evicted"})
_FAULTS = frozenset({"NodeNotReady", "FailedPrepareDynamicResources", "UnhealthyDevice"})


def _of_event(event: Obj, snapshot: Snapshot) -> Happening | None:
    reason = str(event.get("reason") or "")
    kind: MarkKind
    if reason in _PREEMPTED:
        kind = "preempted"
    elif reason in _EVICTED:
        kind = "evicted"
    elif reason in _FAULTS:
        kind = "fault"
    else:
        return None
    about = event.get("involvedObject") or {}
    name, namespace = str(about.get("name") or ""), str(about.get("namespace") or "")
    times = (event.get("lastTimestamp"), event.get("eventTime"), event["metadata"].get("creationTimestamp"))
    at = milliseconds(next((str(time) for time in times if time), ""))
    pod = snapshot.pods.get(f"{namespace}/{name}")
    node = name if about.get("kind") == "Node" else pod.node if pod is not None else ""
    who = f"{namespace}/{name}" if namespace else name
    return Happening(at, 0.0, kind, node, f"{reason}: {who}: {event.get('message') or ''}")


def _ticks(scale: _Scale) -> Iterable[Tick]:
    length = (scale.until - scale.since) / 1000
    step = next((step for step in _STEPS if length / step <= _TICKS), _STEPS[-1]) * 1000
    at = -(-scale.since // step) * step
    while at <= scale.until:
        yield Tick(scale.x(at), rfc3339(at))
        at += step


def milliseconds(text: str) -> int:
    """Return a time (RFC 3339) as milliseconds since 1970; 0 for none, ValueError for another text."""
    return int(datetime.fromisoformat(text).timestamp() * 1000) if text else 0


def rfc3339(at: int) -> str:
    """Return milliseconds since 1970 as RFC 3339."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _natural(name: str) -> tuple[tuple[str, int], ...]:
    return tuple((text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", name))
