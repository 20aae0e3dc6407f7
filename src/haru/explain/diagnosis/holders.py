"""Who holds devices: the workloads behind claims, those with the most devices by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest, nsmallest
from itertools import chain

from haru.engine import Snapshot
from haru.engine.state import FrozenMap, PodInfo, Workload, used_for, workload_of
from haru.explain.explanation import Holder
from haru.explain.hypothesis import consumers
from haru.explain.utilization import idle_devices
from haru.kube.meta import Obj, get_condition

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


def holders_of(snapshot: Snapshot, held: _Held) -> _Told:
    """The workloads behind claims, and how many more workloads with how many devices there are.

    `held` says how many devices are held by which claims (together). Those with the most devices are told, in order.
    """
    memory = snapshot.decision_cache.get_or_compute("holders", None, _Memory)
    known = memory.told(snapshot, held)
    if known is not None:
        return known
    owners, lasting = _owners(snapshot, dict.fromkeys(chain.from_iterable(held)))
    devices: dict[Workload, int] = {}
    for paths, count in held.items():
        mine = owners[paths[0]] if len(paths) == 1 else dict.fromkeys(chain.from_iterable(owners[p] for p in paths))
        for key in mine:
            devices[key] = devices.get(key, 0) + count
    least = nlargest(MOST_HOLDERS, devices.values())[-1] if devices else 0
    told = sorted(key for key, count in devices.items() if count > least)
    told += nsmallest(MOST_HOLDERS - len(told), [key for key, count in devices.items() if count == least])
    told.sort(key=lambda key: (-devices[key], key))
    claims = _claims_by_owner(owners, told)
    unnamed = len(devices) - len(told), sum(devices.values()) - sum(devices[key] for key in told)
    answer = tuple(_holder(snapshot, key, devices[key], claims[key]) for key in told), unnamed
    if lasting:
        memory.tell(held, answer)
    return answer


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


def _claims_by_owner(owners: _Owners, told: Sequence[Workload]) -> Mapping[Workload, Sequence[str]]:
    """The claims of some workloads."""
    found: dict[Workload, list[str]] = {key: [] for key in told}
    for path, keys in owners.items():
        for key in keys:
            if key in found:
                found[key].append(path)
    return found


def _holder(snapshot: Snapshot, key: Workload, devices: int, paths: Sequence[str]) -> Holder:
    users = chain.from_iterable(_users(snapshot, path) for path in paths)
    pods = {pod.key.path: pod for pod in users if (pod.key.namespace, workload_of(pod)) == key}
    since = min((time for pod in pods.values() if (time := since_of(pod))), default="")
    priority = max((pod.priority for pod in pods.values()), default=None)
    claims = tuple(sorted(paths))
    idle = idle_devices(snapshot, claims, list(pods.values()))
    return Holder(key[1], key[0], devices, tuple(sorted(pods)), claims, priority, since, idle)


def allocated_since(claim: Obj) -> str:
    """When a claim was allocated, where the API says so."""
    return str(((claim.get("status") or {}).get("allocation") or {}).get("allocationTimestamp") or "")
