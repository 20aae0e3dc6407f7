"""What is taken: devices, shares and consumed capacity, derived from allocated claims, with who holds each.

An `AllocatedState` never changes; `with_allocation` and `without` give new ones that share all but what is touched,
so that a gang can assume hundreds of allocations in one cycle and drop them again. Results with admin access count
for nothing.
Source: KEP-4381; shares and capacity KEP-5075; admin access KEP-5018.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, NamedTuple
from weakref import ref

from haru.engine.dra.bucketed_map import Bucketed, Seen
from haru.engine.dra.model.model import DeviceId, PoolKey
from haru.engine.dra.model.quantities import amount
from haru.engine.state.cow_map import Computed
from haru.kube.meta import Obj, allocation_of


@dataclass(frozen=True, slots=True)
class Share:
    """One share of a device that allows several allocations: who holds it and what it consumes (billionths)."""

    share_id: str
    holder: str
    consumed: tuple[tuple[str, int], ...]


@dataclass(slots=True)
class PoolUse:
    """What is taken of one pool: whole devices by name with their holders, and shares by device name. Never changed.

    Where several `states` must be respected (now, and once evicted pods are gone), what any of them takes is taken.
    """

    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shares: Mapping[str, tuple[Share, ...]] = field(default_factory=dict)
    states: tuple[PoolUse, ...] = ()

    @staticmethod
    def of_all(*uses: PoolUse) -> PoolUse:
        """What must be seen as taken where all states are to be respected; the first that takes a device names it."""
        states = tuple(state for use in uses for state in use.states or (use,))
        devices: dict[str, tuple[str, ...]] = {}
        shares: dict[str, tuple[Share, ...]] = {}
        for state in reversed(states):
            devices |= state.devices
            shares |= state.shares
        return PoolUse(devices, shares, states)

    def consumed(self, device: str) -> dict[str, int]:
        """The capacity of a device that its shares consume together."""
        total: dict[str, int] = {}
        if self.states:
            for state in self.states:
                for name, value in state.consumed(device).items():
                    total[name] = max(value, total.get(name, 0))
            return total
        for share in self.shares.get(device, ()):
            for name, value in share.consumed:
                total[name] = total.get(name, 0) + value
        return total

    def holders(self, device: str) -> tuple[str, ...]:
        """The claims that hold a device or shares of it."""
        return self.devices.get(device, ()) + tuple(s.holder for s in self.shares.get(device, ()))

    def without_holders(self, claims: Collection[str]) -> PoolUse:
        """What is taken once these claims hold nothing of the pool."""
        if self.states:
            return PoolUse.of_all(*(state.without_holders(claims) for state in self.states))
        if not self.shares and all(map(claims.__contains__, chain.from_iterable(self.devices.values()))):
            return EMPTY_USE
        devices: dict[str, tuple[str, ...]] = {}
        for name, holders in self.devices.items():
            if len(holders) == 1:
                if holders[0] not in claims:
                    devices[name] = holders
            elif left := tuple([holder for holder in holders if holder not in claims]):
                devices[name] = left
        if not self.shares:
            return PoolUse(devices)
        shares = {name: tuple([s for s in held if s.holder not in claims]) for name, held in self.shares.items()}
        return PoolUse(devices, {name: held for name, held in shares.items() if held})

    def names(self) -> frozenset[str]:
        """The devices of which anything is taken: those count against the pool's counters."""
        return frozenset(self.devices) | frozenset(self.shares)

    def shared_throughout(self, device: str) -> bool:
        """Whether a device has shares in every state."""
        return all(device in state.shares for state in self.states or (self,))

    def charged(self) -> tuple[frozenset[str], ...]:
        """The same for each state. A device that has shares in one counts in all: another share is not charged."""
        shared = frozenset(self.shares)
        return tuple(frozenset(state.devices) | shared for state in self.states or (self,))


EMPTY_USE = PoolUse()
_POOL_OF, _NAME_OF = itemgetter(0, 1), itemgetter(2)
_NAMELESS = ("",)
"""The holders of a device of which nothing but that it is taken is known."""


class _Taken(NamedTuple):
    """One result of an allocation, reduced to what it takes."""

    device: DeviceId
    share_id: str | None
    consumed: tuple[tuple[str, int], ...]


def _amounts(consumed: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, amount(value)) for name, value in consumed.items())) if consumed else ()


def _taken(allocation: Obj) -> tuple[_Taken, ...]:
    found = []
    for result in (allocation.get("devices") or {}).get("results") or ():
        if result.get("adminAccess"):
            continue
        device = DeviceId(result["driver"], result["pool"], result["device"])
        consumed = result.get("consumedCapacity")
        found.append(_Taken(device, result.get("shareID"), _amounts(consumed) if consumed else ()))
    return tuple(found)


def _with(use: PoolUse, holder: str, taken: Sequence[_Taken]) -> PoolUse:
    if use.states:
        return PoolUse.of_all(*(_with(state, holder, taken) for state in use.states))
    devices, shares = dict(use.devices), dict(use.shares)
    for item in taken:
        name = item.device.device
        if item.share_id is None:
            devices[name] = (*devices.get(name, ()), holder)
        else:
            shares[name] = (*shares.get(name, ()), Share(item.share_id, holder, item.consumed))
    return PoolUse(devices, shares)


def _by_pool(taken: Iterable[_Taken]) -> dict[PoolKey, list[_Taken]]:
    pools: dict[PoolKey, list[_Taken]] = {}
    last: tuple[str, str] | None = None
    items: list[_Taken] = []
    for item in taken:
        driver, pool, _ = item.device
        if last != (driver, pool):
            last = driver, pool
            items = pools.setdefault(PoolKey(driver, pool), [])
        items.append(item)
    return pools


def _recorded(
    allocations: Iterable[tuple[str, Obj]], use_of: Callable[[PoolKey], PoolUse]
) -> tuple[dict[PoolKey, PoolUse], dict[str, tuple[_Taken, ...]]]:
    """What is taken of the pools once claims hold these allocations, and what each holds."""
    pools: dict[PoolKey, PoolUse] = {}
    held: dict[str, tuple[_Taken, ...]] = {}
    for claim, allocation in allocations:
        taken = held[claim] = _taken(allocation)
        for pool, items in _by_pool(taken).items():
            pools[pool] = _with(pools.get(pool) or use_of(pool), claim, items)
    return pools, held


_Pools = Bucketed[PoolKey, PoolUse] | Seen[PoolKey, PoolUse]
_Claims = Bucketed[str, tuple[_Taken, ...]] | Seen[str, tuple[_Taken, ...]]
_Change = tuple[ref[_Pools], frozenset[PoolKey]]
_FEW_CHANGES = 8


class AllocatedState:
    """All that is taken, by pool, and what each claim holds. Immutable."""

    __slots__ = ("_changes", "_claims", "_compared", "_pools")

    def __init__(
        self,
        pools: _Pools | None = None,
        claims: _Claims | None = None,
    ) -> None:
        self._pools: _Pools = pools or Bucketed()
        self._claims: _Claims = claims or Bucketed()
        self._changes: tuple[_Change, ...] = ()
        """The pools of the states that this one was made of, the last first, and which pools changed since each."""
        self._compared: _Change | None = None
        """The same of the state that it was compared with last: several indexes follow the same states.

        None of them is kept: it may be looked up in a whole snapshot, whose own state was compared with another, and so
        on.
        """

    @classmethod
    def from_claims(cls, claims: Iterable[Obj]) -> AllocatedState:
        """The state that allocated claims amount to; claims without allocation are passed over."""
        allocations = ((claim, allocation_of(claim)) for claim in claims)
        held_by = ((claim_key(claim), allocation) for claim, allocation in allocations if allocation)
        pools, held = _recorded(held_by, lambda pool: EMPTY_USE)
        return cls(Bucketed.of(pools), Bucketed.of(held))

    @classmethod
    def of(
        cls,
        devices: Iterable[tuple[str, str, str]] = (),
        shared: Iterable[tuple[DeviceId, str]] = (),
        capacity: Mapping[DeviceId, Mapping[str, Any]] | None = None,
    ) -> AllocatedState:
        """A state given as bare facts, without holders: devices, share IDs, and capacity consumed per device."""
        left = dict(capacity or {})
        taken = []
        for device, share_id in shared:
            consumed = left.pop(DeviceId(*device), {})
            taken.append(_Taken(DeviceId(*device), share_id, _amounts(consumed)))
        taken += [_Taken(DeviceId(*device), "", _amounts(consumed)) for device, consumed in left.items()]
        whole: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {}
        for key, group in groupby(devices, _POOL_OF):
            whole.setdefault(key, {}).update(dict.fromkeys(map(_NAME_OF, group), _NAMELESS))
        pools = {PoolKey(*key): PoolUse(names) for key, names in whole.items()}
        for key, items in _by_pool(taken).items():
            pools[key] = _with(pools.get(key, EMPTY_USE), "", items)
        return cls(Bucketed.of(pools))

    @classmethod
    def of_uses(cls, uses: Mapping[PoolKey, PoolUse]) -> AllocatedState:
        """The state in which this is taken of some pools and nothing of others; what claims hold is not told."""
        return cls(Bucketed.of(uses))

    def use(self, pool: PoolKey) -> PoolUse:
        """What is taken of a pool."""
        return self._pools.get(pool) or EMPTY_USE

    @property
    def is_looked_up(self) -> bool:
        """Whether what is taken of a pool is looked up when it is asked for, so that states are slow to compare."""
        return isinstance(self._pools, Seen)

    def changed(self, before: AllocatedState) -> set[PoolKey]:
        """The pools of which something else is taken than before."""
        found: set[PoolKey] = set()
        for origin, pools in self._changes:
            if not found.isdisjoint(pools):
                break  # one that changed twice may be what it was
            found |= pools
            if origin() is before._pools:
                return found
        if self._compared is not None and self._compared[0]() is before._pools:
            return set(self._compared[1])
        found = self._pools.difference(before._pools)
        self._compared = ref(before._pools), frozenset(found)
        return found

    def _changed_to(
        self, pools: Mapping[PoolKey, PoolUse | None], claims: Mapping[str, tuple[_Taken, ...] | None]
    ) -> AllocatedState:
        """The state that differs from this one in the use of these pools and in what these claims hold."""
        return self._made(pools, self._claims.put(claims) if claims else self._claims)

    def _made(self, pools: Mapping[PoolKey, PoolUse | None], claims: _Claims) -> AllocatedState:
        state = AllocatedState(self._pools.put(pools), claims)
        state._changes = ((ref(self._pools), frozenset(pools)), *self._changes[: _FEW_CHANGES - 1])
        return state

    def with_allocation(self, claim: str, allocation: Obj) -> AllocatedState:
        """The state in which a claim holds this allocation, in place of what it held."""
        if self._claims.get(claim) is not None:
            return self.without(claim).with_allocation(claim, allocation)
        taken = _taken(allocation)
        changed = {pool: _with(self.use(pool), claim, items) for pool, items in _by_pool(taken).items()}
        return self._changed_to(changed, {claim: taken})

    def with_allocations(self, allocations: Sequence[tuple[str, Obj]]) -> AllocatedState:
        """The state in which claims, each named once, hold these allocations, in place of what they held."""
        base = self.freed(claim for claim, _ in allocations)
        pools, held = _recorded(allocations, base.use)
        return base._changed_to(pools, held)

    def without_device(self, device: DeviceId) -> AllocatedState:
        """The state in which nobody holds the device as a whole."""
        key = PoolKey(device.driver, device.pool)
        use = self.use(key)
        devices = {name: holders for name, holders in use.devices.items() if name != device.device}
        left = PoolUse(devices, use.shares) if devices or use.shares else None
        return self._changed_to({key: left}, {})

    def without(self, claim: str) -> AllocatedState:
        """The state in which a claim holds nothing."""
        taken = self._claims.get(claim)
        return self if taken is None else self._changed_to(self._pools_without({claim: taken}), {claim: None})

    def freed(self, claims: Iterable[str]) -> AllocatedState:
        """The state in which none of these claims holds anything."""
        held = {claim: taken for claim in claims if (taken := self._claims.get(claim)) is not None}
        if not held:
            return self
        changed = self._pools_without(held)
        gone: dict[str, tuple[_Taken, ...] | None] = dict.fromkeys(held)
        # Only a state that is tried out has claims freed: hardly any of them is looked up in it.
        kept = self._claims.put(gone) if isinstance(self._claims, Seen) else Seen(self._claims, gone)
        return self._made(changed, kept)

    def _pools_without(self, held: Mapping[str, Sequence[_Taken]]) -> dict[PoolKey, PoolUse | None]:
        """What is taken of the pools once these claims hold nothing of what they hold; None if that is nothing."""
        changed: dict[PoolKey, PoolUse | None] = {}
        for pair in dict.fromkeys([item.device[:2] for taken in held.values() for item in taken]):
            pool = PoolKey(*pair)
            use = self.use(pool).without_holders(held.keys())
            changed[pool] = use if use.devices or use.shares else None
        return changed

    def seen_through(self, use_of: Callable[[PoolKey], PoolUse], is_free: Callable[[str], bool]) -> AllocatedState:
        """The state in which this is taken of each pool and some claims hold nothing, looked up when asked for."""
        pools = Computed(lambda: (pool for pool, _ in self._pools.items()), use_of)
        held = Computed(lambda: (claim for claim, _ in self._claims.items()), lambda claim: self._held(claim, is_free))
        return AllocatedState(Seen(pools), Seen(held))

    def _held(self, claim: str, is_free: Callable[[str], bool]) -> tuple[_Taken, ...]:
        return () if is_free(claim) else self._claims.get(claim) or ()

    def and_also(self, other: AllocatedState) -> AllocatedState:
        """The state for who must respect this one and the other: what either takes is taken, counters by the worse."""
        changed = {
            pool: PoolUse.of_all(self.use(pool), other.use(pool)) for pool in self._pools.difference(other._pools)
        }
        return AllocatedState(self._pools.put(changed), self._claims) if changed else self

    def holders(self, device: DeviceId) -> tuple[str, ...]:
        """The claims that hold a device or shares of it."""
        return self.use(PoolKey(device.driver, device.pool)).holders(device.device)

    def held_devices(self) -> set[DeviceId]:
        """Every device that is taken whole or in shares."""
        return {DeviceId(*pool, name) for pool, use in self._pools.items() for name in use.names()}

    @property
    def devices(self) -> dict[DeviceId, str]:
        """Every device that is taken whole, with its holder."""
        return {
            DeviceId(pool.driver, pool.pool, name): holders[0]
            for pool, use in self._pools.items()
            for name, holders in use.devices.items()
        }


def uses_with(uses: Mapping[PoolKey, PoolUse], allocations: Sequence[tuple[str, Obj]]) -> Mapping[PoolKey, PoolUse]:
    """What is taken of some pools once claims that hold nothing hold these allocations of them."""
    return {**uses, **_recorded(allocations, uses.__getitem__)[0]}


def claim_key(claim: Obj) -> str:
    """How a claim is named: `namespace/name`, or the name alone when it has no namespace."""
    metadata = claim.get("metadata") or {}
    namespace, name = metadata.get("namespace") or "", metadata.get("name") or ""
    return f"{namespace}/{name}" if namespace else name
