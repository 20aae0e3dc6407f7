"""How many cards are free, reserved, held and unavailable: the one partition that top, page, metrics and explain show.

    total = free + reserved + held + unavailable        held = idle + in use + unmeasured

In thousandths of cards, so that the sums hold to the last digit. A card is a device, or the partitions that exclude
each other. Held parts are what claims hold; the rest of a card is one of the other words. Claims with admin access hold
nothing. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from haru.engine import Options, Snapshot
from haru.engine.dra import Device, DeviceId, PoolKey, PoolUse
from haru.engine.preemption import nominated_placements
from haru.explain.cards import Layout, PoolLayout, layout_of, share_consumed, share_of_card, something_fits
from haru.explain.diagnosis.published_reservation import published_reservation
from haru.explain.diagnosis.workload_unit import hypothetical_options
from haru.explain.hypothesis import consumers, is_cordoned
from haru.explain.utilization import IDLE_BELOW_PERCENT, utilization
from haru.kube.meta import Obj, get_condition

WHOLE = 1000
"""The thousandths of a card."""

Word = Literal["free", "reserved", "idle", "inUse", "unmeasured", "unavailable"]
WORDS: tuple[Word, ...] = ("free", "reserved", "idle", "inUse", "unmeasured", "unavailable")


@dataclass(frozen=True, slots=True)
class CardCounts:
    """Thousandths of cards by word. `free`: allocatable now, held by nobody; `reserved`: kept for named work."""

    free: int = 0
    reserved: int = 0
    idle: int = 0
    in_use: int = 0
    unmeasured: int = 0
    unavailable: int = 0

    @property
    def held(self) -> int:
        """What claims hold."""
        return self.idle + self.in_use + self.unmeasured

    @property
    def total(self) -> int:
        """All cards."""
        return self.free + self.reserved + self.held + self.unavailable

    def __add__(self, other: CardCounts) -> CardCounts:
        return CardCounts(
            self.free + other.free,
            self.reserved + other.reserved,
            self.idle + other.idle,
            self.in_use + other.in_use,
            self.unmeasured + other.unmeasured,
            self.unavailable + other.unavailable,
        )

    @classmethod
    def of(cls, amounts: Mapping[Word, int]) -> CardCounts:
        """Counts of thousandths by word."""
        return cls(*(amounts.get(word, 0) for word in WORDS))

    def words(self) -> dict[Word, int]:
        """The thousandths by word."""
        amounts = (self.free, self.reserved, self.idle, self.in_use, self.unmeasured, self.unavailable)
        return dict(zip(WORDS, amounts, strict=True))

    def as_dict(self) -> dict[str, float]:
        """In cards: `total`, `free`, `reserved`, `held`, `idle`, `inUse`, `unmeasured`, `unavailable`."""
        found = {"total": self.total, "free": self.free, "reserved": self.reserved, "held": self.held}
        found |= {"idle": self.idle, "inUse": self.in_use, "unmeasured": self.unmeasured}
        return {word: amount / WHOLE for word, amount in {**found, "unavailable": self.unavailable}.items()}

    def __str__(self) -> str:
        return counts_text(self.as_dict())


def counts_text(counts: Mapping[str, float]) -> str:
    """The two sums: `5 free, 0 reserved, 3 held (1 idle, 2 in use, 0 unmeasured), 0 unavailable`."""
    told = {word: f"{value:.2f}".rstrip("0").rstrip(".") or "0" for word, value in counts.items()}
    held = f"{told['held']} held"
    if counts["held"]:
        held += f" ({told['idle']} idle, {told['inUse']} in use, {told['unmeasured']} unmeasured)"
    return f"{told['free']} free, {told['reserved']} reserved, {held}, {told['unavailable']} unavailable"


class HeldPart(NamedTuple):
    """What a claim holds of a card: the device, and its share of the card in thousandths."""

    claim: str
    device: Device
    share: int


def held_parts(card: Layout, use: PoolUse) -> list[HeldPart]:
    """List the held parts of a card, never more than the card together."""
    sizes: list[tuple[float, str, Device]] = []
    for device in card.devices if use.devices or use.shares else ():
        if device.name not in use.devices and device.name not in use.shares:
            continue
        size = share_of_card(card, device)
        claims = use.devices.get(device.name, ())
        sizes += [(size / len(claims), claim, device) for claim in claims]
        sizes += [
            (size * share_consumed(device, dict(share.consumed)), share.holder, device)
            for share in use.shares.get(device.name, ())
        ]
    shares = fitted([round(size * WHOLE) for size, _, _ in sizes])
    return [HeldPart(claim, device, share) for share, (_, claim, device) in zip(shares, sizes, strict=True) if share]


def fitted(shares: Sequence[int]) -> list[int]:
    """Scale shares down if they are more than a card together."""
    total = sum(shares)
    if total <= WHOLE:
        return list(shares)
    scaled = [share * WHOLE // total for share in shares]
    lost = sorted(range(len(shares)), key=lambda n: (-(shares[n] * WHOLE % total), n))[: WHOLE - sum(scaled)]
    return [share + (number in lost) for number, share in enumerate(scaled)]


def held_word(percent: float | None) -> Word:
    """The word for a held part, by its measured utilization."""
    if percent is None:
        return "unmeasured"
    return "inUse" if percent >= IDLE_BELOW_PERCENT else "idle"


class CardPartition:
    """The words of all cards of a snapshot. `reserved` devices are those of nominated pods and reservations."""

    def __init__(
        self, snapshot: Snapshot, options: Options | None = None, reserved_for: Iterable[Obj] | None = None
    ) -> None:
        """`reserved_for`: the objects one of which may be the head of the queue; by default all that wait."""
        self._snapshot = snapshot
        self.reserved = _reserved(snapshot, hypothetical_options(options), reserved_for)
        self._closed: dict[str, bool] = {}
        self._percents: dict[tuple[str, DeviceId], float | None] = {}

    def rest_word(self, card: Layout, known: PoolLayout, use: PoolUse) -> Word:
        """The word for what no claim holds of a card."""
        key = known.pool.key
        if not known.whole or (card.node and self._is_closed(card.node)) or not _is_allocatable(card, use):
            return "unavailable"
        ids = (DeviceId(key.driver, key.pool, device.name) for device in card.devices)
        return "reserved" if self.reserved and any(device in self.reserved for device in ids) else "free"

    def counts(self, card: Layout, known: PoolLayout) -> CardCounts:
        """The counts of one card: its words are 1000 together."""
        use = self._snapshot.allocated.use(known.pool.key)
        found: Counter[Word] = Counter()
        for claim, device, share in held_parts(card, use):
            found[held_word(self.percent(claim, known.pool.key, device))] += share
        rest = WHOLE - sum(found.values())
        if rest:
            found[self.rest_word(card, known, use)] += rest
        return CardCounts.of(found)

    def percent(self, claim: str, pool: PoolKey, device: Device) -> float | None:
        """The utilization of a device of a claim; None if it is unknown."""
        where = DeviceId(pool.driver, pool.pool, device.name)
        if (claim, where) not in self._percents:
            obj: Obj | None = self._snapshot.claims.get(claim)
            users = consumers(self._snapshot, obj) if obj is not None else []
            self._percents[claim, where] = utilization(self._snapshot, claim, users, where)
        return self._percents[claim, where]

    def _is_closed(self, name: str) -> bool:
        if name not in self._closed:
            self._closed[name] = _is_closed(self._snapshot, name)
        return self._closed[name]


def card_counts(
    snapshot: Snapshot,
    layouts: Iterable[PoolLayout] | None = None,
    *,
    node: str | None = None,
    options: Options | None = None,
) -> CardCounts:
    """The counts of all cards, or of those of one node. `layouts` are those of the pools, if known."""
    return sum(card_counts_by_driver(snapshot, layouts, node=node, options=options).values(), CardCounts())


def card_counts_by_driver(
    snapshot: Snapshot,
    layouts: Iterable[PoolLayout] | None = None,
    *,
    node: str | None = None,
    options: Options | None = None,
) -> dict[str, CardCounts]:
    """The same by driver."""
    pools = snapshot.devices.pools
    known_pools = layouts if layouts is not None else [layout_of(pools[name]) for name in sorted(pools)]
    partition, found = CardPartition(snapshot, options), dict[str, CardCounts]()
    for known in known_pools:
        cards = (partition.counts(card, known) for card in known.cards if node is None or card.node == node)
        driver = known.pool.key.driver
        found[driver] = sum(cards, found.get(driver, CardCounts()))
    return found


def _reserved(snapshot: Snapshot, options: Options, reserved_for: Iterable[Obj] | None) -> set[DeviceId]:
    """The devices kept for nominated pods, and for the head of the queue."""
    places = [placement.allocations for placement in nominated_placements(snapshot)]
    published = published_reservation(snapshot, options, reserved_for) if snapshot.reservation is None else None
    reservation = snapshot.reservation if published is None else published[1]
    if reservation is not None:
        places += [place.allocations for place in reservation.places]
    return {
        DeviceId(result["driver"], result["pool"], result["device"])
        for allocations in places
        for given in allocations
        for result in ((given.allocation or {}).get("devices") or {}).get("results") or ()
        if not result.get("adminAccess")
    }


def _is_allocatable(card: Layout, use: PoolUse) -> bool:
    """Whether some device of the card could be given to somebody who tolerates no taint."""
    if not any(taint.repels for device in card.devices for taint in device.taints):
        return (not use.devices and not use.shares) or something_fits(card, use)
    return something_fits(card, use, lambda device: not any(taint.repels for taint in device.taints))


def _is_closed(snapshot: Snapshot, name: str) -> bool:
    """Whether a node does not exist, is not ready, or is cordoned."""
    info = snapshot.nodes.get(name)
    if info is None or not info.present or is_cordoned(info.spec.obj):
        return True
    ready = get_condition(info.spec.obj, "Ready")
    return ready is not None and ready.get("status") != "True"
