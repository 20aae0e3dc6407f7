"""LeaderWorkerSets: each group, a leader with its workers, is one gang.

The controller makes the workers after the leader has a place (exclusive topology) or is ready (`LeaderReady`): there
the leader is scheduled alone, and its workers are the gang. In an update the workers of the last revision outlive their
leader for a moment: they are no members of the gang of the new one, as with the project's own PodGroups for Volcano.
Source: kubernetes-sigs/lws v0.10, api/leaderworkerset/v1, pkg/controllers/pod_controller.go and pkg/schedulerprovider,
as behaviour.
"""

from __future__ import annotations

from haru.gangs.gang import SEPARATOR, ForeignKind, Gang, Source, annotation, label, number, part
from haru.kube.meta import Obj

SET = ForeignKind("leaderworkerset.x-k8s.io", ("v1",), "LeaderWorkerSet", "leaderworkersets")
NAME_LABEL = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX_LABEL = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX_LABEL = "leaderworkerset.sigs.k8s.io/worker-index"
REVISION_LABEL = "leaderworkerset.sigs.k8s.io/template-revision-hash"
SIZE = "leaderworkerset.sigs.k8s.io/size"
EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"


class LeaderWorkerSet:
    """A group of a LeaderWorkerSet, by its index and revision."""

    name = "leaderworkerset"
    kinds = (SET,)

    def source_of(self, pod: Obj) -> Source | None:
        """Return the set of a pod that has both labels of a group's members."""
        name = label(pod, NAME_LABEL)
        return Source(SET, name) if name and label(pod, GROUP_INDEX_LABEL) else None

    def gang_of(self, pod: Obj, obj: Obj | None) -> Gang | None:
        """Return the gang of the pod's group; the size on the pod is that of its revision."""
        size = number(annotation(pod, SIZE)) or number(part(obj, "spec", "leaderWorkerTemplate", "size"), 1)
        later = bool(annotation(pod, EXCLUSIVE)) or part(obj, "spec", "startupPolicy") == "LeaderReady"
        if later and label(pod, WORKER_INDEX_LABEL) == "0":
            return None
        count = size - 1 if later else size
        group = [label(pod, key) for key in (NAME_LABEL, GROUP_INDEX_LABEL, REVISION_LABEL)]
        return Gang(SET.prefix + SEPARATOR.join(filter(None, group)), count) if count > 1 else None
