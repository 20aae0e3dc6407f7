"""Why a running pod is where it is: what each node would say to it now, if it had no place yet."""

from __future__ import annotations

from haru.engine.cluster import Snapshot
from haru.engine.groups import Options
from haru.engine.pods import PodInfo
from haru.explain import hypothesis
from haru.explain.explanation import NodeGroup
from haru.explain.study import study
from haru.explain.work import Work


def why_here(snapshot: Snapshot, pod: PodInfo, options: Options) -> tuple[NodeGroup, ...]:
    """The nodes by what they would say: on the cluster without the pod and without what only it holds."""
    path = pod.key.path
    spec = {key: value for key, value in pod.spec.items() if key not in ("nodeName", "schedulingGroup")}
    again = PodInfo.of({**pod.obj, "spec": spec, "status": {**pod.status, "phase": "Pending"}})
    before = hypothesis.with_pods(hypothesis.without_pods(snapshot, [path]), [again])
    return study(before, Work((path,)), options).nodes
