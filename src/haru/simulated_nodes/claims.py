"""Which claims are prepared on simulated nodes, and for which pods.

Pure: the fleet brings the objects. A claim is prepared once, however many pods use it, and unprepared with the last of
them. Source: kubelet `cm/dra`, as behaviour (KEP-4381, KEP-5004, KEP-5729).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from haru.kube.meta import Obj, key_of, uid_of
from haru.kube.pod_claims import NotPrepared


class Device(NamedTuple):
    """A device handed to the pods of a claim."""

    driver: str
    pool: str
    device: str
    request: str
    share_id: str


@dataclass(slots=True)
class Prepared:
    """A prepared claim."""

    key: str
    uid: str
    devices: tuple[Device, ...]
    pods: set[str] = field(default_factory=set)


class PreparedClaims:
    """The prepared claims of all nodes of a fleet: (node, claim) -> what was prepared, and for whom."""

    def __init__(self) -> None:
        self._claims: dict[tuple[str, str], Prepared] = {}
        self._of_pod: dict[str, set[tuple[str, str]]] = {}

    def __len__(self) -> int:
        return len(self._claims)

    def on_node(self, node: str) -> list[Prepared]:
        """What is prepared on a node."""
        return [prepared for (where, _), prepared in self._claims.items() if where == node]

    def prepare(self, node: str, claim: Obj, pod_uid: str) -> bool:
        """Let the pod use the claim; whether it had to be prepared. NotPrepared if an older claim has its name."""
        key = key_of(claim)
        prepared = self._claims.get((node, key))
        if prepared is not None and prepared.uid != uid_of(claim):
            raise NotPrepared(f"ResourceClaim {key} is still prepared with the UID {prepared.uid} of an earlier claim")
        new = prepared is None
        if prepared is None:
            prepared = self._claims[(node, key)] = Prepared(key, uid_of(claim), _devices(claim))
        prepared.pods.add(pod_uid)
        self._of_pod.setdefault(pod_uid, set()).add((node, key))
        return new

    def release(self, pod_uid: str) -> list[Prepared]:
        """The pod has ended; the claims that nobody uses any more are unprepared."""
        unprepared = []
        for place in sorted(self._of_pod.pop(pod_uid, ())):
            prepared = self._claims[place]
            prepared.pods.discard(pod_uid)
            if not prepared.pods:
                unprepared.append(self._claims.pop(place))
        return unprepared


def _devices(claim: Obj) -> tuple[Device, ...]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return tuple(
        Device(r["driver"], r["pool"], r["device"], str(r["request"]).partition("/")[0], r.get("shareID", ""))
        for r in (allocation.get("devices") or {}).get("results") or ()
    )
