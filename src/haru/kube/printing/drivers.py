"""What clusters are furnished with and people seldom look at: storage drivers, flow control, address ranges."""

from __future__ import annotations

from typing import Any

from haru.kube.meta import Obj, value_at
from haru.kube.printing.base import NONE, UNSET, age, between, condition, name, pairs, printer, spec, status


def _csi_driver(obj: Obj) -> list[Any]:
    driver = spec(obj)
    audiences = ",".join(request.get("audience", "") for request in driver.get("tokenRequests") or ())
    modes = ",".join(driver.get("volumeLifecycleModes") or ()) or NONE
    flags = [
        driver.get("attachRequired", True),
        driver.get("podInfoOnMount", False),
        driver.get("storageCapacity", False),
    ]
    return [name(obj), *flags, audiences or UNSET, driver.get("requiresRepublish", False), modes, age(obj)]


def _flow_schema(obj: Obj) -> list[Any]:
    fields = spec(obj)
    missing = condition(obj, "Dangling").get("status", "?")
    level = value_at(fields, "priorityLevelConfiguration", "name") or ""
    method = value_at(fields, "distinguisherMethod", "type") or NONE
    return [name(obj), level, fields.get("matchingPrecedence", 0), method, age(obj), missing]


def _priority_level(obj: Obj) -> list[Any]:
    fields = spec(obj)
    limited: Obj = fields.get("limited") or {}
    queuing: Obj = value_at(limited, "limitResponse", "queuing") or {}
    shares = limited.get("nominalConcurrencyShares", NONE)
    queues = [queuing.get(key, NONE) for key in ("queues", "handSize", "queueLengthLimit")]
    return [name(obj), fields.get("type", ""), shares, *queues, age(obj)]


def _address(obj: Obj) -> list[Any]:
    parent: Obj = spec(obj).get("parentRef") or {}
    place = "/".join(parent[key] for key in ("namespace", "name") if parent.get(key))
    resource = ".".join(parent[key] for key in ("resource", "group") if parent.get(key))
    return [name(obj), f"{resource}/{place}", age(obj)]  # the age has no column, as in 1.36


def _certificate_request(obj: Obj) -> list[Any]:
    states = [each["type"] for each in status(obj).get("conditions") or () if each["type"] in _STATES]
    told = [spec(obj).get(field, "") for field in ("podName", "serviceAccountName", "nodeName", "signerName")]
    return [name(obj), *told, states[-1] if states else "Pending", pairs(spec(obj).get("unverifiedUserAnnotations"))]


_STATES = ("Issued", "Denied", "Failed")


def _trust_bundle(obj: Obj) -> list[Any]:
    return [name(obj), spec(obj).get("signerName") or NONE]


_STORAGE = "storage.k8s.io"
_FLOW = "flowcontrol.apiserver.k8s.io"
PRINTERS = {
    (_STORAGE, "csidrivers"): printer(
        "Name AttachRequired:boolean PodInfoOnMount:boolean StorageCapacity:boolean TokenRequests "
        "RequiresRepublish:boolean Modes Age",
        _csi_driver,
    ),
    (_STORAGE, "csinodes"): printer(
        "Name Drivers:integer Age", between(lambda obj: len(spec(obj).get("drivers") or ()))
    ),
    (_STORAGE, "volumeattributesclasses"): printer(
        "Name DriverName Age", between(lambda obj: obj.get("driverName", ""))
    ),
    (_FLOW, "flowschemas"): printer(
        "Name PriorityLevel MatchingPrecedence DistinguisherMethod Age MissingPL",
        _flow_schema,
        lambda obj: (spec(obj).get("matchingPrecedence", 0), obj["metadata"]["name"]),
    ),
    (_FLOW, "prioritylevelconfigurations"): printer(
        "Name Type NominalConcurrencyShares Queues HandSize QueueLengthLimit Age", _priority_level
    ),
    ("networking.k8s.io", "servicecidrs"): printer(
        "Name CIDRs Age", between(lambda obj: ",".join(spec(obj).get("cidrs") or ()))
    ),
    ("networking.k8s.io", "ipaddresses"): printer("Name ParentRef", _address),
    ("certificates.k8s.io", "podcertificaterequests"): printer(
        "Name PodName ServiceAccountName NodeName SignerName State UnverifiedUserAnnotations", _certificate_request
    ),
    ("certificates.k8s.io", "clustertrustbundles"): printer("Name SignerName", _trust_bundle),
}
