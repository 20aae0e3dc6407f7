"""What kubelets tell of containers: what such an event is about, and its texts.

Source: kubelet 1.36, as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from haru.kube.meta import Obj

CREATED: Final = "Container created"
STARTED: Final = "Container started"
_MEMBERS: Final = ("containers", "initContainers", "ephemeralContainers")


def container_of(pod: Mapping[str, Any], name: str) -> Obj:
    """A container as what an event is about: the pod's identity, and the container's `fieldPath` in it."""
    spec = pod.get("spec") or {}
    member = next((each for each in _MEMBERS if any(one["name"] == name for one in spec.get(each) or ())), None)
    path = f"implicitly required container {name}" if member is None else f"spec.{member}{{{name}}}"
    return {**{key: pod[key] for key in ("apiVersion", "kind", "metadata") if key in pod}, "fieldPath": path}


def image_is_present(image: str) -> str:
    """No pull was needed."""
    return f'Container image "{image}" already present on machine and can be accessed by the pod'


def image_was_pulled(image: str, seconds: float, size: int) -> str:
    """A pull took so long, of an image of so many bytes."""
    took = _duration(seconds)
    return f'Successfully pulled image "{image}" in {took} ({took} including waiting). Image size: {size} bytes.'


def _duration(seconds: float) -> str:
    """As Go writes it, in whole milliseconds."""
    all_ms = int(seconds * 1000)
    if 0 < all_ms < 1000:
        return f"{all_ms}ms"
    minutes, ms = divmod(all_ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    parts = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{parts}{ms / 1000:g}s"
