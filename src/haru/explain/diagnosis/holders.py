"""Who holds devices: the workloads behind claims, those with the most devices by name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nlargest, nsmallest
from itertools import chain

from haru.engine import Snapshot
from haru.engine.state import FrozenMap, PodInfo, Workload, used_for, workload_of
from haru.explain.explanation import Holder
from haru.explain.hypothesis import consumers
from haru.explain.utilization import idle_devices
from haru.kube.meta import Obj, allocation_of, get_condition

MOST_HOLDERS = 100
_MOST_TOLD = 8
_Held = Mapping[tuple[str, ...], int]
_Owners = Mapping[str, tuple[Workload, ...]]
_Told = tuple[tuple[Holder, ...], tuple[int, int]]


def since_of(pod: PodInfo) -> str:
    """When a pod got its place, as far as its status tells."""
    bound = get_condition(pod.obj, "PodScheduled")
    if bound is not None and bound.get("status") == "True" and bound.get("lastTransitionTime"):
        return str(bound["lastTransitionTime"])
    return str(pod.status.get("startTime") or pod.obj["metadata"].get("creationTimestamp") or "")


class _Memory:
    """What was told of the same holdings, as long as no claim is another's."""

    def __init__(self) -> None:
        self._owners: FrozenMap[tuple[Workload, ...] | None] | None = None
        self._told: list[tuple[_Held, _Told]] = []

    def told(self, snapshot: Snapshot, held: _Held) -> _Told | None:
        """What was told."""
        owners, self._owners = self._owners, snapshot.owners
        if owners is not self._owners or owners is None:
            self._told = []
        return next((found for known, found in self._told if known == held), None)

    def tell(self, held: _Held, found: _Told) -> None:
        """Keep what is told."""
        self._told = [*self._told[-_MOST_TOLD + 1 :], (dict(held), found)]


class HolderCount:
    """The devices and the claims of each workload, of holdings that change little from one question to the next."""

    def __init__(self) -> None:
        self._owners: FrozenMap[tuple[Workload, ...] | None] = FrozenMap()
        self._held: _Held = {}
        self.devices: dict[Workload, int] = {}
        self.claims: dict[Workload, set[str]] = {}

    def follow(self, owners: FrozenMap[tuple[Workload, ...] | None] | None, held: _Held) -> bool:
        """Take in what has changed; False where that does not tell: of shared devices, and of unknown owners."""
        if owners is None or any(len(paths) != 1 for paths in held):
            return False
        before, known = self._owners, self._held
        changed = {paths for paths, count in held.items() if known.get(paths) != count}
        changed.update((path,) for path in owners.difference(before) if (path,) in held)
        if any(owners.get(path) is None for (path,) in changed):
            return False
        for paths in changed.union(known.keys() - held.keys()):
            self._add(before.get(paths[0]), paths[0], -known.get(paths, 0))
            self._add(owners.get(paths[0]), paths[0], held.get(paths, 0))
        self._owners, self._held = owners, dict(held)
        return True

    def _add(self, owners: tuple[Workload, ...] | None, path: str, count: int) -> None:
        for key in owners if owners and count else ():
            self.devices[key] = self.devices.get(key, 0) + count
            claims = self.claims.setdefault(key, set())
            (claims.add if count > 0 else claims.discard)(path)
            if not self.devices[key]:
                del self.devices[key], self.claims[key]


def holders_of(snapshot: Snapshot, held: _Held, count: HolderCount | None = None) -> _Told:
    """The workloads behind claims, and how many more workloads with how many devices there are.

    `held` says how many devices are held by which claims (together). Those with the most devices are told, in order.
    `count` follows such holdings from one question to the next.
    """
    memory = snapshot.decision_cache.get_or_compute("holders", None, _Memory)
    known = memory.told(snapshot, held)
    if known is not None:
        return known
    followed = count is not None and count.follow(snapshot.owners, held)
    owners, lasting = ({}, True) if followed else _owners(snapshot, dict.fromkeys(chain.from_iterable(held)))
    devices = count.devices if count is not None and followed else _devices(held, owners)
    least = nlargest(MOST_HOLDERS, devices.values())[-1] if devices else 0
    told = sorted(key for key, count in devices.items() if count > least)
    told += nsmallest(MOST_HOLDERS - len(told), [key for key, count in devices.items() if count == least])
    told.sort(key=lambda key: (-devices[key], key))
    claims = count.claims if count is not None and followed else _claims_by_owner(owners, told)
    unnamed = len(devices) - len(told), sum(devices.values()) - sum(devices[key] for key in told)
    answer = tuple(_holder(snapshot, key, devices[key], claims[key]) for key in told), unnamed
    if lasting:
        memory.tell(held, answer)
    return answer


def _devices(held: _Held, owners: _Owners) -> dict[Workload, int]:
    """How many devices each workload holds."""
    devices: dict[Workload, int] = {}
    for paths, count in held.items():
        mine = owners[paths[0]] if len(paths) == 1 else dict.fromkeys(chain.from_iterable(owners[p] for p in paths))
        for key in mine:
            devices[key] = devices.get(key, 0) + count
    return devices


def _owners(snapshot: Snapshot, claims: Iterable[str]) -> tuple[_Owners, bool]:
    """Whose work claims are used for; whether that is known of all of them without looking."""
    known = snapshot.owners
    found: dict[str, tuple[Workload, ...] | None] = (
        dict(zip(claims, known.values_of(claims), strict=True)) if known is not None else dict.fromkeys(claims)
    )
    looked: dict[str, tuple[Workload, ...]] = {}
    for path, owners in found.items():
        looked[path] = used_for(path, _users(snapshot, path)) if owners is None else owners
    return looked, None not in found.values()


def _users(snapshot: Snapshot, path: str) -> Sequence[PodInfo]:
    claim = snapshot.claims.get(path)
    return consumers(snapshot, claim) if claim is not None else ()


def _claims_by_owner(owners: _Owners, told: Sequence[Workload]) -> Mapping[Workload, Collection[str]]:
    """The claims of some workloads."""
    found: dict[Workload, list[str]] = {key: [] for key in told}
    for path, keys in owners.items():
        for key in keys:
            if key in found:
                found[key].append(path)
    return found


def _holder(snapshot: Snapshot, key: Workload, devices: int, paths: Collection[str]) -> Holder:
    users = chain.from_iterable(_users(snapshot, path) for path in paths)
    pods = {pod.key.path: pod for pod in users if (pod.key.namespace, workload_of(pod)) == key}
    since = min((time for pod in pods.values() if (time := since_of(pod))), default="")
    priority = max((pod.priority for pod in pods.values()), default=None)
    claims = tuple(sorted(paths))
    idle = idle_devices(snapshot, claims, list(pods.values()))
    return Holder(key[1], key[0], devices, tuple(sorted(pods)), claims, priority, since, idle)


def allocated_since(claim: Obj) -> str:
    """When a claim was allocated, where the API says so."""
    return str((allocation_of(claim) or {}).get("allocationTimestamp") or "")
