"""What is said where the one who asks may not read all that decisions depend on: no more than is known."""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine import Reason, Snapshot
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.kube.meta import get_condition

_NEEDED = frozenset(
    {"Node", "ResourceSlice", "ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "PodGroup", "Pod"}
)


def not_readable(unread: Sequence[str]) -> tuple[Reason, ...]:
    """That something is left out; nothing if all could be read."""
    if not unread:
        return ()
    kinds = list(unread)
    return (Reason("NotReadable", f"not allowed to read {', '.join(kinds)}", {"kinds": kinds}),)


def is_blind(unread: Sequence[str]) -> bool:
    """Whether so much is left out that whether work fits cannot be told."""
    return not _NEEDED.isdisjoint(unread)


def blind_text(snapshot: Snapshot, work: WorkloadUnit, unread: Sequence[str]) -> str:
    """What can be said all the same: what the scheduler has written into the work's own status."""
    text = f"whether it fits cannot be told without reading {', '.join(unread)}"
    for obj in (work.pod_group(snapshot), *(pod.obj for pod in work.pending(snapshot))):
        for name in ("PodScheduled", "PodGroupScheduled") if obj is not None else ():
            found = get_condition(obj, name)
            if found is not None and found.get("status") == "False" and found.get("message"):
                return f"{text}; the scheduler says: {found['message']}"
    return text
