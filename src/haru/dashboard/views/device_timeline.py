"""The timeline: gangs as bars over devices and time, what waits, and what happened to them.

Bars of one workload on neighbouring cards that began and ended together are one bar. Positions are percent of the time
that is shown, rows are cards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from haru.dashboard.views.device_map import natural_key
from haru.dashboard.views.queue import ShownExplanation, WaitingWorkload
from haru.dashboard.views.workloads import EVERYTHING, Filter, Owners, Workload
from haru.engine import Snapshot
from haru.engine.dra import DeviceId
from haru.explain.cards import Layouts
from haru.explain.diagnosis import since_of
from haru.explain.happenings import Happening, faults, moments
from haru.explain.hypothesis import consumers
from haru.explain.utilization import utilization
from haru.kube.meta import Obj, allocation_of
from haru.kube.names import format_milliseconds, parse_milliseconds

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


@dataclass(frozen=True, slots=True)
class Mark:
    """A happening, drawn: `x` and `width` in percent; a moment has no width. `since` and `until` are RFC 3339."""

    happening: Happening
    x: float
    width: float
    since: str
    until: str

    @property
    def lasts(self) -> bool:
        """Whether it is a time rather than a moment."""
        return self.happening.ended != self.happening.began


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
    happened: tuple[Mark, ...]


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
    happened: tuple[Mark, ...]


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
        allocation = allocation_of(claim) or {}
        results = (allocation.get("devices") or {}).get("results") or ()
        if not results:
            continue
        users = consumers(snapshot, claim)
        began = min((parse_milliseconds(since_of(pod)) for pod in users if since_of(pod)), default=0)
        began = began or parse_milliseconds(str(claim["metadata"].get("creationTimestamp") or ""))
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
    marks = [_mark(each, scale) for each in happened if _is_shown(each, scale, chosen)]
    by_node: dict[str, list[Held]] = {}
    for each in shown:
        by_node.setdefault(each.node, []).append(each)
    nodes = sorted(by_node, key=natural_key)
    of_node: dict[str, list[Mark]] = {}
    for mark in marks:
        of_node.setdefault(mark.happening.node, []).append(mark)
    lanes = [_lane(node, by_node[node], of_node.get(node, ()), scale) for node in nodes[:most]]
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


def _lane(node: str, held: Sequence[Held], marks: Sequence[Mark], scale: _Scale) -> Lane:
    cards = tuple(sorted({each.card for each in held}, key=natural_key))
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
    x = scale.x(parse_milliseconds(each.since) if each.since else scale.since)
    end = scale.x(scale.now)
    expected = scale.x(parse_milliseconds(at)) if at else None
    return WaitingBar(each.workload, each.pods, x, round(max(0.15, end - x), 3), each.since, expected, at)


def happenings(
    snapshot: Snapshot, layouts: Layouts, events: Iterable[Obj], recorded: Iterable[Happening], now: int
) -> list[Happening]:
    """List what has happened and what lasts, as the history and the cluster tell it.

    The history knows since when a fault lasts, and what happened before the events that there still are.
    """
    found = {(each.key, each.began): each for each in (*moments(snapshot, events), *recorded)}
    open_keys = {each.key for each in found.values() if not each.ended}
    new = [each for each in faults(snapshot, layouts, now) if each.key not in open_keys]
    return sorted((*found.values(), *new), key=lambda each: (each.began, each.text))


def _is_shown(each: Happening, scale: _Scale, chosen: Filter) -> bool:
    """Whether it lies in the time that is shown, and on a node and in a namespace that the filter selects."""
    if each.began > scale.until or (each.ended or scale.now) < scale.since:
        return False
    in_namespace = not each.namespace or chosen.takes_namespace(each.namespace)
    return in_namespace and (not chosen.node or chosen.takes_node(each.node))


def _mark(each: Happening, scale: _Scale) -> Mark:
    x, end = scale.x(each.began), scale.x(each.ended or max(scale.now, each.began))
    until = format_milliseconds(each.ended) if each.ended else ""
    return Mark(each, x, round(end - x, 3), format_milliseconds(each.began), until)


def _ticks(scale: _Scale) -> Iterable[Tick]:
    length = (scale.until - scale.since) / 1000
    step = next((step for step in _STEPS if length / step <= _TICKS), _STEPS[-1]) * 1000
    at = -(-scale.since // step) * step
    while at <= scale.until:
        yield Tick(scale.x(at), format_milliseconds(at))
        at += step
