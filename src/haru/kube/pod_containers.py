"""The containers in a pod's spec, and their statuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from haru.kube.meta import Obj


def containers_of(spec: Mapping[str, Any]) -> Iterator[Obj]:
    """All containers of a pod: first those of the start, then the others, at last the ephemeral ones."""
    for member in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(member) or ()


def statuses_of(pod: Mapping[str, Any]) -> dict[str, Obj]:
    """The statuses of all containers of a pod by name, in the order of `containers_of`."""
    status = pod.get("status") or {}
    members = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    return {one["name"]: one for member in members for one in status.get(member) or ()}
