"""The demands of equal pods at once: each has claims of its own, which ask for what those of the first do.

What a demand is computed from is looked up again for every snapshot, but compared for all pods together.
Source: our own; each demand is the one that `new_device_demand` computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, repeat
from operator import attrgetter, itemgetter, methodcaller

from haru.engine.framework.options import Options
from haru.engine.plugins.dynamicresources.pod_claims import ClaimUse, claim_name, consumer
from haru.engine.plugins.dynamicresources.prefilter import DeviceDemand, counts_devices, new_device_demand
from haru.engine.state.cow_map import are_same, values_of
from haru.engine.state.decision import Reason
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj, controller_uid_of

_SPEC, _STATUS = methodcaller("get", "spec"), methodcaller("get", "status")
_ALLOCATION, _DELETED = methodcaller("get", "allocation"), methodcaller("get", "deletionTimestamp")
_METADATA, _UID = itemgetter("metadata"), attrgetter("key.uid")


@dataclass(frozen=True, slots=True, eq=False)
class EqualDemands:
    """The demands of equal pods, in their order, and what they were computed from."""

    demands: tuple[DeviceDemand, ...]
    _first: PodInfo
    _group: Obj | None
    _workload_claims: bool
    _classes: object
    _claims: Mapping[str, Obj]
    _paths: frozenset[str]

    @staticmethod
    def of(overlay: Overlay, pods: Sequence[PodInfo], group: Obj | None, options: Options) -> EqualDemands | None:
        """Compute the demands of pods with equal specs; None where each has to be asked by itself."""
        snapshot, first = overlay.snapshot, pods[0]
        if not _are_plain(overlay, first, options):
            return None
        demand = new_device_demand(overlay, first, group, options)
        if isinstance(demand, Reason) or demand.fixed or len(demand.pending) != len(first.claims):
            return None
        shared = ((group or {}).get("spec") or {}).get("resourceClaims") and options.gates.workload_claims
        if shared and any(entry.claim_name for entry in first.claims):
            return None  # what some pods name may be their group's
        found = [demand]
        if first.claims:
            uses = _own_claims(overlay, pods[1:], demand.pending)
            if uses is None:
                return None
            found += map(demand.for_claims, uses)
        paths = frozenset([use.path for one in found for use in one.uses])
        if len(paths) != len(pods) * len(first.claims):
            return None  # pods share a claim
        demands = tuple(found) if first.claims else (demand,) * len(pods)
        gate, classes = options.gates.workload_claims, snapshot.devices.classes
        return EqualDemands(demands, first, group, gate, classes, snapshot.claims, paths)

    def hold(self, overlay: Overlay, group: Obj | None, options: Options) -> bool:
        """Tell whether the demands are the same on this overlay."""
        snapshot = overlay.snapshot
        if group is not self._group or options.gates.workload_claims is not self._workload_claims:
            return False
        if snapshot.devices.classes is not self._classes or not _are_plain(overlay, self._first, options):
            return False
        in_flight = snapshot.claim_index.in_flight
        if in_flight and any(path in in_flight for path in self._paths):
            return False
        if overlay.allocates and any(overlay.allocation(path) for path in self._paths):
            return False
        return are_same(snapshot.claims, self._claims, self._paths)


def _are_plain(overlay: Overlay, first: PodInfo, options: Options) -> bool:
    """Tell whether pods can only demand devices by claims, and of whole devices."""
    snapshot = overlay.snapshot
    if overlay.next_pass is not None or counts_devices(snapshot, options):
        return False
    return not (options.gates.extended_resources and (first.extended_resources or snapshot.claim_index.extended))


def _own_claims(
    overlay: Overlay, pods: Sequence[PodInfo], like: Sequence[ClaimUse]
) -> list[tuple[ClaimUse, ...]] | None:
    """Return the claims of each pod, which have yet to be allocated; None unless they are like these."""
    owners = [pod for pod in pods for _ in pod.claims]
    names = [entry.claim_name or claim_name(pod, entry) for pod in pods for entry in pod.claims]
    paths = [f"{pod.key.namespace}/{name}" for pod, name in zip(owners, names, strict=True)]
    in_flight = overlay.snapshot.claim_index.in_flight
    if (overlay.allocates and any(map(overlay.allocation, paths))) or (
        in_flight and any(p in in_flight for p in paths)
    ):
        return None
    claims = list(filter(None, values_of(overlay.snapshot.claims, paths)))
    if len(claims) < len(paths):
        return None  # some do not exist, or have no name yet, for no claim is named None
    if [*map(_SPEC, claims)] != [other.claim.get("spec") for other in like] * len(pods):
        return None
    if any(map(_ALLOCATION, filter(None, map(_STATUS, claims)))) or any(map(_DELETED, map(_METADATA, claims))):
        return None
    made = [not entry.claim_name for entry in pods[0].claims] * len(pods)
    if [*map(controller_uid_of, compress(claims, made))] != [*compress(map(_UID, owners), made)]:
        return None  # one was made from a template, for another pod
    uses = map(ClaimUse, paths, claims, map(consumer, owners, repeat(None)))
    return list(zip(*[uses] * len(like), strict=True))
