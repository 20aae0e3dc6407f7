"""Report device usage by owner and namespace, now or over a time: `haru top` (docs/reference/top.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from haru.accounting.device_states import (
    HELD,
    MISSED,
    WHOLE,
    CardState,
    HoldingPod,
    State,
    UsageKey,
    amounts,
    counts_of,
)
from haru.accounting.ledger import PER_DEVICE_SECOND, Total
from haru.accounting.pressure import NOTHING_KNOWN, PodPressure, Pressures, highest
from haru.engine.dra import DoubleAllocation
from haru.explain.card_counts import CardCounts, Word, counts_text
from haru.kube.meta import Obj
from haru.kube.names import format_milliseconds

NOBODY = ""
API_VERSION = "haru.dev/v1alpha2"
OLD_API_VERSION = "haru.dev/v1alpha1"
"""Without the words of the vocabulary; served for one release more."""
API_VERSIONS = (API_VERSION, OLD_API_VERSION)
_WORDS: Mapping[str, Word] = {
    "Busy": "inUse",
    "Idle": "idle",
    "Unused": "unmeasured",
    "Held": "unmeasured",
    "Tainted": "unavailable",
}
"""The words of states, as far as states say them: for what was recorded before the ledger had words."""
_MOST_LINES = 40
_MOST_NODES = 3
_UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Filter:
    """Select rows by names or shell patterns; an owner has its kind (`job/training`) or not."""

    namespace: str = ""
    owner: str = ""

    def takes(self, namespace: str, owner: str) -> bool:
        """Tell whether a row is selected."""
        names = {part for name in owner.split(", ") for part in (name, name.partition("/")[2])} | {owner}
        return (not self.namespace or fnmatchcase(namespace, self.namespace)) and (
            not self.owner or any(fnmatchcase(name, self.owner) for name in names)
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One owner's devices by state. Held states are what it holds, others what was free while it waited."""

    namespace: str
    owner: str
    by_state: Mapping[str, float]

    @property
    def held(self) -> float:
        """What it holds."""
        return sum(self.by_state.get(state, 0.0) for state in HELD)

    @property
    def held_words(self) -> dict[str, float]:
        """What it holds by measured utilization: `idle`, `inUse`, `unmeasured`."""
        found = dict.fromkeys(("idle", "inUse", "unmeasured"), 0.0)
        for state in HELD:
            found[_WORDS[state]] += self.by_state.get(state, 0.0)
        return found

    @property
    def missed(self) -> float:
        """What was free, and compatible, while it waited."""
        return sum(self.by_state.get(state, 0.0) for state in MISSED)


@dataclass(frozen=True, slots=True)
class Usage:
    """Device usage: now in cards, or over a time (`since` is set) in device-hours.

    `by_state` and `counts`, the sums by word, are unfiltered, `rows` are filtered. Now only: `cards` is every card,
    `pods` the holders by namespace and owner of their rows, `pressures` the pressure on these pods if it was read,
    `twice` the devices that several claims hold although they cannot.
    """

    by_state: Mapping[str, float]
    counts: Mapping[str, float]
    rows: tuple[Row, ...]
    since: str = ""
    until: str = ""
    observed_seconds: float | None = None
    window_seconds: float | None = None
    cards: tuple[CardState, ...] = field(default=(), repr=False)
    pods: Mapping[tuple[str, str], tuple[HoldingPod, ...]] = field(default_factory=dict, repr=False)
    pressures: Pressures = field(default=Pressures({}, {}), repr=False)
    twice: tuple[DoubleAllocation, ...] = field(default=(), repr=False)
    api_version: str = API_VERSION

    def in_version(self, api_version: str) -> Usage:
        """Return the same, whose `as_dict` is of another of `API_VERSIONS`."""
        return replace(self, api_version=api_version)

    @property
    def devices(self) -> float:
        """The sum, of cards or device-hours."""
        return sum(self.by_state.values())

    @property
    def namespaces(self) -> tuple[Row, ...]:
        """Rows by namespace, without owners."""
        return _sorted_rows((row.namespace, NOBODY, state, v) for row in self.rows for state, v in row.by_state.items())

    def by_namespace(self) -> Usage:
        """Return the same with one row for each namespace."""
        return replace(self, rows=self.namespaces)

    @property
    def pod_nodes(self) -> tuple[str, ...]:
        """The nodes of the pods that hold devices, sorted."""
        return tuple(sorted({pod.node for pods in self.pods.values() for pod in pods if pod.node}))

    def pods_of(self, row: Row) -> list[HoldingPod]:
        """List the pods of a row; a row of a namespace has those of all owners."""
        if row.owner:
            return list(self.pods.get((row.namespace, row.owner), ()))
        return [pod for (namespace, _), pods in self.pods.items() if namespace == row.namespace for pod in pods]

    def as_dict(self) -> Obj:
        """The DeviceUsage object of `api_version`, as `haru top -o json` prints it."""
        is_new = self.api_version != OLD_API_VERSION
        told: Obj = {"apiVersion": self.api_version, "kind": "DeviceUsage"}
        if self.since:
            told |= {"since": self.since, "until": self.until, "unit": "device-hours"}
            told |= {"windowSeconds": self.window_seconds, "observedSeconds": self.observed_seconds}
        else:
            told |= {"unit": "devices"}
        if is_new:
            told["counts"] = {word: _plain(value) for word, value in self.counts.items()}
        told["total"] = _plain(self.devices)
        told["states"] = {state: _plain(value) for state, value in self.by_state.items()}
        told["namespaces"] = [_row(row, is_new) for row in self.namespaces]
        told["owners"] = [_row(row, is_new) for row in self.rows if row.owner]
        if not self.since:
            told["devices"] = [_card(card, is_new) for card in self.cards]
            told["pods"] = [_pod(pod, who[1], self.pressures) for who, pods in self.pods.items() for pod in pods]
            told["devicesAllocatedTwice"] = [
                {"device": str(one.device), "claims": list(one.claims), "exceeded": one.exceeded} for one in self.twice
            ]
            told["pressureErrors"] = [{"node": n, "message": why} for n, why in self.pressures.failed.items()]
        return told

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def _repr_html_(self) -> str:
        from haru.markup import section, table

        title = f"Device-hours from {self.since} to {self.until}" if self.since else "Devices now"
        states = ((state, _number(value)) for state, value in self.by_state.items())
        rows = ([row.namespace, *_cells(self, row)] for row in self.rows)
        return section(
            f"{title}: {_number(self.devices)}",
            table("By state", ("state", "device-hours" if self.since else "devices"), states),
            table("By owner", ("namespace", *_columns(self)), rows),
        )


def usage_now(cards: Sequence[CardState], chosen: Filter | None = None) -> Usage:
    """Report the usage at this moment."""
    found = {key: units / WHOLE for key, units in amounts(cards).items()}
    listed = tuple(cards) if chosen is None or chosen == Filter() else _matching(cards, chosen)
    rows = _rows(found, chosen or Filter())
    pods = _pods(listed, {(row.namespace, row.owner) for row in rows})
    return Usage(_by_state(found), counts_of(cards).as_dict(), rows, cards=listed, pods=pods)


def usage_over(total: Total, chosen: Filter | None = None) -> Usage:
    """Report the usage over a time, in device-hours."""
    found = {key: amount / PER_DEVICE_SECOND / 3600 for key, amount in total.amounts.items()}
    window = total.until - total.since
    return Usage(
        _by_state(found),
        _hours_by_word(total.amounts),
        _rows(found, chosen or Filter()),
        since=format_milliseconds(total.since),
        until=format_milliseconds(total.until),
        observed_seconds=total.observed / 1000,
        window_seconds=window / 1000,
    )


def _hours_by_word(amounts: Mapping[UsageKey, int]) -> dict[str, float]:
    """Sum device-hours by word, with the sums of the vocabulary."""
    found: Counter[Word] = Counter()
    for key, amount in amounts.items():
        found[key.word or _WORDS.get(key.state, "free")] += amount
    return {word: sum_ * WHOLE / PER_DEVICE_SECOND / 3600 for word, sum_ in CardCounts.of(found).as_dict().items()}


def _matching(cards: Sequence[CardState], chosen: Filter) -> tuple[CardState, ...]:
    return tuple(card for card in cards if any(p.owner and chosen.takes(p.namespace, p.owner) for p in card.parts))


def _pods(
    cards: Iterable[CardState], shown: Container[tuple[str, str]]
) -> dict[tuple[str, str], tuple[HoldingPod, ...]]:
    """List the pods that hold devices, by namespace and owner, each once."""
    found: dict[tuple[str, str], dict[HoldingPod, None]] = {}
    for card in cards:
        for part in card.parts:
            if part.pods and (part.namespace, part.owner) in shown:
                found.setdefault((part.namespace, part.owner), {}).update(dict.fromkeys(part.pods))
    return {who: tuple(sorted(pods)) for who, pods in sorted(found.items())}


def _by_state(found: Mapping[UsageKey, float]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for key, value in found.items():
        sums[key.state] = sums.get(key.state, 0.0) + value
    order: tuple[State, ...] = (*HELD, "Free", *MISSED)
    return {state: sums[state] for state in order if sums.get(state)}


def _rows(found: Mapping[UsageKey, float], chosen: Filter) -> tuple[Row, ...]:
    kept = ((key, value) for key, value in found.items() if key.owner and chosen.takes(key.namespace, key.owner))
    return _sorted_rows((key.namespace, key.owner, key.state, value) for key, value in kept)


def _sorted_rows(amounts: Iterable[tuple[str, str, str, float]]) -> tuple[Row, ...]:
    """Make rows from amounts by namespace, owner and state; those that hold most come first."""
    owners: dict[tuple[str, str], dict[str, float]] = {}
    for namespace, owner, state, value in amounts:
        if value:
            states = owners.setdefault((namespace, owner), {})
            states[state] = states.get(state, 0.0) + value
    order = [str(state) for state in (*HELD, *MISSED)]
    rows = [Row(*who, {s: states[s] for s in order if s in states}) for who, states in owners.items()]
    return tuple(sorted(rows, key=lambda r: (-r.held, -r.missed, r.namespace, r.owner)))


def _row(row: Row, is_new: bool) -> Obj:
    named = {"namespace": row.namespace} | ({"owner": row.owner} if row.owner else {})
    states = {state: _plain(value) for state, value in row.by_state.items()}
    words = {word: _plain(value) for word, value in row.held_words.items()} if is_new else {}
    return {**named, "held": _plain(row.held), **words, "missed": _plain(row.missed), "states": states}


_PRESSED = {"memory pressure": "memory", "I/O pressure": "io"}


def _columns(usage: Usage) -> tuple[str, ...]:
    pressed = () if usage.since else tuple(_PRESSED)
    return ("owner", "held", "in use", "idle", "unmeasured", *pressed, "free while it waited", "why")


def _cells(usage: Usage, row: Row) -> list[str]:
    words = row.held_words
    why = [(row.by_state[state], state) for state in MISSED if row.by_state.get(state)]
    held = (row.held, words["inUse"], words["idle"], words["unmeasured"])
    pods = usage.pods_of(row)
    pressed = [] if usage.since else [_pressed(pods, usage.pressures, resource) for resource in _PRESSED.values()]
    reasons = ", ".join(f"{state} {_number(v)}" for v, state in sorted(why)[::-1])
    return [row.owner, *map(_number, held), *pressed, _number(row.missed), reasons]


def _pressed(pods: Sequence[HoldingPod], known: Pressures, resource: str) -> str:
    """Show the last minute of the most stalled pod: some of its work, and all; `-` is unknown."""
    found = highest(pods, known.pods, resource)
    if found is None:
        return _UNKNOWN
    pod, pressure = found
    told = f"{_number(pressure.some.avg60)}%/{_number(pressure.full.avg60)}%"
    return told if len(pods) == 1 else f"{told} {pod.name}"


def _lines(usage: Usage) -> Iterable[str]:
    unit = "device-hours" if usage.since else "devices"
    if usage.since:
        seen = usage.observed_seconds or 0.0
        window = usage.window_seconds or 0.0
        yield f"from {usage.since} to {usage.until}, of which {_share(seen, window)} was observed"
    yield f"{_number(usage.devices)} {unit}" + (f": {counts_text(usage.counts)}" if usage.by_state else "")
    missed = [f"{_number(usage.by_state[state])} {state}" for state in MISSED if usage.by_state.get(state)]
    if missed:
        yield f"not used while compatible work waits: {', '.join(missed)}"
    if usage.by_state.get("Unused"):
        yield f"held by claims that no living pod uses: {_number(usage.by_state['Unused'])}"
    yield from (f"{conflict}: delete the pod of one of them" for conflict in usage.twice)
    if not usage.rows:
        return
    table = [["NAMESPACE", *(column.upper() for column in _columns(usage))]]
    table += [[row.namespace, *_cells(usage, row)] for row in usage.rows[:_MOST_LINES]]
    widths = [max(len(line[n]) for line in table) for n in range(len(table[0]))]
    for line in table:
        yield "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
    if len(usage.rows) > _MOST_LINES:
        yield f"and {len(usage.rows) - _MOST_LINES} more owners (-o json has all)"
    yield from _pressure_errors(usage.pressures)


def _pressure_errors(pressures: Pressures) -> Iterable[str]:
    """Show the errors of kubelets, one line for each reason."""
    nodes: dict[str, list[str]] = {}
    for node, why in pressures.failed.items():
        nodes.setdefault(why, []).append(node)
    for why, names in nodes.items():
        more = f" and {len(names) - _MOST_NODES} more" if len(names) > _MOST_NODES else ""
        yield f"(no pressure from the kubelet of {', '.join(names[:_MOST_NODES])}{more}: {why})"


def _share(seen: float, window: float) -> str:
    return f"{seen / window:.1%}" if window else "nothing"


def _card(card: CardState, is_new: bool) -> Obj:
    parts = []
    for part in card.parts:
        told: Obj = {"state": part.state, "share": part.share / WHOLE} | ({"use": part.word} if is_new else {})
        told |= {"namespace": part.namespace, "owner": part.owner} if part.owner else {}
        told |= {"device": part.device} if part.device else {}
        told |= {"utilizationPercent": part.utilization} if part.device else {}
        told |= {"pods": [pod.name for pod in part.pods]} if part.pods else {}
        parts.append(told)
    named = {"driver": card.driver, "pool": card.pool, "card": card.card, "product": card.product}
    return {"node": card.node, **named, "parts": parts}


def _pod(pod: HoldingPod, owner: str, known: Pressures) -> Obj:
    told: PodPressure = known.pods.get(pod.uid, NOTHING_KNOWN)
    return {"namespace": pod.namespace, "name": pod.name, "owner": owner, "node": pod.node, **told.as_dict()}


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


def _plain(value: float) -> float:
    return round(value, 6)
