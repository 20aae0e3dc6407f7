"""Every card at one moment: which parts of it are held by whom, whether they idle, and why the rest is not used.

A card is one unit, in thousandths: a device by itself, or the partitions that exclude each other. What claims with
admin access see is held by nobody. States are a closed list (docs/reference/top.md), added to, never renamed.

How busy a device is, is known where somebody says so (`haru.explain.utilization`), and unknown everywhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from haru.accounting.missed_devices import Units, wanted_by
from haru.engine import Options, Snapshot
from haru.engine.dra import Device, PoolUse
from haru.engine.state import PodInfo, workload_of
from haru.explain.cards import Layout, PoolLayout, layout_of, share_consumed, share_of_card
from haru.explain.hypothesis import consumers
from haru.explain.utilization import IDLE_BELOW_PERCENT, utilization

WHOLE = 1000

HeldState = Literal["Busy", "Idle", "Unused", "Held"]
FreeState = Literal[
    "Free", "Starting", "GangWaiting", "Gated", "Quota", "Fragmented", "Stranded", "Tainted", "NodeUnusable"
]
State = HeldState | FreeState
HELD: tuple[HeldState, ...] = ("Busy", "Idle", "Unused", "Held")
"""Held: utilisation is known and above the threshold; known and below; no living pod uses the claim; unknown."""
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
"""Free while compatible work waits, by why."""


class Key(NamedTuple):
    """Under which time is added up. `namespace` and `owner` are of the holder, or of the work that waits."""

    state: str
    namespace: str
    owner: str
    driver: str


class HoldingPod(NamedTuple):
    """A living pod that uses a claim. `node` is where it runs."""

    namespace: str
    name: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a card: `share` in thousandths, `device` if it is held, `utilization` in percent if it is known.

    `pods` are those that use what holds it.
    """

    state: State
    share: int
    namespace: str = ""
    owner: str = ""
    device: str = ""
    utilization: float | None = None
    pods: tuple[HoldingPod, ...] = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """A card and its parts, whose shares are 1000 together."""

    node: str
    driver: str
    pool: str
    card: str
    product: str
    parts: tuple[Part, ...]


def standings(snapshot: Snapshot, options: Options, layouts: Iterable[PoolLayout] | None = None) -> list[Standing]:
    """Every card that the newest generation of a pool publishes. `layouts` are those of the pools, if known."""
    units = Units(snapshot, options)
    holders = _Holders(snapshot)
    pools = snapshot.devices.pools
    found = layouts if layouts is not None else [layout_of(pools[name]) for name in sorted(pools)]
    return [
        _standing(card, known, snapshot.allocated.use(known.pool.key), units, holders)
        for known in found
        for card in known.cards
    ]


def amounts(cards: Iterable[Standing]) -> Counter[Key]:
    """How many thousandths of cards there are under each key."""
    found: Counter[Key] = Counter()
    for card in cards:
        for part in card.parts:
            found[Key(part.state, part.namespace, part.owner, card.driver)] += part.share
    return found


def _standing(card: Layout, known: PoolLayout, use: PoolUse, units: Units, holders: _Holders) -> Standing:
    key = known.pool.key
    held = _held(card, key.driver, key.pool, use, holders)
    rest = WHOLE - sum(part.share for part in held)
    parts = list(held)
    if rest:
        wish = wanted_by(units, str(key), card.devices)
        parts.append(Part("Free", rest) if wish is None else Part(wish.state, rest, wish.namespace, wish.owner))
    return Standing(card.node, key.driver, key.pool, card.name, card.product, tuple(parts))


def _held(card: Layout, driver: str, pool: str, use: PoolUse, holders: _Holders) -> list[Part]:
    """What is held of a card; never more than the whole of it."""
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
    return [
        holders.part(claim, driver, pool, device.name, share)
        for share, (_, claim, device) in zip(shares, sizes, strict=True)
        if share
    ]


def fitted(shares: Sequence[int]) -> list[int]:
    """The shares, scaled down to the whole if they are more together."""
    total = sum(shares)
    if total <= WHOLE:
        return list(shares)
    scaled = [share * WHOLE // total for share in shares]
    lost = sorted(range(len(shares)), key=lambda n: (-(shares[n] * WHOLE % total), n))[: WHOLE - sum(scaled)]
    return [share + (number in lost) for number, share in enumerate(scaled)]


class _Holders:
    """Who holds claims, and how busy they are, each looked up once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._users: dict[str, tuple[list[PodInfo], str, tuple[HoldingPod, ...]]] = {}

    def part(self, claim: str, driver: str, pool: str, device: str, share: int) -> Part:
        """A part that a claim holds."""
        users, owner, pods = self._of(claim)
        namespace = claim.partition("/")[0]
        percent = utilization(self._snapshot, claim, users, driver, pool, device)
        state: HeldState = "Held"
        if percent is not None:
            state = "Busy" if percent >= IDLE_BELOW_PERCENT else "Idle"
        elif not users:
            state = "Unused"
        return Part(state, share, namespace, owner, device, percent, pods)

    def _of(self, path: str) -> tuple[list[PodInfo], str, tuple[HoldingPod, ...]]:
        found = self._users.get(path)
        if found is None:
            claim = self._snapshot.claims.get(path)
            users = consumers(self._snapshot, claim) if claim is not None else []
            names = sorted({workload_of(pod) for pod in users})
            pods = tuple(HoldingPod(*pod.key, pod.node) for pod in users)
            found = self._users[path] = users, ", ".join(names) or f"resourceclaim/{path.partition('/')[2]}", pods
        return found
