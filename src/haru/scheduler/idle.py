"""Claims that a rejected unit holds without being able to use them.

A pod that was reserved devices and then not bound (a crash, a node that went away, binding conditions that failed)
may be pinned to devices that no node can serve any more. Its claims are freed, so that the next attempt, or somebody
else, can use the devices. Never while a member of the group runs: its siblings' reservations are what completes it.
Source: PostFilter of kube-scheduler's DynamicResources plugin.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from haru.engine.cluster import Snapshot
from haru.engine.decision import GroupKey
from haru.engine.groups.claims import ClaimUse, resolve_claims
from haru.engine.pods import PodInfo

Obj = dict[str, Any]


def idle_claims(snapshot: Snapshot, pods: Iterable[Obj], group: Obj | None, *, workload_claims: bool) -> dict[str, Obj]:
    """By path: the allocated claims of these pods that nobody else has reserved, if no sibling of theirs is placed."""
    infos = [PodInfo.of(pod) for pod in pods]
    if group is not None:
        metadata = group["metadata"]
        if snapshot.group_state(GroupKey(metadata.get("namespace", ""), metadata["name"])).scheduled:
            return {}
    uses: list[ClaimUse] = []
    for info in infos:
        resolved = resolve_claims(snapshot, info, group, workload_claims=workload_claims)
        if isinstance(resolved, tuple):
            uses += resolved
    consumers = {use.reserve_for["uid"] for use in uses}
    return {
        use.path: use.claim
        for use in uses
        if use.allocation is not None
        and use.path not in snapshot.in_flight
        and {entry.get("uid") for entry in use.reserved_for} <= consumers
    }
