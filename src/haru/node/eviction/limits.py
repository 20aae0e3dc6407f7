"""Which limit of local storage a pod exceeds, if any. Pure.

Source: the kubelet's eviction for local storage, as behaviour: a size limit of an emptyDir, the sum of the limits of
`ephemeral-storage`, then that of each container. What is in memory is bounded by its file system.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from haru.kube.meta import Obj
from haru.kube.node_admission import is_critical
from haru.kube.quantity import parse_quantity
from haru.kube.resources import pod_limits

STORAGE: Final = "ephemeral-storage"


@dataclass(frozen=True, slots=True)
class ContainerStorage:
    """What a running container uses, in bytes."""

    layer: int = 0
    """What it has written beside its volumes."""
    logs: int = 0
    is_layer_beside_logs: bool = True
    """Whether images and writable layers are on the file system of the node's own files."""


@dataclass(frozen=True, slots=True)
class PodStorage:
    """What a pod uses, in bytes."""

    volumes: Mapping[str, int] = field(default_factory=dict)
    """Those on the node's disk, by name."""
    containers: Mapping[str, ContainerStorage] = field(default_factory=dict)
    other: int = 0
    """Its /etc/hosts."""

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self.volumes.values()) + sum(one.layer + one.logs for one in self.containers.values()) + self.other


class Excess(NamedTuple):
    """A limit that is exceeded: its name in metrics, and the text for whoever reads the pod."""

    signal: str
    message: str


def has_limits(pod: Obj) -> bool:
    """Whether a pod has to be measured."""
    return not is_critical(pod) and (bool(_empty_dir_limits(pod)) or STORAGE in pod_limits(pod))


def excess(pod: Obj, storage: PodStorage) -> Excess | None:
    """The first limit that a pod exceeds; None for a critical pod."""
    if is_critical(pod):
        return None
    for name, text in _empty_dir_limits(pod).items():
        if storage.volumes.get(name, 0) > parse_quantity(text).value():
            return Excess("emptydirfs.limit", f'Usage of EmptyDir volume "{name}" exceeds the limit "{text}". ')
    of_pod = pod_limits(pod).get(STORAGE)
    if of_pod is not None and storage.total > of_pod.value():
        text = f"Pod ephemeral local storage usage exceeds the total limit of containers {of_pod}. "
        return Excess("ephemeralpodfs.limit", text)
    for container in pod["spec"]["containers"]:
        used = storage.containers.get(container["name"])
        limit = ((container.get("resources") or {}).get("limits") or {}).get(STORAGE)
        if used is None or limit is None or not (most := parse_quantity(limit).value()):
            continue
        if used.logs + (used.layer if used.is_layer_beside_logs else 0) > most:
            text = f'Container {container["name"]} exceeded its local ephemeral storage limit "{limit}". '
            return Excess("ephemeralcontainerfs.limit", text)
    return None


def _empty_dir_limits(pod: Obj) -> dict[str, Any]:
    """Limits above 0 of the emptyDir volumes on disk, by name."""
    found = {}
    for volume in pod["spec"].get("volumes") or ():
        source = volume.get("emptyDir") or {}
        limit = source.get("sizeLimit")
        if not source.get("medium") and limit and parse_quantity(limit).value() > 0:
            found[volume["name"]] = limit
    return found
