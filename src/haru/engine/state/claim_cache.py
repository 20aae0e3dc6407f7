"""The claims of the cluster with their indexes: as the watch shows them, or as the scheduler left them until it does.

An attempt (a write under way) counts beside what the API took last: when it fails that counts again, though the watch
may still show what was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from haru.engine.dra.allocated_state import AllocatedState
from haru.engine.dra.extended_resources import extended_resource_claim_owners
from haru.engine.state.cow_map import CowMap, FrozenMap
from haru.engine.state.decision import namespaced_name
from haru.engine.state.pending_reservations import PendingReservations
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.reserved_for import (
    PODS,
    OwnedPods,
    ReservedFor,
    WorkloadOwners,
    consumer_keys,
    pinned_node,
)
from haru.engine.state.snapshot import ClaimIndex
from haru.kube.meta import Obj, allocation_of

_NO_CLAIMS: Final[frozenset[str]] = frozenset()
_INDEXED: Final = ("uid", "annotations", "ownerReferences")
"""What indexes read of a claim's metadata, but for its name."""


@dataclass(eq=False, slots=True)
class AssumedClaim:
    """A claim: `written` once the API has taken it; `before` is what it took before that."""

    obj: Obj
    written: bool
    before: Obj | None = None

    def is_shown_by(self, live: Obj | None) -> bool:
        """Return whether the watch shows it."""
        if live is None:
            return False
        if live["metadata"].get("uid") != self.obj["metadata"].get("uid"):
            return True
        if self.written and _revision(self.obj):
            return _revision(live) >= _revision(self.obj)
        # An attempt carries the revision of the claim that it began with: older news of an allocation is not about it.
        return allocation_of(live) is not None and not 0 < _revision(live) <= _revision(self.obj)


class AssumedClaims:
    """The claims that are assumed to be other than the watch shows them, by path."""

    def __init__(self) -> None:
        self._known: dict[str, AssumedClaim] = {}

    def get(self, path: str) -> AssumedClaim | None:
        """Return the assumption about a claim, if there is one."""
        return self._known.get(path)

    def __iter__(self) -> Iterator[AssumedClaim]:
        return iter(self._known.values())

    def put(self, path: str, claim: Obj, live: Obj | None, *, written: bool) -> None:
        """Assume a claim; what the API has taken is known already where the watch shows it, or something younger."""
        if written and live is not None and _revision(live) >= _revision(claim) > 0:
            self._known.pop(path, None)
            return
        known, before = self._known.get(path), None
        if known is not None and not written:
            before = known.obj if known.written else known.before
        self._known[path] = AssumedClaim(claim, written, before)

    def take_back(self, path: str, assumed: Obj | None, live: Obj | None) -> bool:
        """End an assumption (only the given one) and return whether there was one. What the API took before counts."""
        current = self._known.get(path)
        if current is None or (assumed is not None and current.obj is not assumed):
            return False
        del self._known[path]
        if current.before is not None and live is not None:
            taken = AssumedClaim(current.before, written=True)
            if not taken.is_shown_by(live):
                self._known[path] = taken
        return True

    def shown(self, path: str, live: Obj) -> None:
        """The watch shows a claim."""
        known = self._known.get(path)
        if known is not None and known.is_shown_by(live):
            del self._known[path]

    def drop(self, path: str) -> None:
        """The claim is gone."""
        self._known.pop(path, None)


def _revision(obj: Obj) -> int:
    text = obj["metadata"].get("resourceVersion") or "0"
    return int(text) if text.isdigit() else 0


class ClaimCache:
    """The claims as decisions see them, what they allocate, and their indexes; each change costs one claim.

    `assumed` and `pending_reservations` are what the watch has not shown yet; `allocated` is what is taken. `consumers`
    are the pods and PodGroups that exist now; `taken_changed` is told each allocation that ends or begins,
    `reservations_changed` the pods for which an allocated claim is, or is no longer, reserved.
    """

    def __init__(
        self,
        consumers: ReservedFor,
        taken_changed: Callable[[Any, Any], None],
        reservations_changed: Callable[[str], None],
    ) -> None:
        self._consumers = consumers
        self._taken_changed = taken_changed
        self._reservations_changed = reservations_changed
        self._live: dict[str, Obj] = {}
        self.assumed = AssumedClaims()
        self.pending_reservations = PendingReservations()
        self.claims: CowMap[Obj] = CowMap()
        self._in_flight: CowMap[Obj] = CowMap()
        self._by_pod: CowMap[frozenset[str]] = CowMap()
        self._by_consumer: CowMap[frozenset[str]] = CowMap()
        self._orphaned: CowMap[Obj] = CowMap()
        self._owners = WorkloadOwners()
        self.allocated = AllocatedState.from_claims(())
        nobodys = OwnedPods(FrozenMap(), FrozenMap(), FrozenMap())
        self.live_index = ClaimIndex(self._by_pod, self._by_consumer, self._orphaned, self._in_flight, nobodys)
        """The indexes as they are whenever they are read, without the owners."""

    def freeze(self, pods: FrozenMap[PodInfo]) -> tuple[FrozenMap[Obj], AllocatedState, ClaimIndex]:
        """Return the claims, what they allocate and their indexes now, as immutable values."""
        claims = self.claims.freeze()
        index = ClaimIndex(
            self._by_pod.freeze(),
            self._by_consumer.freeze(),
            self._orphaned.freeze(),
            self._in_flight.freeze(),
            self._owners.freeze(claims, pods),
        )
        return claims, self.allocated, index

    def apply(self, obj: Obj) -> None:
        """Add or replace a claim that the watch shows."""
        path = namespaced_name(obj)
        self._live[path] = obj
        self.assumed.shown(path, obj)
        self._update(path)

    def remove(self, obj: Obj) -> None:
        """Drop a claim that is gone."""
        path = namespaced_name(obj)
        self._live.pop(path, None)
        self.assumed.drop(path)
        self._update(path)

    def assume(self, claim: Obj, *, written: bool) -> None:
        """Count a claim as the scheduler writes it; `written` once the API has taken it."""
        path = namespaced_name(claim)
        self.assumed.put(path, claim, self._live.get(path), written=written)
        self._update(path)

    def forget(self, path: str, assumed: Obj | None) -> bool:
        """End an assumption (only the given one); return whether there was one."""
        if not self.assumed.take_back(path, assumed, self._live.get(path)):
            return False
        self._update(path)
        return True

    def reserve(self, pod: str, joined: Mapping[str, Obj]) -> None:
        """Count the entries that an assumed pod will have in `reservedFor` of allocated claims, by their paths."""
        for path in self.pending_reservations.add(pod, joined):
            self._update(path)

    def unreserve(self, pod: str) -> None:
        """Drop the entries that are pending for a pod."""
        for path in self.pending_reservations.drop(pod):
            self._update(path)

    def user_changed(self, pod: str) -> None:
        """Note that a pod changed, but not whether it exists or has ended."""
        self._owners.changed(self._used_by("pods", pod))

    def consumer_changed(self, resource: str, path: str) -> None:
        """Note that a pod or PodGroup came, went or ended, or lost members by eviction."""
        claims = self._used_by(resource, path)
        self._owners.changed(claims)
        for claim in claims:
            self._update_orphaned(claim)

    def reserved_node(self, pod: PodInfo) -> str:
        """The only node where a pod can use a claim that is reserved for it; "" if there is none, or many."""
        for path in sorted(self._used_by("pods", pod.key.path)):
            status = self.claims[path]["status"]
            reserved = any(entry.get("uid") == pod.key.uid for entry in status.get("reservedFor") or ())
            if reserved and (node := pinned_node(status["allocation"])):
                return node
        return ""

    def _used_by(self, resource: str, path: str) -> frozenset[str]:
        return self._by_consumer.get(f"{resource}/{path}") or _NO_CLAIMS

    def _update(self, path: str) -> None:
        assumed = self.assumed.get(path)
        shown = assumed.obj if assumed is not None else self._live.get(path)
        effective = self.pending_reservations.reserved(path, shown)
        before = self.claims.get(path)
        _set(self._in_flight, path, assumed.obj if assumed is not None and not assumed.written else None)
        if effective is before:  # what the watch shows is older than what is being written
            return
        _set(self.claims, path, effective)
        if effective is not None and before is not None and _confirms(effective, before):
            if path in self._orphaned:
                self._orphaned[path] = effective
            return
        _index(self._by_pod, path, extended_resource_claim_owners(before), extended_resource_claim_owners(effective))
        were, are = consumer_keys(before), consumer_keys(effective)
        _index(self._by_consumer, path, were, are)
        self._owners.changed((path,))
        self._update_orphaned(path)
        old, new = allocation_of(before), allocation_of(effective)
        if old is not new and not _takes_the_same(old, new):
            if old is not None:
                self.allocated = self.allocated.without(path)
            if new is not None:
                self.allocated = self.allocated.with_allocation(path, new)
            self._taken_changed(old, new)
        else:
            old = new
        for key in were | are if old is not new or were != are else ():
            resource, _, name = key.partition("/")
            if resource == PODS:
                self._reservations_changed(name)

    def _update_orphaned(self, path: str) -> None:
        claim = self.claims.get(path)
        _set(self._orphaned, path, claim if claim is not None and self._consumers.are_gone(claim) else None)


def _confirms(claim: Obj, before: Obj) -> bool:
    """Return whether an allocated claim has all that is indexed as it was, as one that was assumed and its answer."""
    new, old = claim["metadata"], before["metadata"]
    if [*map(new.get, _INDEXED)] != [*map(old.get, _INDEXED)]:
        return False
    status, known = claim.get("status") or {}, before.get("status") or {}
    same = _takes_the_same(known.get("allocation"), status.get("allocation"))
    return same and status.get("reservedFor") == known.get("reservedFor")


def _takes_the_same(old: Obj | None, new: Obj | None) -> bool:
    """Return whether two allocations differ at most in when they were made, as one that was assumed and its answer."""
    if old is None or new is None or old.get("devices") != new.get("devices"):
        return False
    return bool(old.get("nodeSelector") == new.get("nodeSelector"))


def _set(known: CowMap[Obj], path: str, value: Obj | None) -> None:
    if value is None:
        known.pop(path, None)
    else:
        known[path] = value


def _index(known: CowMap[frozenset[str]], path: str, before: frozenset[str], after: frozenset[str]) -> None:
    """Put a claim under other keys than before."""
    for key in before - after:
        rest = known[key] - {path}
        if rest:
            known[key] = rest
        else:
            del known[key]
    for key in after - before:
        known[key] = (known.get(key) or frozenset()) | {path}
