"""Which claims are prepared on this node, for which pods, with which devices: the kubelet's claim info cache. Pure.

A claim is noted with its pod and its drivers before any driver is asked, and forgotten once all of them have given it
back. What is read back after a restart counts as not prepared: drivers are asked again, which costs them nothing.
Source: kubelet `cm/dra` (claiminfo, state), as behaviour; KEP-4381.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import orjson

from haru.kube.meta import Obj
from haru.kube.pod_claims import old_claim_exists
from haru.node.dra.errors import ClaimRefused

K = TypeVar("K", bound=Hashable)
DeviceKey = tuple[str, str, str]
"""Driver, pool, device."""


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """A device as its driver prepared it; without requests it is for all of them."""

    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi_ids: tuple[str, ...] = ()
    share_id: str = ""

    def serves(self, request: str) -> bool:
        """Whether a container that names this request (empty: all) gets the device."""
        return not request or not self.requests or request in self.requests


@dataclass(slots=True)
class ClaimInfo:
    """A claim on this node. A driver is in `drivers` as soon as it may have been called."""

    namespace: str
    name: str
    uid: str
    pods: set[str] = field(default_factory=set)
    drivers: dict[str, tuple[PreparedDevice, ...]] = field(default_factory=dict)
    is_prepared: bool = False

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class ClaimInfos:
    """The claims of this node by key. Nothing here is kept: whoever changes it writes `told()` down.

    A claim is changed here alone, so that each change costs what the claim does, however many others there are.
    """

    def __init__(self, told: Obj | None = None) -> None:
        self._infos: dict[str, ClaimInfo] = {}
        self._told: dict[str, orjson.Fragment] = {}
        self._of_pod: dict[str, dict[str, None]] = {}
        self._of_device: dict[DeviceKey, dict[str, None]] = {}
        self._of_driver: Counter[str] = Counter()
        for entry in (told or {}).get("claims") or ():
            info = _read(entry)
            self._put(info)
            for pod_uid in info.pods:
                self._add_pod(info, pod_uid)
            for driver, devices in info.drivers.items():
                self._of_driver[driver] += 1
                self._index(info.key, driver, devices)

    def __len__(self) -> int:
        return len(self._infos)

    def told(self) -> Obj:
        """As a checkpoint has it, each claim encoded already."""
        return {"claims": list(self._told.values())}

    def get(self, key: str) -> ClaimInfo | None:
        """The claim of that key."""
        return self._infos.get(key)

    def all(self) -> list[ClaimInfo]:
        """All claims."""
        return list(self._infos.values())

    def of_pod(self, pod_uid: str) -> list[ClaimInfo]:
        """The claims that a pod uses here."""
        return [self._infos[key] for key in self._of_pod.get(pod_uid, ())]

    def with_device(self, driver: str, pool: str, device: str) -> list[ClaimInfo]:
        """The claims for which a device is prepared here."""
        return [self._infos[key] for key in self._of_device.get((driver, pool, device), ())]

    def pods(self) -> set[str]:
        """The UIDs of all pods that use claims here."""
        return set(self._of_pod)

    def check(self, claim: ClaimInfo) -> None:
        """Raises `ClaimRefused` if an earlier claim of that name is still here."""
        known = self._infos.get(claim.key)
        if known is not None and known.uid != claim.uid:
            raise ClaimRefused(old_claim_exists(claim.name, known.uid))

    def begin(self, claim: ClaimInfo, pod_uid: str) -> ClaimInfo:
        """Note that a pod uses a claim, which was checked; `claim.drivers` names those it needs."""
        known = self._infos.get(claim.key)
        if known is None:
            known = ClaimInfo(claim.namespace, claim.name, claim.uid)
        for driver in claim.drivers:
            if driver not in known.drivers:
                known.drivers[driver] = ()
                self._of_driver[driver] += 1
        self._add_pod(known, pod_uid)
        self._put(known)
        return known

    def prepared(self, key: str, driver: str, devices: Sequence[PreparedDevice]) -> None:
        """A driver has prepared a claim."""
        info = self._infos[key]
        self._unindex(key, driver, info.drivers.get(driver, ()))
        info.drivers[driver] = tuple(devices)
        self._index(key, driver, devices)
        self._put(info)

    def finish(self, key: str) -> None:
        """All drivers have prepared a claim."""
        self._infos[key].is_prepared = True

    def release(self, key: str, pod_uid: str) -> ClaimInfo | None:
        """Remove a pod from a claim; the claim, if it is to be unprepared.

        The last pod stays noted until `forget`.
        """
        info = self._infos.get(key)
        if info is None or pod_uid not in info.pods:
            return None
        if len(info.pods) > 1:
            self._remove_pod(info, pod_uid)
            self._put(info)
            return None
        info.is_prepared = False
        return info

    def forget(self, key: str) -> None:
        """All drivers have given a claim back."""
        info = self._infos.pop(key, None)
        if info is None:
            return
        del self._told[key]
        for pod_uid in sorted(info.pods):
            self._remove_pod(info, pod_uid)
        for driver, devices in info.drivers.items():
            self._of_driver[driver] -= 1
            self._unindex(key, driver, devices)

    def drivers_in_use(self) -> dict[str, int]:
        """Driver -> how many claims it has here; `<any>` counts each claim once."""
        return {"<any>": len(self._infos)} | {driver: count for driver, count in self._of_driver.items() if count}

    def _put(self, info: ClaimInfo) -> None:
        self._infos[info.key] = info
        self._told[info.key] = orjson.Fragment(orjson.dumps(_tell(info), option=orjson.OPT_SORT_KEYS))

    def _add_pod(self, info: ClaimInfo, pod_uid: str) -> None:
        info.pods.add(pod_uid)
        self._of_pod.setdefault(pod_uid, {})[info.key] = None

    def _remove_pod(self, info: ClaimInfo, pod_uid: str) -> None:
        info.pods.discard(pod_uid)
        _drop(self._of_pod, pod_uid, info.key)

    def _index(self, key: str, driver: str, devices: Iterable[PreparedDevice]) -> None:
        for device in devices:
            self._of_device.setdefault((driver, device.pool, device.device), {})[key] = None

    def _unindex(self, key: str, driver: str, devices: Iterable[PreparedDevice]) -> None:
        for device in devices:
            _drop(self._of_device, (driver, device.pool, device.device), key)


def _drop(index: dict[K, dict[str, None]], value: K, key: str) -> None:
    keys = index.get(value)
    if keys is not None:
        keys.pop(key, None)
        if not keys:
            del index[value]


def _tell(info: ClaimInfo) -> Obj:
    drivers = {
        driver: [
            {
                "pool": device.pool,
                "device": device.device,
                "requests": list(device.requests),
                "cdiIDs": list(device.cdi_ids),
                "shareID": device.share_id,
            }
            for device in devices
        ]
        for driver, devices in info.drivers.items()
    }
    return {
        "namespace": info.namespace,
        "name": info.name,
        "uid": info.uid,
        "pods": sorted(info.pods),
        "drivers": drivers,
    }


def _read(told: Obj) -> ClaimInfo:
    drivers = {driver: tuple(_devices(devices)) for driver, devices in told["drivers"].items()}
    return ClaimInfo(told["namespace"], told["name"], told["uid"], set(told["pods"]), drivers)


def _devices(told: Iterable[Obj]) -> Iterable[PreparedDevice]:
    for one in told:
        yield PreparedDevice(
            one["pool"], one["device"], tuple(one["requests"]), tuple(one["cdiIDs"]), one.get("shareID", "")
        )
