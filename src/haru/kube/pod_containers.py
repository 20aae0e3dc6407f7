"""The containers in a pod's spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from haru.kube.meta import Obj


def containers_of(spec: Mapping[str, Any]) -> Iterator[Obj]:
    """All containers of a pod: first those of the start, then the others, at last the ephemeral ones."""
    for member in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(member) or ()
