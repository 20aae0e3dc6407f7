"""What goes wrong after a pod has its place, played on simulated nodes and explained as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from explain_schema import REMEDIES_AFTER_PENDING, check_explanation
from explain_world import cluster
from situations_after import (
    CRASHED,
    NOW,
    SITUATIONS,
    claim,
    claim_of,
    deployed,
    driver_pod,
    placed,
    prepare_event,
    status_of,
    unhealthy,
    unprepared,
    waiting,
)

from haru.api.snapshot import Snapshot
from haru.engine import SchedulerCache
from haru.explain import Explanation, explain
from haru.explain.render import redacted
from haru.kube.names import format_time
from haru.testing import Cluster

Obj = dict[str, Any]

WORK = """
apiVersion: v1
kind: Pod
metadata: {name: crash}
spec: {containers: [{name: main, image: busybox, command: [sh, -c, "echo loading; sleep 1; exit 3"]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: oom}
spec:
  containers:
  - name: main
    image: polinux/stress
    command: [stress]
    args: [--vm, "1", --vm-bytes, 250M, --vm-hang, "1"]
    resources: {limits: {memory: 100Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: pull}
spec: {containers: [{name: main, image: "registry.invalid/train:1"}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: card}
spec:
  spec:
    devices:
      requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com, tolerations: [{operator: Exists}]}}]
---
apiVersion: v1
kind: Pod
metadata: {name: device, labels: {app: device}}
spec:
  containers: [{name: main, image: busybox, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: card}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: device}
spec: {minAvailable: 1, selector: {matchLabels: {app: device}}}
"""
RULE = """
apiVersion: resource.k8s.io/v1beta2
kind: DeviceTaintRule
metadata: {name: broken}
spec:
  deviceSelector: {driver: gpu.nvidia.com, pool: dgx-h100-0}
  taint: {key: xid, value: "79", effect: NoSchedule}
"""


def explained(cluster: Cluster, name: str) -> Explanation:
    events = [{"apiVersion": "v1", "kind": "Event", **event} for event in cluster.list("Event")]
    snapshot = Snapshot.of([*Snapshot.fetch(Path(cluster.kubeconfig)), *events])
    answer = snapshot.explain(f"pod/{name}", now=cluster.now)
    assert isinstance(answer, Explanation)
    return answer


def reason(told: Explanation, kind: str) -> Obj:
    return next(one.to_json() for one in told.reasons if one.type == kind)


def test_situations_have_every_remedy_of_pods_with_a_place() -> None:
    told = [one.explanation() for one in SITUATIONS]
    kinds = {remedy.kind for answer in told for remedy in answer.remedies}
    assert kinds == {*REMEDIES_AFTER_PENDING, "CorrectName", "MoveWork"}
    for answer in told:
        check_explanation(answer.as_dict())


def test_no_remedy_without_the_right_to_read_devices() -> None:
    snapshot = SchedulerCache.of(Snapshot.of([*cluster(dgx_h100=1), unhealthy(), claim("one")])).snapshot()
    for unread, kinds in (((), {"TaintDevice"}), (("ResourceSlice",), set())):
        answer = explain(snapshot, "pod", snapshot.pods["default/p"].obj, now=format_time(NOW), unread=unread)
        assert {remedy.kind for remedy in answer.remedies} == kinds


def test_pod_of_a_driver_is_not_named_to_a_tenant() -> None:
    event = prepare_event("NodePrepareResources failed for ResourceClaim one: gpu-4: ECC error", 2)
    objects = [*cluster(dgx_h100=1), unprepared(), claim_of("gpu-3", "gpu-4"), event, driver_pod()]
    snapshot = SchedulerCache.of(Snapshot.of(objects)).snapshot()
    answer = explain(snapshot, "pod", snapshot.pods["default/p"].obj, now=format_time(NOW))
    whole, tenants = (str(one.as_dict()) for one in (answer, redacted(answer, snapshot, {"default"})))
    assert "nvidia-kubelet-plugin-x" in whole
    assert "nvidia-kubelet-plugin-x" not in tenants and "kubectl logs" not in tenants


def test_table_of_what_waits_names_pods_with_a_place_that_do_not_run() -> None:
    crashed = placed("p", CRASHED, phase="Running")
    pulls = placed("q", status_of(state=waiting("ErrImagePull")), phase="Pending")
    starts = placed("r", status_of(state=waiting("ContainerCreating")), phase="Pending")
    snapshot = Snapshot.of([*cluster(dgx_h100=1), *deployed(crashed, 1), pulls, starts])
    found = snapshot.explain_pending("")
    assert found.in_trouble == ("default/p", "default/q") and found.as_dict()["inTrouble"] == ["default/p", "default/q"]
    assert found.total == (
        "nothing waits in namespace default; 2 pods have their places and do not run: haru explain pod/p -n default"
    )
    of_workload = snapshot.explain_pending("replicaset/web-1")
    assert of_workload.in_trouble == ("default/p",) and "1 pod has its place and does not run" in of_workload.total
    assert "inTrouble" not in snapshot.explain_pending("", selector="app=none").as_dict()


UNPREPARED = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: card}
spec:
  devices:
    requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]
---
apiVersion: v1
kind: Pod
metadata: {name: device}
spec:
  containers: [{name: main, image: busybox, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimName: card}]
"""


@pytest.mark.haru(profiles="dgx-h100:1")
def test_claim_that_cannot_be_prepared_is_explained_and_its_remedy_moves_the_pod(haru_cluster: Cluster) -> None:
    failing = {"simulated.haru.dev/fail-preparation": "gpu-0=GPU has fallen off the bus"}
    haru_cluster.patch("Node", "dgx-h100-0", {"metadata": {"annotations": failing}})
    haru_cluster.apply(UNPREPARED)
    haru_cluster.advance(25)
    told = explained(haru_cluster, "device")
    why = reason(told, "FailedPrepareDynamicResources")
    assert told.verdict == "FitsIf" and why["message"].endswith("ResourceClaim card: gpu-0: GPU has fallen off the bus")
    assert why["count"] >= 2
    remedy = told.remedies[0]
    assert (remedy.kind, remedy.confirmed) == ("TaintDevice", True) and "gpu-0" in remedy.summary
    rule, _, pod = (change["object"] for change in remedy.changes)
    haru_cluster.apply(rule)
    haru_cluster.delete("Pod", "device")
    haru_cluster.advance(5)
    haru_cluster.apply(pod)
    haru_cluster.wait("Pod", "device")
    claim = haru_cluster.get("ResourceClaim", "card")
    assert claim is not None
    assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-1"


@pytest.mark.haru(profiles="dgx-h100:1")
def test_troubles_after_pending_are_explained_with_the_numbers_of_the_cluster(haru_cluster: Cluster) -> None:
    haru_cluster.apply(WORK)
    haru_cluster.wait("Pod", "device")
    haru_cluster.apply(RULE)
    haru_cluster.patch("Node", "dgx-h100-0", {"spec": {"unschedulable": True}})
    haru_cluster.wait_for(
        "PodDisruptionBudget", "device", lambda budget: (budget.get("status") or {}).get("expectedPods") == 1
    )
    haru_cluster.advance(18)
    # Runs of a second: started at 0, 1 and 12; it ended at 13, and waits 20 s.
    crash = reason(explained(haru_cluster, "crash"), "CrashLoopBackOff")
    assert (crash["restarts"], crash["exitCode"], crash["backOffSeconds"]) == (2, 3, 20)
    status = haru_cluster.get("Pod", "crash")["status"]["containerStatuses"][0]  # type: ignore[index]
    assert crash["restarts"] == status["restartCount"]
    assert 0 < crash["backOffSecondsLeft"] <= 20
    oom = reason(explained(haru_cluster, "oom"), "OOMKilled")
    assert (oom["exitCode"], oom["memoryLimit"], oom["restarts"]) == (137, "100Mi", 2)
    pull = explained(haru_cluster, "pull")
    assert pull.verdict == "FitsIf" and "lookup registry.invalid: no such host" in pull.summary
    device = explained(haru_cluster, "device")
    assert reason(device, "DeviceTainted")["taints"] == {"xid=79:NoSchedule": 1}
    waits = reason(device, "EvictionWaits")
    assert (waits["podDisruptionBudget"], waits["disruptionsAllowed"], waits["expectedPods"]) == ("device", 0, 1)
