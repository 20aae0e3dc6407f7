"""What the scheduler keeps of pods and claims: all that decisions read, in bounded memory."""

from __future__ import annotations

import copy
import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.engine import SchedulerCache
from haru.engine.state import KeptFields, PodInfo
from haru.kube.meta import Obj
from haru.scheduler.queue.queueing_hints import scheduling_fields

TIME = "2026-11-01T00:00:00Z"
_READ = (
    "labels", "group", "controller", "priority", "scheduler_name", "terminal", "deleting", "preempted",
    "nominated_node", "gated", "requests", "usage", "scoring_requests", "host_ports", "claims", "claim_paths",
    "is_unlimited", "ends_by_itself", "tolerations", "volume_claims", "ephemeral_claims", "disks",
    "images", "needed_features", "has_required_anti_affinity", "inter_pod", "shape",
)  # fmt: skip


def running_pod(number: int) -> Obj:
    """A pod of a Job as an API server has it once it runs."""
    name, job = f"job-1-{number}-abcde", {"job-name": "job-1", "controller-uid": "0a0b0c0d-1111-2222-3333-444444444444"}
    access = f"kube-api-access-{number:05}"
    states = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": TIME}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    index = "batch.kubernetes.io/job-completion-index"
    container = {
        "name": "main",
        "image": "registry.example.com/work:1",
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "INDEX", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{index}']"}}}],
        "ports": [{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "4", "memory": "64Gi"}, "claims": [{"name": "gpu"}]},
        "terminationMessagePath": "/dev/termination-log",
        "volumeMounts": [{"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": access}],
    }
    sources = [{"serviceAccountToken": {"path": "token"}}, {"configMap": {"name": "kube-root-ca.crt"}}]
    volumes = [
        {"name": access, "projected": {"defaultMode": 420, "sources": sources}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    away = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "resourceVersion": str(100_000 + number),
            "creationTimestamp": TIME,
            "labels": {**job, index: str(number)},
            "annotations": {index: str(number)},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "job-1", "uid": "j", "controller": True}
            ],
            "managedFields": [{"manager": "haru", "fieldsV1": {"f:spec": {f"f:{n}": {} for n in range(20)}}}],
        },
        "spec": {
            "nodeName": f"node-{number // 8}",
            "schedulerName": "default-scheduler",
            "restartPolicy": "Never",
            "serviceAccountName": "default",
            "containers": [container],
            "volumes": volumes,
            "tolerations": away,
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
        },
        "status": {
            "phase": "Running",
            "startTime": TIME,
            "hostIPs": [{"ip": "10.0.0.1"}],
            "podIPs": [{"ip": f"10.1.{number // 200}.{number % 200}"}],
            "conditions": states,
            "containerStatuses": [
                {"name": "main", "containerID": f"c://{number}", "state": {"running": {"startedAt": TIME}}}
            ],
            "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}],
        },
    }


def allocated_claim(number: int) -> Obj:
    """The claim of that pod, with a device."""
    name, node = f"job-1-{number}-abcde", f"node-{number // 8}"
    uid = f"00000000-0000-0000-0000-{number:012}"
    results = [{"request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": f"gpu-{number % 8}"}]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    exactly = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"{name}-gpu",
            "namespace": "team",
            "uid": f"11111111-0000-0000-0000-{number:012}",
            "resourceVersion": str(200_000 + number),
            "finalizers": ["resource.kubernetes.io/delete-protection"],
            "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}],
        },
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        "status": {
            "allocation": {
                "devices": {"results": results},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
            },
            "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
        },
    }


def node(number: int) -> Obj:
    """A node."""
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": TIME}
    meta = {"name": f"node-{number}", "labels": {"kubernetes.io/hostname": f"node-{number}"}, "uid": f"n-{number}"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": status}


def slice_of(number: int) -> Obj:
    """The slice of a node with eight devices, each with an identity of its own."""
    devices = [
        {
            "name": f"gpu-{card}",
            "attributes": {"uuid": {"string": f"GPU-{number}-{card}"}, "productName": {"string": "H100"}},
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for card in range(8)
    ]
    name = f"node-{number}"
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": name, "pool": pool, "devices": devices}
    meta = {"name": f"slice-{number}", "uid": f"s-{number}", "resourceVersion": "1"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": meta, "spec": spec}


_PARTS: st.SearchStrategy[Obj] = st.fixed_dictionaries(
    {},
    optional={
        "affinity": st.just({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
        ]}}),
        "initContainers": st.just([{"name": "first", "image": "x", "command": ["sh"], "restartPolicy": "Always",
                                    "resources": {"requests": {"cpu": "8"}}}]),
        "volumes": st.lists(st.sampled_from([
            {"name": "a", "emptyDir": {}}, {"name": "b", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "c", "rbd": {"image": "i", "monitors": ["m"]}},
            {"name": "d", "persistentVolumeClaim": {"claimName": "p"}},
            {"name": "e", "secret": {"secretName": "s"}}, {"name": "f", "hostPath": {"path": "/var/lib/kubelet"}},
        ])),
        "schedulingGroup": st.just({"podGroupName": "g"}),
        "overhead": st.just({"cpu": "1"}),
        "nodeName": st.just(""),
        "topologySpreadConstraints": st.just([{"whenUnsatisfiable": "DoNotSchedule", "topologyKey": "zone"}]),
        "schedulingGates": st.just([{"name": "wait"}]),
        "containers": st.just([{"name": "other"}]),
    },
)  # fmt: skip
_STATUS: st.SearchStrategy[Obj] = st.fixed_dictionaries(
    {},
    optional={
        "conditions": st.just([{"type": "PodResizePending", "reason": "Infeasible"}, {"type": "Initialized"}]),
        "containerStatuses": st.just([{"name": "main", "imageID": "i", "allocatedResources": {"cpu": "6"}}]),
        "nominatedNodeName": st.just("node-7"),
        "phase": st.sampled_from(["Pending", "Running", "Failed"]),
    },
)


@given(st.integers(0, 20), _PARTS, _STATUS)
def test_what_decisions_read_of_a_pod_is_kept(number: int, spec: Obj, status: Obj) -> None:
    pod = running_pod(number)
    pod["spec"] |= spec
    pod["status"] |= status
    before, fields = copy.deepcopy(pod), KeptFields()
    kept = fields.pod(pod)
    assert pod == before
    assert fields.pod(kept) == kept
    whole, slim = PodInfo.of(pod), PodInfo.of(kept)
    assert {name: getattr(slim, name) for name in _READ} == {name: getattr(whole, name) for name in _READ}
    assert vars(slim.terms) == vars(whole.terms) if hasattr(slim.terms, "__dict__") else slim.terms == whole.terms
    assert repr(slim.run_deadline) == repr(whole.run_deadline)
    assert _hinted(kept) == _hinted(pod)


@given(st.lists(st.tuples(_STATUS, st.booleans()), min_size=1, max_size=6))
def test_status_is_kept_alike_before_and_after_a_kubelet_tells_it(statuses: list[tuple[Obj, bool]]) -> None:
    dropped, of_container = {"hostIPs", "podIPs"}, {"containerID", "imageID", "user", "volumeMounts"}
    fields = KeptFields()
    for number, (status, told) in enumerate(statuses):
        pod = {**running_pod(number), "status": {**(running_pod(number)["status"] if told else {}), **status}}
        wanted = {name: value for name, value in pod["status"].items() if name not in dropped}
        if "conditions" in wanted:
            unread = ("ContainersReady", "Initialized", "PodReadyToStartContainers")
            wanted["conditions"] = [one for one in wanted["conditions"] if one["type"] not in unread]
        if "containerStatuses" in wanted:
            listed = wanted["containerStatuses"]
            wanted["containerStatuses"] = [{k: v for k, v in one.items() if k not in of_container} for one in listed]
        assert fields.pod(pod)["status"] == wanted


def test_pods_of_which_no_kubelet_has_told_share_their_status() -> None:
    fields = KeptFields()
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": TIME}
    waiting: Obj = {"phase": "Pending", "qosClass": "Burstable", "conditions": [scheduled]}
    pods = [{**running_pod(number), "status": copy.deepcopy(waiting)} for number in (1, 2)]
    one, other = map(fields.pod, pods)
    assert one["status"] is other["status"]
    for number in range(3):
        fields.pod(running_pod(number))
    assert len(fields._statuses) == 1


def _hinted(pod: Obj) -> Any:
    """What wakes units, but for the volumes that no filter reads."""
    fields = scheduling_fields(pod)
    return orjson.dumps(fields, default=str, option=orjson.OPT_SORT_KEYS) if "volumes" not in str(fields) else None


@given(st.integers(0, 20))
def test_claim_is_kept_whole_and_untouched(number: int) -> None:
    claim = allocated_claim(number)
    kept = KeptFields().claim(claim)
    assert kept == claim == allocated_claim(number)


def test_pods_of_one_template_share_what_they_have_alike() -> None:
    fields = KeptFields()
    one, other = (fields.pod(orjson.loads(orjson.dumps(running_pod(number)))) for number in (1, 2))
    for name in ("containers", "tolerations", "volumes"):
        assert one["spec"][name] is other["spec"][name]
    assert one["metadata"]["ownerReferences"] is other["metadata"]["ownerReferences"]


def test_shared_parts_are_bounded_however_many_differ() -> None:
    fields = KeptFields()
    for number in range(20_000):
        fields._shared.part({"number": number})
    assert len(fields._shared) <= 8192


def _objects(kind: str, nodes: int) -> Iterator[Obj]:
    for number in range(nodes):
        if kind == "Node":
            yield node(number)
        elif kind == "ResourceSlice":
            yield slice_of(number)
        else:
            made: Callable[[int], Obj] = running_pod if kind == "Pod" else allocated_claim
            yield from (made(8 * number + card) for card in range(8))


def _bytes(kind: str, nodes: int) -> int:
    """The memory of the cache and the informer's store for the objects of a kind on so many nodes."""
    cache, fields, store = SchedulerCache(), KeptFields(), dict[str, Obj]()
    transforms: dict[str, Callable[[Obj], Obj]] = {"Pod": fields.pod, "ResourceClaim": fields.claim}
    for obj in _objects("Node", nodes if kind != "Node" else 0):
        cache.apply(obj)
    cache.snapshot()
    encoded = [orjson.dumps(obj) for obj in _objects(kind, nodes)]
    gc.collect()
    tracemalloc.start()
    try:
        for data in encoded:
            decoded: Obj = orjson.loads(data)
            obj = transforms[kind](decoded) if kind in transforms else decoded
            cache.apply(obj)
            if kind != "ResourceSlice":
                store[obj["metadata"]["name"]] = obj
        cache.snapshot()
        del obj
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("kind", "per_node", "most"),
    [("Node", 1, 6_000), ("ResourceSlice", 8, 3_500), ("Pod", 8, 8_000), ("ResourceClaim", 8, 5_000)],
)
def test_memory_of_an_object_is_bounded(kind: str, per_node: int, most: int) -> None:
    small, large = 10, 30
    # The least of three: Python's table of interned texts is made anew now and then, as large as earlier tests need it.
    least = {nodes: min(_bytes(kind, nodes) for _ in range(3)) for nodes in (small, large)}
    assert (least[large] - least[small]) / ((large - small) * per_node) < most
