"""Which claims are prepared on simulated nodes, and for which pods.

Pure: the fleet brings the objects. A claim is prepared once, however many pods use it, and unprepared with the last of
them. Source: kubelet `cm/dra`, as behaviour (KEP-4381, KEP-5004, KEP-5729).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from haru.kube.claim_uses import Use, UsedDevice
from haru.kube.meta import Obj, allocation_of, annotations_of, key_of, name_of, uid_of
from haru.kube.pod_claims import NotPrepared, old_claim_exists

FAIL_PREPARATION: Final = "simulated.haru.dev/fail-preparation"
_ONE_DEVICE: Final = re.compile(r"([a-z0-9][a-z0-9.-]*)=(.*)")


def preparation_problem(claim: Obj, failing_devices: str) -> str:
    """What the driver answers to NodePrepareResources for a claim, as kubelets tell it; empty if it succeeds.

    The annotation of the claim, or of its node (`failing_devices`), is a message, or `DEVICE=MESSAGE` several times,
    separated by commas.
    """
    devices = {device.device for device in _devices(claim)}
    for text in (annotations_of(claim).get(FAIL_PREPARATION) or "", failing_devices):
        said = _answer(text, devices)
        if said:
            return f"prepare dynamic resources: NodePrepareResources failed for ResourceClaim {name_of(claim)}: {said}"
    return ""


def _answer(text: str, devices: Collection[str]) -> str:
    entries = [_ONE_DEVICE.fullmatch(entry.strip()) for entry in text.split(",")]
    if all(entries):
        return next((f"{one[1]}: {one[2]}" for one in entries if one is not None and one[1] in devices), "")
    return "the devices cannot be prepared" if text == "true" else "" if text == "false" else text


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

    def is_prepared(self, node: str, claim: Obj) -> bool:
        """Whether a pod of the node uses the claim already."""
        return (node, key_of(claim)) in self._claims

    def devices_of(self, node: str, use: Use) -> list[UsedDevice]:
        """What a container of a pod on the node uses, as far as it is prepared."""
        prepared = self._claims.get((node, use.key))
        every = prepared.devices if prepared is not None else ()
        return [UsedDevice(d.driver, d.pool, d.device) for d in every if use.request in ("", d.request)]

    def prepare(self, node: str, claim: Obj, pod_uid: str) -> bool:
        """Let the pod use the claim; whether it had to be prepared. NotPrepared if an older claim has its name."""
        key = key_of(claim)
        prepared = self._claims.get((node, key))
        if prepared is not None and prepared.uid != uid_of(claim):
            raise NotPrepared(old_claim_exists(name_of(claim), prepared.uid))
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
    allocation = allocation_of(claim) or {}
    return tuple(
        Device(r["driver"], r["pool"], r["device"], str(r["request"]).partition("/")[0], r.get("shareID", ""))
        for r in (allocation.get("devices") or {}).get("results") or ()
    )
