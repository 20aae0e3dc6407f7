"""What clusters are furnished with and people seldom look at: storage drivers, flow control, address ranges."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from haru.kube.meta import value_at
from haru.kube.printing.base import NONE, UNSET, Obj, age, condition, name, printer, spec


def _csi_driver(obj: Obj, now: datetime) -> list[Any]:
    said = spec(obj)
    audiences = ",".join(request.get("audience", "") for request in said.get("tokenRequests") or ())
    modes = ",".join(said.get("volumeLifecycleModes") or ()) or NONE
    flags = [said.get("attachRequired", True), said.get("podInfoOnMount", False), said.get("storageCapacity", False)]
    return [name(obj), *flags, audiences or UNSET, said.get("requiresRepublish", False), modes, age(obj, now)]


def _csi_node(obj: Obj, now: datetime) -> list[Any]:
    return [name(obj), len(spec(obj).get("drivers") or ()), age(obj, now)]


def _csi_capacity(obj: Obj, now: datetime) -> list[Any]:
    return [name(obj), obj.get("storageClassName", ""), obj.get("capacity") or UNSET]


def _attributes_class(obj: Obj, now: datetime) -> list[Any]:
    return [name(obj), obj.get("driverName", ""), age(obj, now)]


def _flow_schema(obj: Obj, now: datetime) -> list[Any]:
    said = spec(obj)
    missing = condition(obj, "Dangling").get("status", "?")
    level = value_at(said, "priorityLevelConfiguration", "name") or ""
    method = value_at(said, "distinguisherMethod", "type") or NONE
    return [name(obj), level, said.get("matchingPrecedence", 0), method, age(obj, now), missing]


def _priority_level(obj: Obj, now: datetime) -> list[Any]:
    said = spec(obj)
    limited: Obj = said.get("limited") or {}
    queuing: Obj = value_at(limited, "limitResponse", "queuing") or {}
    shares = limited.get("nominalConcurrencyShares", NONE)
    queues = [queuing.get(key, NONE) for key in ("queues", "handSize", "queueLengthLimit")]
    return [name(obj), said.get("type", ""), shares, *queues, age(obj, now)]


def _service_range(obj: Obj, now: datetime) -> list[Any]:
    return [name(obj), ",".join(spec(obj).get("cidrs") or ()), age(obj, now)]


def _address(obj: Obj, now: datetime) -> list[Any]:
    parent: Obj = spec(obj).get("parentRef") or {}
    place = "/".join(parent[key] for key in ("namespace", "name") if parent.get(key))
    resource = ".".join(parent[key] for key in ("resource", "group") if parent.get(key))
    return [name(obj), f"{resource}/{place}"]


def _trust_bundle(obj: Obj, now: datetime) -> list[Any]:
    return [name(obj), spec(obj).get("signerName") or NONE]


_STORAGE = "storage.k8s.io"
_FLOW = "flowcontrol.apiserver.k8s.io"
PRINTERS = {
    (_STORAGE, "csidrivers"): printer(
        "Name AttachRequired:boolean PodInfoOnMount:boolean StorageCapacity:boolean TokenRequests "
        "RequiresRepublish:boolean Modes Age",
        _csi_driver,
    ),
    (_STORAGE, "csinodes"): printer("Name Drivers:integer Age", _csi_node),
    (_STORAGE, "csistoragecapacities"): printer("Name StorageClassName Capacity", _csi_capacity),
    (_STORAGE, "volumeattributesclasses"): printer("Name DriverName Age", _attributes_class),
    (_FLOW, "flowschemas"): printer(
        "Name PriorityLevel MatchingPrecedence:integer DistinguisherMethod Age MissingPL", _flow_schema
    ),
    (_FLOW, "prioritylevelconfigurations"): printer(
        "Name Type NominalConcurrencyShares Queues HandSize QueueLengthLimit Age", _priority_level
    ),
    ("networking.k8s.io", "servicecidrs"): printer("Name CIDRs Age", _service_range),
    ("networking.k8s.io", "ipaddresses"): printer("Name ParentRef", _address),
    ("certificates.k8s.io", "clustertrustbundles"): printer("Name SignerName", _trust_bundle),
}
