"""Claims of a driver: what an allocation gives it, and what it has made ready, kept in a checkpoint.

Before a driver is asked to make something ready the claim is written down, and after it has been given back it is
forgotten: whatever a crash leaves behind is in the checkpoint and is given back with the claim. Source: KEP-4381.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson

from haru.drivers.cdi.edits import Edits
from haru.drivers.checkpoint import Checkpoint
from haru.drivers.library.errors import ClaimChanged
from haru.kube.meta import Obj, allocation_of, annotations_of, key_of, name_of, namespace_of, uid_of

POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"


@dataclass(frozen=True, slots=True)
class Allocated:
    """A device that a claim was given; `request` may be `request/subrequest`."""

    request: str
    pool: str
    device: str
    share_id: str = ""
    admin_access: bool = False
    consumed_capacity: Mapping[str, str] = field(default_factory=dict)
    parameters: tuple[Obj, ...] = ()
    """Opaque configuration for this driver and request: of the class first, then of the claim."""
    named: tuple[bool, ...] = ()
    """Of each of `parameters`: whether it names the request; else it is for all requests."""

    @property
    def base_request(self) -> str:
        """The request as containers name it."""
        return self.request.partition("/")[0]


@dataclass(frozen=True, slots=True)
class ClaimToPrepare:
    """A claim whose devices are to be made ready."""

    namespace: str
    name: str
    uid: str
    devices: tuple[Allocated, ...]
    pod_claim_name: str = ""
    """The pod's name for it, if it was made from a template."""

    @classmethod
    def of(cls, claim: Obj, driver: str) -> ClaimToPrepare:
        """What a ResourceClaim gives a driver. Raises `ClaimChanged`."""
        allocation = allocation_of(claim)
        if not allocation:
            raise ClaimChanged(f"ResourceClaim {key_of(claim)} is not allocated")
        given = allocation.get("devices") or {}
        configs = given.get("config") or ()
        devices = tuple(
            Allocated(
                result["request"],
                result["pool"],
                result["device"],
                result.get("shareID") or "",
                bool(result.get("adminAccess")),
                result.get("consumedCapacity") or {},
                *_parameters(configs, driver, result["request"]),
            )
            for result in given.get("results") or ()
            if result["driver"] == driver
        )
        if not devices:
            raise ClaimChanged(f"ResourceClaim {key_of(claim)} has no devices of {driver}")
        annotation = annotations_of(claim).get(POD_CLAIM_NAME, "")
        return cls(namespace_of(claim), name_of(claim), uid_of(claim), devices, annotation)


def _parameters(configs: Sequence[Obj], driver: str, request: str) -> tuple[tuple[Obj, ...], tuple[bool, ...]]:
    base = request.partition("/")[0]
    chosen = [
        config
        for config in configs
        if (config.get("opaque") or {}).get("driver") == driver
        and (not config.get("requests") or request in config["requests"] or base in config["requests"])
    ]
    chosen.sort(key=lambda config: config.get("source") != "FromClass")
    named = tuple(bool(config.get("requests")) for config in chosen)
    return tuple(config["opaque"]["parameters"] for config in chosen), named


@dataclass(frozen=True, slots=True)
class ReadyDevice:
    """A device that was made ready: what it adds to containers, or ids of CDI files that the driver wrote itself."""

    allocated: Allocated
    edits: Edits = field(default_factory=Edits)
    cdi_ids: tuple[str, ...] = ()
    attributes: Mapping[str, Obj] = field(default_factory=dict)
    """For the metadata file in the container (KEP-5304)."""
    network_data: Obj = field(default_factory=dict)


@dataclass(slots=True)
class Entry:
    """A claim in the checkpoint. While `is_ready` is False the driver may or may not have done its part."""

    namespace: str
    name: str
    uid: str
    is_ready: bool = False
    devices: list[Obj] = field(default_factory=list)
    """Of each device: requests, pool, device, shareID, ids (of CDI)."""
    cdi: dict[str, Obj] = field(default_factory=dict)
    """Device name in the CDI file -> its edits: the file can be written again after a restart of the machine."""


class ClaimBook:
    """The entries, and their checkpoint. Every change is on the disk when the method returns, or did not happen."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._entries: dict[str, Entry] = {}
        self._encoded: dict[str, orjson.Fragment] = {}

    def load(self) -> None:
        """Read the checkpoint. Raises `CheckpointError`."""
        content = self._checkpoint.load() or {"claims": []}
        self._entries = {told["uid"]: Entry(**told) for told in content["claims"]}
        self._encoded = {uid: _encode(entry) for uid, entry in self._entries.items()}

    def get(self, uid: str) -> Entry | None:
        """The entry of a claim."""
        return self._entries.get(uid)

    def all(self) -> list[Entry]:
        """All entries, in the order in which they came."""
        return list(self._entries.values())

    def put(self, entry: Entry) -> None:
        """Add or replace an entry. Raises `CheckpointError`."""
        self._store({**self._encoded, entry.uid: _encode(entry)})
        self._entries[entry.uid] = entry

    def drop(self, uid: str) -> None:
        """Forget a claim. Raises `CheckpointError`."""
        encoded = dict(self._encoded)
        encoded.pop(uid, None)
        self._store(encoded)
        self._entries.pop(uid, None)

    def _store(self, encoded: dict[str, orjson.Fragment]) -> None:
        self._checkpoint.store({"claims": list(encoded.values())})
        self._encoded = encoded


def _encode(entry: Entry) -> orjson.Fragment:
    """An entry as the checkpoint has it, encoded once: each change of the book writes all entries."""
    told = {name: getattr(entry, name) for name in Entry.__slots__}
    return orjson.Fragment(orjson.dumps(told, option=orjson.OPT_SORT_KEYS))
