"""Every card at one moment: who holds its parts, whether they idle, and why the rest is not used.

A card counts 1000: a device, or the partitions that exclude each other. Claims with admin access hold nothing. States
are a closed list (docs/reference/top.md), added to, never renamed. Utilization comes from `haru.explain.utilization`;
without a report it is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from haru.accounting.missed_devices import WaitingWorkload, WaitingWorkloads, missed_use
from haru.engine import Options, Snapshot
from haru.engine.dra import DeviceId, PoolUse
from haru.engine.state import PodInfo, workload_of
from haru.explain.card_counts import WHOLE as WHOLE
from haru.explain.card_counts import CardCounts, CardPartition, Word, held_parts, held_word
from haru.explain.cards import Layout, PoolLayout, layout_of
from haru.explain.hypothesis import consumers
from haru.explain.utilization import IDLE_BELOW_PERCENT, utilization
from haru.kube.meta import Obj

HeldState = Literal["Busy", "Idle", "Unused", "Held"]
FreeState = Literal[
    "Free", "Starting", "GangWaiting", "Gated", "Quota", "Fragmented", "Stranded", "Tainted", "NodeUnusable"
]
State = HeldState | FreeState
HELD: tuple[HeldState, ...] = ("Busy", "Idle", "Unused", "Held")
"""Busy and Idle: utilization above and below the threshold; Unused: no living pod uses the claim; Held: unknown."""
MISSED: tuple[FreeState, ...] = (
    "Starting",
    "GangWaiting",
    "Gated",
    "Quota",
    "Fragmented",
    "Stranded",
    "Tainted",
    "NodeUnusable",
)
"""Free while compatible work waits, by reason."""


class UsageKey(NamedTuple):
    """The key of the ledger. `namespace` and `owner` are those of the holder, or of the work that waits.

    `word` is that of `haru.explain.card_counts`; empty where a history was written before it had words.
    """

    state: str
    namespace: str
    owner: str
    driver: str
    word: Word | Literal[""] = ""


class HoldingPod(NamedTuple):
    """A living pod that uses a claim. `node` is where it runs."""

    namespace: str
    name: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a card: `share` in thousandths, `device` if it is held, `utilization` in percent if it is known.

    `pods` are those that use what holds it. `word` is that of `haru.explain.card_counts`.
    """

    state: State
    share: int
    namespace: str = ""
    owner: str = ""
    device: str = ""
    utilization: float | None = None
    pods: tuple[HoldingPod, ...] = ()
    word: Word = "free"


@dataclass(frozen=True, slots=True)
class CardState:
    """A card and its parts, whose shares are 1000 together."""

    node: str
    driver: str
    pool: str
    card: str
    product: str
    parts: tuple[Part, ...]


def card_states(snapshot: Snapshot, options: Options, layouts: Iterable[PoolLayout] | None = None) -> list[CardState]:
    """List every card of the newest generation of each pool. `layouts` are those of the pools, if known."""
    look, pools = CardLook(snapshot, options), snapshot.devices.pools
    found = layouts if layouts is not None else [layout_of(pools[name]) for name in sorted(pools)]
    return [card for known in found for card in look.states(known)]


class CardLook:
    """Finds the states of cards in one snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        options: Options,
        reserved_for: Iterable[Obj] | None = None,
    ) -> None:
        """`reserved_for`: objects one of which places may be kept for; by default all that wait."""
        self._snapshot = snapshot
        self._waiting = WaitingWorkloads(snapshot, options)
        self._holders = _Holders(snapshot)
        self._partition = CardPartition(snapshot, options, reserved_for)

    @property
    def reserved(self) -> set[DeviceId]:
        """The devices that are kept for somebody."""
        return self._partition.reserved

    @property
    def waiting(self) -> Iterable[WaitingWorkload]:
        """The work that waits for devices."""
        return self._waiting

    def states(self, known: PoolLayout) -> list[CardState]:
        """The cards of a pool."""
        use = self._snapshot.allocated.use(known.pool.key)
        return [_card_state(card, known, use, self._waiting, self._holders, self._partition) for card in known.cards]


def counts_of(cards: Iterable[CardState]) -> CardCounts:
    """Sum the shares by word."""
    return CardCounts.of(words(cards))


def words(cards: Iterable[CardState]) -> Counter[Word]:
    """Sum the shares by word, as numbers that can be added and taken away."""
    found: Counter[Word] = Counter()
    for card in cards:
        for part in card.parts:
            found[part.word] += part.share
    return found


def amounts(cards: Iterable[CardState]) -> Counter[UsageKey]:
    """Sum the shares by key, in thousandths of cards."""
    found: Counter[UsageKey] = Counter()
    for card in cards:
        for part in card.parts:
            found[UsageKey(part.state, part.namespace, part.owner, card.driver, part.word)] += part.share
    return found


def _card_state(
    card: Layout,
    known: PoolLayout,
    use: PoolUse,
    waiting: WaitingWorkloads,
    holders: _Holders,
    partition: CardPartition,
) -> CardState:
    key = known.pool.key
    parts = [
        holders.part(claim, DeviceId(key.driver, key.pool, device.name), share)
        for claim, device, share in held_parts(card, use)
    ]
    rest = WHOLE - sum(part.share for part in parts)
    if rest:
        missed, word = missed_use(waiting, str(key), card.devices), partition.rest_word(card, known, use)
        free = Part("Free", rest, word=word)
        parts.append(
            free
            if missed is None
            else replace(free, state=missed.state, namespace=missed.namespace, owner=missed.owner)
        )
    return CardState(card.node, key.driver, key.pool, card.name, card.product, tuple(parts))


class _Holders:
    """Looks up the holders of claims and their utilization, each once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._users: dict[str, tuple[list[PodInfo], str, tuple[HoldingPod, ...]]] = {}

    def part(self, claim: str, device: DeviceId, share: int) -> Part:
        """Make the part that a claim holds."""
        users, owner, pods = self._of(claim)
        namespace = claim.partition("/")[0]
        percent = utilization(self._snapshot, claim, users, device)
        state: HeldState = "Held"
        if percent is not None:
            state = "Busy" if percent >= IDLE_BELOW_PERCENT else "Idle"
        elif not users:
            state = "Unused"
        return Part(state, share, namespace, owner, device.device, percent, pods, held_word(percent))

    def _of(self, path: str) -> tuple[list[PodInfo], str, tuple[HoldingPod, ...]]:
        found = self._users.get(path)
        if found is None:
            claim = self._snapshot.claims.get(path)
            users = consumers(self._snapshot, claim) if claim is not None else []
            names = sorted({workload_of(pod) for pod in users})
            pods = tuple(HoldingPod(*pod.key, pod.node) for pod in users)
            found = self._users[path] = users, ", ".join(names) or f"resourceclaim/{path.partition('/')[2]}", pods
        return found
