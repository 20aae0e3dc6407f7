"""What goes wrong after a pod has its place: containers, claims, devices, evictions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from explain_world import cluster, gang, pod
from situations import Situation

from haru.api.snapshot import Snapshot
from haru.explain import Explanation

Obj = dict[str, Any]
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
NODE = "dgx-h100-0"


def status_of(name: str = "main", restarts: int = 0, **state: Any) -> Obj:
    made = {"name": name, "image": "x", "imageID": "", "ready": False, "restartCount": restarts, "lastState": {}}
    return {**made, **state}


def waiting(reason: str, message: str = "") -> Obj:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def ended(code: int, reason: str, at: str = "2026-01-01T11:59:00Z", **more: Any) -> Obj:
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": at, "finishedAt": at, **more}}


def placed(name: str = "p", *statuses: Obj, phase: str = "Running", init: Any = (), **more: Any) -> Obj:
    made = pod(name, nodeName=NODE, **more)
    made["metadata"] |= {"namespace": "default", "uid": name, "labels": {"app": "train"}}
    made["status"] = {"phase": phase, "containerStatuses": list(statuses), "initContainerStatuses": list(init)}
    return made


def back_off(pause: str) -> Obj:
    return waiting("CrashLoopBackOff", f"back-off {pause} restarting failed container=main pod=p_default(p)")


def claim(name: str, device: str = "gpu-3", reserved: bool = True) -> Obj:
    results = [{"request": "gpu", "driver": "gpu.nvidia.com", "pool": NODE, "device": device}]
    users = [{"resource": "pods", "name": "p", "uid": "p"}] if reserved else []
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}},
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": users},
    }


def with_claim(made: Obj) -> Obj:
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "one"}]
    return made


def prepare_event(message: str, count: int) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "p.1", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default", "uid": "p"},
        "reason": "FailedPrepareDynamicResources",
        "message": f"Failed to prepare dynamic resources: prepare dynamic resources: {message}",
        "count": count,
        "lastTimestamp": "2026-01-01T11:59:50Z",
    }


def taint_rule(device: str) -> Obj:
    taint = {"key": "xid", "value": "79", "effect": "NoExecute", "timeAdded": "2026-01-01T11:00:00Z"}
    selector = {"driver": "gpu.nvidia.com", "pool": NODE, "device": device}
    return {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "xid"},
        "spec": {"deviceSelector": selector, "taint": taint},
    }


def budget(allowed: int, healthy: int, desired: int, expected: int) -> Obj:
    counts = {"disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": desired}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"minAvailable": desired, "selector": {"matchLabels": {"app": "train"}}},
        "status": {**counts, "expectedPods": expected},
    }


def unavailable_budget() -> Obj:
    made = budget(0, 1, 1, 2)
    made["spec"] = {"maxUnavailable": "50%", "selector": made["spec"]["selector"]}
    return made


def cordoned(nodes: int = 1) -> Snapshot:
    """The first node is cordoned."""
    base = cluster(dgx_h100=nodes)
    return Snapshot.of(
        {**obj, "spec": {**obj.get("spec", {}), "unschedulable": True}}
        if obj["kind"] == "Node" and obj["metadata"]["name"] == NODE
        else obj
        for obj in base
    )


def small_node() -> Snapshot:
    """A node that has 3Gi of memory for pods."""
    base = cluster(dgx_h100=1)
    made = [json.loads(json.dumps(obj)) for obj in base]
    for obj in made:
        if obj["kind"] == "Node":
            obj["status"]["allocatable"]["memory"] = "3Gi"
    return Snapshot.of(made)


def as_it_is(base: Snapshot, objects: Sequence[Obj], about: str) -> Explanation:
    """What is said at noon if the objects are there just so."""
    answer = Snapshot.of([*base, *objects]).explain(about, now=NOW)
    assert isinstance(answer, Explanation)
    return answer


def one_node() -> Snapshot:
    return cluster(dgx_h100=1)


def after(name: str, *objects: Obj, about: str = "pod/p", base: Callable[[], Snapshot] = one_node) -> Situation:
    return Situation(f"after: {name}", base, objects, about, as_it_is)


CRASHED = status_of(restarts=5, state=back_off("2m40s"), lastState=ended(3, "Error"))
OOM_LIMITS = {"memory": "2Gi"}
RUNNING = {"running": {"startedAt": "2026-01-01T11:59:05Z"}}
PULL = 'rpc error: code = NotFound desc = failed to pull and unpack image "r.example.com/x:2": not found'
UNHEALTHY = [{"name": "claim:gpu/gpu", "resources": [{"resourceID": f"{NODE}/gpu-3", "health": "Unhealthy"}]}]


def unhealthy() -> Obj:
    return with_claim(placed("p", status_of(state=RUNNING, allocatedResourcesStatus=UNHEALTHY)))


def daemon(made: Obj) -> list[Obj]:
    made["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "agent", "uid": "ds", "controller": True}]
    return [made]


def crashing_gang() -> list[Obj]:
    group, *members = gang("g", 2)
    made = [placed(name, CRASHED if name == "g-1" else status_of(state=RUNNING), group="g") for name in ("g-0", "g-1")]
    assert len(members) == len(made)
    group["metadata"]["namespace"] = "default"
    return [group, *made]


def crashing_job() -> list[Obj]:
    job: Obj = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "default", "uid": "j"}}
    job["spec"] = {"template": {"spec": pod("t")["spec"]}}
    members = [placed("j-0", CRASHED), placed("j-1", status_of(state=RUNNING))]
    for one in members:
        one["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j", "uid": "j", "controller": True}]
    return [job, *members]


def deployed(made: Obj, replicas: int = 2) -> list[Obj]:
    """The pod, and the ReplicaSet and Deployment that make it."""
    template = {"spec": {k: v for k, v in made["spec"].items() if k != "nodeName"}}
    made["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "web-1", "uid": "rs", "controller": True}]
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "train"}}, "template": template}
    rs: Obj = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": spec}
    rs["metadata"] = {"name": "web-1", "namespace": "default", "uid": "rs"}
    rs["metadata"]["ownerReferences"] = [{"kind": "Deployment", "name": "web", "uid": "d", "controller": True}]
    return [made, rs]


def with_image(made: Obj, image: str) -> Obj:
    made["spec"]["containers"][0]["image"] = image
    return made


def not_pulled(image: str, answer: str) -> Obj:
    message = f'failed to pull and unpack image "{image}": {answer}'
    return with_image(placed("p", status_of(state=waiting("ErrImagePull", message)), phase="Pending"), image)


def oom_killed(**more: Any) -> Obj:
    status = status_of(restarts=4, state=back_off("1m20s"), lastState=ended(137, "OOMKilled"))
    return placed("p", status, limits=OOM_LIMITS, **more)


def driver_pod() -> Obj:
    made = placed("nvidia-kubelet-plugin-x", status_of(state=RUNNING))
    made["metadata"] |= {"namespace": "nvidia", "uid": "driver"}
    made["spec"]["volumes"] = [{"name": "plugins", "hostPath": {"path": "/var/lib/kubelet/plugins/"}}]
    return made


def claim_of(*devices: str) -> Obj:
    made = claim("one", devices[0])
    made["spec"]["devices"]["requests"][0]["exactly"]["count"] = len(devices)
    results = made["status"]["allocation"]["devices"]["results"]
    made["status"]["allocation"]["devices"]["results"] = [{**results[0], "device": device} for device in devices]
    return made


def unprepared() -> Obj:
    return with_claim(placed("p", status_of(state=waiting("ContainerCreating")), phase="Pending"))


def sharing(name: str) -> Obj:
    made = with_claim(placed(name, status_of(state=RUNNING)))
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "one"}]
    return made


def shared_claim() -> Obj:
    made = claim("one")
    made["status"]["reservedFor"].append({"resource": "pods", "name": "q", "uid": "q"})
    return made


SITUATIONS = [
    after("crash loop", placed("p", CRASHED)),
    after(
        "crash loop, the first pause",
        placed("p", status_of(restarts=1, state=back_off("10s"), lastState=ended(1, "Error", "2026-01-01T11:59:57Z"))),
    ),
    after(
        "a program that is not there",
        placed(
            "p",
            status_of(
                state=back_off("10s"),
                restarts=1,
                lastState=ended(128, "StartError", message='exec: "exit": not found in $PATH'),
            ),
        ),
    ),
    after(
        "OOM, waits for its restart",
        placed(
            "p", status_of(restarts=4, state=back_off("1m20s"), lastState=ended(137, "OOMKilled")), limits=OOM_LIMITS
        ),
    ),
    after(
        "OOM, runs again",
        placed("p", status_of(restarts=2, state=RUNNING, lastState=ended(137, "OOMKilled")), limits=OOM_LIMITS),
    ),
    after("OOM, final", placed("p", status_of(state=ended(137, "OOMKilled")), phase="Failed")),
    after("image cannot be pulled", placed("p", status_of(state=waiting("ErrImagePull", PULL)), phase="Pending")),
    after(
        "image back-off",
        placed(
            "p",
            status_of(state=waiting("ImagePullBackOff", f'Back-off pulling image "x": ErrImagePull: {PULL}')),
            phase="Pending",
        ),
    ),
    after(
        "configuration is missing",
        placed("p", status_of(state=waiting("CreateContainerConfigError", 'secret "key" not found')), phase="Pending"),
    ),
    after(
        "an init container crashes",
        placed("p", status_of(state=waiting("PodInitializing")), init=[{**CRASHED, "name": "load"}], phase="Pending"),
    ),
    after(
        "claims are not prepared: the driver says why",
        with_claim(placed("p", status_of(state=waiting("ContainerCreating")), phase="Pending")),
        claim("one"),
        prepare_event("NodePrepareResources failed for ResourceClaim one: GPU has fallen off the bus", 7),
    ),
    after(
        "claims are not prepared: not reserved",
        with_claim(placed("p", status_of(state=waiting("ContainerCreating")), phase="Pending")),
        claim("one", reserved=False),
    ),
    after(
        "device is unhealthy",
        unhealthy(),
        claim("one"),
    ),
    after(
        "device is tainted while it is held",
        with_claim(placed("p", status_of(state=RUNNING))),
        claim("one"),
        taint_rule("gpu-3"),
    ),
    after("eviction waits for a budget", placed("p", status_of(state=RUNNING)), budget(0, 2, 2, 2), base=cordoned),
    after("eviction is allowed", placed("p", status_of(state=RUNNING)), budget(1, 3, 2, 3), base=cordoned),
    after("OOM of a Deployment's pod", *deployed(oom_killed())),
    after("OOM of a pod of a DaemonSet", *daemon(oom_killed())),
    after("OOM of a pod whose larger limit has room nowhere", oom_killed(), base=small_node),
    after(
        "OOM with a limit, final",
        placed("p", status_of(state=ended(137, "OOMKilled")), phase="Failed", limits=OOM_LIMITS),
    ),
    after(
        "crash loop of a Deployment's pod, a long pause",
        *deployed(placed("p", status_of(restarts=7, state=back_off("5m0s"), lastState=ended(1, "Error")))),
    ),
    after(
        "image whose other tag runs in the namespace",
        not_pulled("r.example.com/train:2", "not found"),
        with_image(placed("q", status_of(state=RUNNING)), "r.example.com/train:1"),
    ),
    after(
        "image with a typing error, of a Deployment's pod",
        *deployed(not_pulled("r.example.com/trian:1", "not found")),
        with_image(placed("q", status_of(state=RUNNING)), "r.example.com/train:1"),
    ),
    after("image that needs credentials", not_pulled("r.example.com/train:2", "401 Unauthorized")),
    after("image of a registry that is away", not_pulled("r.example.com/train:2", "no such host")),
    after("image of a registry that limits pulls", not_pulled("train:2", "toomanyrequests: You have reached")),
    after(
        "claims are not prepared: one of two devices is named",
        unprepared(),
        claim_of("gpu-3", "gpu-4"),
        prepare_event("NodePrepareResources failed for ResourceClaim one: gpu-4: ECC error", 2),
        driver_pod(),
    ),
    after(
        "claims are not prepared: no device is named",
        unprepared(),
        claim_of("gpu-3", "gpu-4"),
        prepare_event("NodePrepareResources failed: rpc error: code = Unavailable", 2),
        base=lambda: cluster(dgx_h100=2),
    ),
    after("device is unhealthy, and another pod holds it", unhealthy(), shared_claim(), sharing("q")),
    after(
        "eviction of a Deployment's pod waits for a budget",
        *deployed(placed("p", status_of(state=RUNNING))),
        budget(0, 2, 2, 2),
        base=lambda: cordoned(2),
    ),
    after(
        "eviction waits for a budget of unavailable pods",
        placed("p", status_of(state=RUNNING)),
        unavailable_budget(),
        base=cordoned,
    ),
    after("crash loop of a gang's member", *crashing_gang(), about="podgroup/g"),
    after("crash loop of a job's pod", *crashing_job(), about="job/j"),
    after("starts as it should", placed("p", status_of(state=waiting("ContainerCreating")), phase="Pending")),
]
