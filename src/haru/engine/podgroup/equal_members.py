"""Runs of members that no filter, score or rule tells apart, as nearly all members of a gang are.

What holds for the first of a run holds for all: their demands are computed together, they are placed without being
compared again, and once one of them is refused so are the ones after it.
Source: our own; kube-scheduler's opportunistic batching (KEP-5598) has the same purpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

from haru.engine.framework.options import Options
from haru.engine.plugins.dynamicresources.equal_demands import EqualDemands
from haru.engine.plugins.dynamicresources.prefilter import DeviceDemand, device_demand_of
from haru.engine.state.decision import Reason
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.pod_values import PodClaim
from haru.engine.state.snapshot import Snapshot
from haru.kube.meta import Obj

_TOPIC = "equal members"
_MAX_GROUPS = 4
_PIECES = attrgetter("nominated_node", "shape", "claims", "images")


class EqualMembers:
    """Hold pods that follow each other and are equal in all but their names, their claims and some `varying` labels.

    The pods of an Indexed Job, for example, differ in the label with their index.
    """

    __slots__ = ("_demands", "pods", "varying")

    def __init__(self, pods: Sequence[PodInfo]) -> None:
        self.pods = pods
        labels = pods[0].labels
        differing = [pod.labels.items() ^ labels.items() for pod in pods if pod.labels != labels]
        self.varying = frozenset([key for items in differing for key, _ in items])
        self._demands: EqualDemands | None = None

    @property
    def by_labels(self) -> Sequence[PodInfo]:
        """Return the pods that have to be looked at where labels count: the first stands for all with its labels."""
        return self.pods if self.varying else self.pods[:1]

    @staticmethod
    def of(snapshot: Snapshot, members: Sequence[PodInfo]) -> Sequence[EqualMembers]:
        """Return the runs of some members in their order; each is alone where results are not shared."""
        cache = snapshot.decision_cache
        if len(members) == 1 or not cache.shares_results:
            return [EqualMembers((pod,)) for pod in members]
        key = tuple(members)
        return cache.get_or_compute(_TOPIC, key, lambda: _runs(key), _MAX_GROUPS)

    def demands(self, overlay: Overlay, group: Obj | None, options: Options) -> Sequence[DeviceDemand] | None:
        """Return what each requests of devices on an overlay; None where each has to be asked by itself."""
        if len(self.pods) == 1:
            return None
        known = self._demands
        if known is None or not known.hold(overlay, group, options):
            known = self._demands = EqualDemands.of(overlay, self.pods, group, options)
        return None if known is None else known.demands


def members_with_demands(
    overlay: Overlay, members: Sequence[PodInfo], group: Obj | None, options: Options
) -> Iterator[tuple[EqualMembers, Sequence[DeviceDemand | Reason]]]:
    """Yield the members in their order, equal ones together, with what each requests of devices on an overlay."""
    for run in EqualMembers.of(overlay.snapshot, members):
        demands = run.demands(overlay, group, options)
        if demands is not None:
            yield run, demands
            continue
        for pod in run.pods:
            yield EqualMembers((pod,)), (device_demand_of(overlay, pod, group, options),)


def _runs(members: Sequence[PodInfo]) -> list[EqualMembers]:
    found: list[EqualMembers] = []
    # Most are equal in all of this, and are not compared piece by piece.
    pieces = list(
        zip(map(_PIECES, members), [pod.obj["metadata"].get("ownerReferences") for pod in members], strict=True)
    )
    begin, first, alone = 0, pieces[0], bool(members[0].nominated_node)
    for number in range(1, len(members) + 1):
        if number < len(members) and not alone and pieces[number] == first:
            continue
        if number == len(members) or not _equal(members[begin], members[number]):
            found.append(EqualMembers(members[begin:number]))
            if number < len(members):
                begin, first, alone = number, pieces[number], bool(members[number].nominated_node)
    return found


def _equal(first: PodInfo, pod: PodInfo) -> bool:
    """Tell whether two pods are equal but for their labels; a nominated pod may have a place of its own."""
    if pod.nominated_node or first.nominated_node or pod.shape != first.shape:
        return False
    if pod.claims != first.claims and list(map(_as_named, pod.claims)) != list(map(_as_named, first.claims)):
        return False
    owners = pod.obj["metadata"].get("ownerReferences") == first.obj["metadata"].get("ownerReferences")
    return owners and pod.images == first.images


def _as_named(entry: PodClaim) -> object:
    """An entry without the name of its claim: each pod may have one of its own."""
    return entry.name, bool(entry.claim_name), entry.template_name
