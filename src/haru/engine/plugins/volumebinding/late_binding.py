"""Bind volume claims once their pod has a node (WaitForFirstConsumer): Filter and Reserve on an overlay.

A volume that a tentatively placed pod needs is taken for every other pod of the decision; `volume_bindings` says in the
end which claim gets which.
Source: kube-scheduler 1.36's VolumeBinding plugin (FindPodVolumes, AssumePodVolumes), as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from haru.engine.framework.interfaces import PASS, FilterFailure, refuse
from haru.engine.plugins.volumebinding.provisioning import Shortage
from haru.engine.plugins.volumebinding.volume_index import Pin
from haru.engine.plugins.volumebinding.volume_matcher import VolumeMatcher, late_claims
from haru.engine.state.decision import Decision, MemberDecision, ReasonType, VolumeBinding
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.snapshot import Snapshot
from haru.engine.state.tentative_volumes import NO_VOLUMES, TentativeVolumes
from haru.kube.meta import Obj, name_of, namespace_of, uid_of
from haru.kube.volume_binding import WantedVolume, claim_for_node, volume_for_claim

PLUGIN = "VolumeBinding"
_REFUSALS: Mapping[Shortage, tuple[ReasonType, str]] = {
    "volume": ("VolumeNoMatch", "node(s) didn't find available persistent volumes to bind"),
    "storage": ("StorageExhausted", "node(s) did not have enough free storage"),
}


class LateBinding:
    """Refuse nodes that have no volumes for claims of one kind of pod, as placements on an overlay take volumes."""

    def __init__(self, snapshot: Snapshot, claims: Sequence[str]) -> None:
        self._claims = claims
        self._matcher = VolumeMatcher.of(snapshot)
        self._seen: TentativeVolumes | None = None
        self._failures: dict[tuple[str, Shortage], FilterFailure] = {}

    def catch_up(self, overlay: Overlay) -> frozenset[Pin] | None:
        """Take in what has changed; return the labels of the nodes to filter again, None for all nodes."""
        self._matcher.catch_up(overlay.snapshot)
        before, self._seen = self._seen, overlay.volumes
        if before is overlay.volumes:
            return frozenset()
        if before is None:
            return None
        old, new = before.choices, overlay.volumes.choices
        changed = {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}
        if not changed.isdisjoint(self._claims):
            return None
        volumes = {known[path].volume for known in (old, new) for path in changed if path in known} - {""}
        return self._matcher.reached_from(volumes, self._claims)

    def check(self, node: NodeInfo) -> Sequence[FilterFailure]:
        """Return why the claims cannot be served on a node."""
        found = self._matcher.place(self._seen or NO_VOLUMES, self._claims, node)
        return PASS if isinstance(found, TentativeVolumes) else (self._failure(found.claim, found.lacks),)

    def _failure(self, wanted: WantedVolume, lacks: Shortage) -> FilterFailure:
        known = self._failures.get((wanted.path, lacks))
        if known is None:
            type_, message = _REFUSALS[lacks]
            data = {"persistentVolumeClaim": wanted.path, "storageClass": wanted.class_name}
            known = self._failures[wanted.path, lacks] = refuse(PLUGIN, type_, message, data)
        return known


def assume_volumes(overlay: Overlay, pod: PodInfo, node: str) -> None:
    """Take the volumes for the claims of a tentatively placed pod."""
    claims = late_claims(overlay.snapshot, pod)
    if claims:
        found = VolumeMatcher.of(overlay.snapshot).place(overlay.volumes, claims, overlay.node(node))
        if isinstance(found, TentativeVolumes):
            overlay.bind_volumes(found)


def with_volumes(snapshot: Snapshot, decision: Decision, pods: Sequence[PodInfo]) -> Decision:
    """Say of each of these pods that is to be bound which volumes its claims get."""
    asking = {pod.key.path: pod for pod in pods if pod.volume_claims}
    placed = [path for member in decision.placed if (path := member.pod.path) in asking] if asking else []
    late = {path: claims for path in placed if (claims := late_claims(snapshot, asking[path]))}
    if not late:
        return decision
    matcher, chosen = VolumeMatcher.of(snapshot), NO_VOLUMES
    for member in decision.placed:
        if member.pod.path in late:
            found = matcher.place(chosen, late[member.pod.path], snapshot.nodes[member.node or ""])
            chosen = found if isinstance(found, TentativeVolumes) else chosen
    members = tuple(
        replace(member, volumes=tuple(_binding(matcher, chosen, path) for path in late[member.pod.path]))
        if member.pod.path in late
        else member
        for member in decision.members
    )
    return replace(decision, members=members)


def _binding(matcher: VolumeMatcher, chosen: TentativeVolumes, path: str) -> VolumeBinding:
    claim = matcher.wanted(path).claim
    volume = chosen.choices[path].volume
    return VolumeBinding(namespace_of(claim) or "default", name_of(claim), uid_of(claim), volume)


def assumed_objects(snapshot: Snapshot, members: Iterable[MemberDecision]) -> list[Obj]:
    """Return the volumes and claims as the bindings of these members leave them, where that changes them."""
    claims, volumes = snapshot.objects("PersistentVolumeClaim"), snapshot.objects("PersistentVolume")
    found: list[Obj] = []
    for member in members:
        for binding in member.volumes:
            claim = claims.get(binding.path)
            before = volumes.get(binding.volume) if binding.volume else claim
            if claim is None or before is None:
                continue
            after = volume_for_claim(before, claim) if binding.volume else claim_for_node(before, member.node or "")
            if after is not before:
                found.append(after)
    return found
