"""What those who decide keep of pods and claims: no field that nothing here reads, and equal parts once.

A decoded pod takes five times the memory of its JSON, nearly all of it for fields that only a kubelet reads and for
parts that thousands of pods have alike. Pods are slim: they are never written whole. Claims are whole: writing an
allocation sends all of the claim back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from sys import intern
from typing import Final

from haru.kube.meta import Obj
from haru.kube.shared_parts import SharedParts, interned

_CONTAINER_LISTS: Final = ("containers", "initContainers", "ephemeralContainers")
_OF_CONTAINER: Final = frozenset(
    {
        "args",
        "command",
        "env",
        "envFrom",
        "imagePullPolicy",
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "securityContext",
        "startupProbe",
        "stdin",
        "stdinOnce",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "tty",
        "volumeDevices",
        "volumeMounts",
        "workingDir",
    }
)
_STATUS_LISTS: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_OF_CONTAINER_STATUS: Final = frozenset({"containerID", "imageID", "user", "volumeMounts"})
_OF_STATUS: Final = frozenset({"hostIPs", "podIPs"})
_OF_KUBELETS: Final = frozenset({"containerStatuses", "startTime"})
_WITHOUT_STORAGE: Final = frozenset({"configMap", "downwardAPI", "emptyDir", "projected", "secret"})
_CONDITIONS: Final = frozenset({"ContainersReady", "Initialized", "PodReadyToStartContainers"})
_UNIQUE: Final = frozenset({"labels", "resourceClaimStatuses", "resourceClaims"})
_MANAGED: Final = frozenset({"managedFields"})
_OF_PARTS: Final = (dict, list)
_OF_ONE_POD: Final = ("nodeName", "hostname", "resourceClaims")


class KeptFields:
    """Transform pods and claims into what is kept of them. Twice does what once does; arguments stay as they are."""

    def __init__(self) -> None:
        self._shared = SharedParts(interned)
        self._specs = SharedParts(self._parts)
        """Specs of pods but for what is different in each: those of a Job are one."""
        self._statuses = SharedParts(lambda status: self._parts(_status(status)))
        """Statuses that no kubelet has written: pods that came, or were bound, within a second have one."""

    @property
    def transforms(self) -> Mapping[str, Callable[[Obj], Obj]]:
        """The transforms by kind, for informers."""
        return {"Pod": self.pod, "ResourceClaim": self.claim}

    def pod(self, obj: Obj) -> Obj:
        """Return a pod without what no decision and no explanation of a waiting pod reads."""
        metadata = self._parts(obj["metadata"])
        spec = dict(obj.get("spec") or {})
        own = {name: interned(spec.pop(name)) for name in _OF_ONE_POD if name in spec}
        for name in _CONTAINER_LISTS:
            if name in spec:
                spec[name] = [_without(item, _OF_CONTAINER) for item in spec[name] or ()]
        if "volumes" in spec:
            spec["volumes"] = [item for item in spec["volumes"] or () if _WITHOUT_STORAGE.isdisjoint(item)]
        kept = {**obj, "metadata": metadata, "spec": {**self._specs.part(spec), **own}}
        if "status" in obj:
            status = obj["status"] or {}
            is_untold = _OF_KUBELETS.isdisjoint(status)
            kept["status"] = self._statuses.part(status) if is_untold else self._parts(_status(status))
        return kept

    def claim(self, obj: Obj) -> Obj:
        """Return a claim with its parts shared."""
        metadata = {
            key: intern(value) if type(value) is str else interned(value)
            for key, value in obj["metadata"].items()
            if key != "managedFields"
        }
        kept = {**obj, "metadata": metadata}
        if "spec" in obj:
            kept["spec"] = self._shared.part(obj["spec"])
        status = obj.get("status")
        if status:
            kept["status"] = status = interned(status)
            allocation = status.get("allocation")
            if allocation and "nodeSelector" in allocation:
                allocation["nodeSelector"] = self._shared.part(allocation["nodeSelector"])
        return kept

    def _parts(self, fields: Obj) -> Obj:
        part = self._shared.part
        if "managedFields" in fields:
            fields = _without(fields, _MANAGED)
        return {
            key: intern(value)
            if type(value) is str
            else (value if type(value) not in _OF_PARTS else interned(value) if key in _UNIQUE else part(value))
            for key, value in fields.items()
        }


def _status(status: Obj) -> Obj:
    kept = _without(status, _OF_STATUS)
    for name in _STATUS_LISTS:
        if name in kept:
            kept[name] = [_without(item, _OF_CONTAINER_STATUS) for item in kept[name] or ()]
    if "conditions" in kept:
        kept["conditions"] = [item for item in kept["conditions"] or () if item.get("type") not in _CONDITIONS]
    return kept


def _without(fields: Obj, names: frozenset[str]) -> Obj:
    return {key: value for key, value in fields.items() if key not in names}
