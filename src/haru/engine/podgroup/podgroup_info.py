"""Describe the pods that one cycle decides together: pending members of a PodGroup, or a single pod.

Source: PodGroupInfo of kube-scheduler's framework (KEP-4671).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from haru.engine.framework.options import Options
from haru.engine.podgroup.quorum import members_needed
from haru.engine.state.cache import Snapshot
from haru.engine.state.decision import GroupKey, Obj
from haru.engine.state.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class PodGroupInfo:
    """Hold pending members, of which `needed` must find places at once, and the options of the decision.

    `group` is the PodGroup; it is None, and so is `key`, for a single pod.
    """

    members: Sequence[PodInfo]
    key: GroupKey | None
    group: Obj | None
    needed: int
    options: Options

    @classmethod
    def of(cls, snapshot: Snapshot, members: Sequence[PodInfo], group: Obj | None, options: Options) -> PodGroupInfo:
        """Describe the members as the snapshot, with nominated pods, has their group."""
        key = key_of(group)
        needed = members_needed(snapshot, key, group, gang_scheduling=options.gates.gang_scheduling)
        return cls(members, key, group, needed, options)

    @property
    def topology_key(self) -> str | None:
        """Return the label of the group's required topology constraint (KEP-5732), if there is one."""
        if self.key is None or not self.options.gates.topology:
            return None
        constraints = ((self.group or {}).get("spec") or {}).get("schedulingConstraints") or {}
        return next((str(constraint["key"]) for constraint in constraints.get("topology") or ()), None)


def key_of(group: Obj | None) -> GroupKey | None:
    """Return the key of a group, if there is one."""
    if group is not None:
        return GroupKey(group["metadata"].get("namespace") or "default", group["metadata"]["name"])
    return None
