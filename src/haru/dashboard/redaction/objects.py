"""Objects of hidden namespaces without their names: what the engine reads of them stays, what tells of them goes.

Every hidden object is in one namespace, `HIDDEN`, which no cluster can have. Its name, and every name by which it
refers to others beside it, is a keyed hash: equal names stay equal, and nobody without the key finds one out. Only
members that are listed here stay. Labels stay, since affinity of shown pods selects by them; no page shows those of
hidden objects.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from haru.engine.state import RUN_TIME_LIMIT
from haru.explain.utilization import UTILIZATION_ANNOTATION
from haru.kube.device_usage import UTILIZATION_KEY
from haru.kube.meta import Obj

HIDDEN = "another namespace"
"""The namespace of hidden objects: with a space it is the name of none."""
_NAMES = frozenset(
    {
        "claimName",
        "containerName",
        "podGroupName",
        "podGroupTemplateName",
        "resourceClaimName",
        "resourceClaimTemplateName",
        "workloadName",
    }
)
"""Members that name an object of the same namespace."""
_NAMED_ENTRIES = frozenset({"claims", "resourceClaims", "resourceClaimStatuses"})
"""Members that list claims under names of their pod's own."""
_METADATA = ("uid", "labels", "creationTimestamp", "deletionTimestamp", "generation", "resourceVersion")
_ANNOTATIONS = ("resource.kubernetes.io/", RUN_TIME_LIMIT, UTILIZATION_ANNOTATION)
_CONDITION = ("type", "status", "reason", "lastTransitionTime")
_CONTAINER = ("resources", "ports", "restartPolicy", "restartPolicyRules", "resizePolicy")
_POD_SPEC = (
    *("activeDeadlineSeconds", "affinity", "hostNetwork", "hostUsers", "nodeName", "nodeSelector", "os", "overhead"),
    *("preemptionPolicy", "priority", "priorityClassName", "resourceClaims", "resources", "restartPolicy"),
    *("runtimeClassName", "schedulerName", "schedulingGroup", "terminationGracePeriodSeconds", "tolerations"),
    "topologySpreadConstraints",
)
_POD_STATUS = (
    *("extendedResourceClaimStatus", "nodeAllocatableResourceClaimStatuses", "nominatedNodeName", "phase", "qosClass"),
    *("resize", "resourceClaimStatuses", "resources", "startTime"),
)
_CONTAINER_STATUS = ("allocatedResources", "resources", "started")
_CLAIM_RESULT = (
    *("adminAccess", "bindingConditions", "bindingFailureConditions", "consumedCapacity", "device", "driver", "pool"),
    *("request", "shareID", "tolerations"),
)
_VOLUMES = ("persistentVolumeClaim", "gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd")
_BUDGET_STATUS = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods", "observedGeneration")
_PVC_SPEC = ("accessModes", "resources", "storageClassName", "volumeMode", "volumeName")


@dataclass(frozen=True, slots=True)
class Redaction:
    """Which namespaces are `shown`; `key` is the secret of the hashes."""

    shown: frozenset[str]
    key: bytes

    def name(self, namespace: str, name: str) -> str:
        """Return what an object of a hidden namespace is called instead."""
        digest = hmac.digest(self.key, f"{namespace}/{name}".encode(), hashlib.sha256)
        return f"hidden-{digest[:8].hex()}"

    def path(self, path: str) -> str:
        """Return what `NAMESPACE/NAME` is called; a name without namespace stays."""
        namespace, slash, name = path.partition("/")
        return path if not slash or namespace in self.shown else f"{HIDDEN}/{self.name(namespace, name)}"

    def object(self, kind: str, obj: Obj) -> Obj | None:
        """Return an object as it is shown; None for one that is not there for whom may not see it."""
        namespace = str(obj["metadata"].get("namespace") or "")
        if kind == "Namespace":
            return obj if obj["metadata"]["name"] in self.shown else None
        if not namespace:
            return self._of_the_cluster(kind, obj)
        if namespace in self.shown:
            return obj
        build = _BUILDERS.get(kind)
        if build is None:
            return None
        return {
            "apiVersion": obj.get("apiVersion"),
            "kind": kind,
            "metadata": self._metadata(namespace, obj["metadata"]),
            **self._renamed(namespace, build(obj, partial(self.name, namespace))),
        }

    def _of_the_cluster(self, kind: str, obj: Obj) -> Obj:
        """A volume names the claim that it is bound to; what became of an attachment may tell of anything."""
        if kind == "VolumeAttachment":
            metadata = _only(obj["metadata"], ("name", "uid"))
            return {"apiVersion": obj.get("apiVersion"), "kind": kind, "metadata": metadata, "spec": obj["spec"]}
        bound = (obj.get("spec") or {}).get("claimRef") if kind == "PersistentVolume" else None
        if not bound or bound.get("namespace") in self.shown:
            return obj
        reference = {
            "kind": bound.get("kind"),
            "uid": bound.get("uid"),
            "namespace": HIDDEN,
            "name": self.name(str(bound.get("namespace")), str(bound.get("name"))),
        }
        metadata = {key: value for key, value in obj["metadata"].items() if key in ("name", "uid", "labels")}
        return {**obj, "metadata": metadata, "spec": {**obj["spec"], "claimRef": reference}}

    def _metadata(self, namespace: str, metadata: Mapping[str, Any]) -> Obj:
        found = _only(metadata, _METADATA)
        found |= {"namespace": HIDDEN, "name": self.name(namespace, str(metadata["name"]))}
        if owners := metadata.get("ownerReferences"):
            found["ownerReferences"] = [
                {
                    **_only(owner, ("apiVersion", "kind", "uid", "controller")),
                    "name": self.name(namespace, owner["name"]),
                }
                for owner in owners
            ]
        annotations = metadata.get("annotations") or {}
        if kept := {key: value for key, value in annotations.items() if key.startswith(_ANNOTATIONS)}:
            found["annotations"] = kept
        return found

    def _renamed(self, namespace: str, value: Any) -> Any:
        """Replace the names of objects beside it, wherever they stand."""
        if isinstance(value, list):
            return [self._renamed(namespace, each) for each in value]
        if not isinstance(value, Mapping):
            return value
        found: Obj = {}
        for key, each in value.items():
            if key in _NAMES and isinstance(each, str):
                found[key] = self.name(namespace, each)
            elif key in _NAMED_ENTRIES:
                found[key] = [
                    {**self._renamed(namespace, entry), "name": self.name(namespace, entry["name"])} for entry in each
                ]
            else:
                found[key] = self._renamed(namespace, each)
        return found


def _only(found: Mapping[str, Any] | None, names: Collection[str]) -> Obj:
    """The members of some names."""
    return {name: found[name] for name in names if name in found} if found else {}


Rename = Callable[[str], str]


def _pod(obj: Obj, rename: Rename) -> Obj:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    kept = _only(spec, _POD_SPEC)
    for name in ("initContainers", "containers"):
        if name in spec:
            kept[name] = [_only(each, _CONTAINER) | {"name": rename(each["name"])} for each in spec[name]]
    if volumes := [_only(each, _VOLUMES) for each in spec.get("volumes") or ()]:
        kept["volumes"] = [{**volume, "name": f"{n}"} for n, volume in enumerate(volumes) if volume]
    if "schedulingGates" in spec:
        kept["schedulingGates"] = [{"name": rename(gate["name"])} for gate in spec["schedulingGates"]]
    told = _only(status, _POD_STATUS) | _conditions(status)
    for name in ("initContainerStatuses", "containerStatuses"):
        if name in status:
            told[name] = [_only(each, _CONTAINER_STATUS) | {"name": rename(each["name"])} for each in status[name]]
    return {"spec": kept, "status": told}


def _conditions(status: Obj) -> Obj:
    """Conditions without messages, which name objects."""
    found = status.get("conditions")
    return {"conditions": [_only(each, _CONDITION) for each in found]} if found else {}


def _claim(obj: Obj, rename: Rename) -> Obj:
    status = obj.get("status") or {}
    told: Obj = {}
    if allocation := status.get("allocation"):
        results = (allocation.get("devices") or {}).get("results") or ()
        told["allocation"] = _only(allocation, ("nodeSelector", "allocationTimestamp")) | {
            "devices": {"results": [_only(each, _CLAIM_RESULT) for each in results]}
        }
    if "reservedFor" in status:
        told["reservedFor"] = [
            _only(each, ("apiGroup", "resource", "uid")) | {"name": rename(str(each.get("name")))}
            for each in status["reservedFor"]
        ]
    if "devices" in status:
        told["devices"] = [_reported(each) for each in status["devices"]]
    devices = {key: value for key, value in (obj["spec"].get("devices") or {}).items() if key != "config"}
    return {"spec": {"devices": devices}, "status": told}


def _reported(device: Obj) -> Obj:
    """What a driver reports of a device: of its data only how busy it is."""
    found = _only(device, ("device", "driver", "pool", "shareID")) | _conditions(device)
    data = device.get("data")
    return found | ({"data": _only(data, (UTILIZATION_KEY,))} if isinstance(data, Mapping) else {})


def _pod_group(obj: Obj, _: Rename) -> Obj:
    status = obj.get("status") or {}
    told = _only(status, ("resourceClaimStatuses",)) | _conditions(status)
    return {"spec": dict(obj.get("spec") or {}), "status": told}


def _volume_claim(obj: Obj, _: Rename) -> Obj:
    return {"spec": _only(obj.get("spec"), _PVC_SPEC), "status": _only(obj.get("status"), ("phase", "capacity"))}


def _disruption_budget(obj: Obj, _: Rename) -> Obj:
    told = _only(obj.get("status"), _BUDGET_STATUS)
    return {"spec": dict(obj.get("spec") or {}), "status": told}


_BUILDERS: Mapping[str, Callable[[Obj, Rename], Obj]] = {
    "Pod": _pod,
    "ResourceClaim": _claim,
    "PodGroup": _pod_group,
    "PersistentVolumeClaim": _volume_claim,
    "PodDisruptionBudget": _disruption_budget,
}
"""Kinds whose hidden objects count; of all others they are as if they did not exist."""
