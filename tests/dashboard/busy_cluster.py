"""A busy cluster for the dashboard: 192 cards, 80 pods, two gangs that wait, MIG, idle notebooks, and faults."""

from __future__ import annotations

import json
from typing import NamedTuple

from haru_process import Obj, Up, phase, until

PROFILES = "dgx-h100:10,hgx-h200:4,dgx-a100-80gb-mig:4,dgx-a100-40gb:4,hgx-b200:2,cpu:2"
CARDS, PODS = 192, 80
URGENT_SECONDS = 480
NAMESPACES = ("platform", "research", "serving", "vision")


class Work(NamedTuple):
    """Work of one kind: so many pods with so many devices each; `busy` is their utilization, None if unmeasured."""

    namespace: str
    kind: str
    name: str
    pods: int
    devices: int
    expression: str
    busy: float | None
    device_class: str = "gpu.nvidia.com"
    priority: str = ""
    seconds: int = 0
    """Its run-time limit; 0 for none."""


def product(name: str) -> str:
    return f'device.attributes["gpu.nvidia.com"].productName == "{name}"'


def profile(name: str) -> str:
    return f'device.attributes["gpu.nvidia.com"].profile == "{name}"'


H100, H200 = product("NVIDIA H100 80GB HBM3"), product("NVIDIA H200")
A100, A100_40, B200 = (
    product("NVIDIA A100-SXM4-80GB"), product("NVIDIA A100-SXM4-40GB"), product("NVIDIA B200")
)  # fmt: skip
RUNNING = (
    Work("research", "Job", "pretrain-70b", 8, 8, H100, 93),
    Work("research", "Job", "ablation", 4, 2, H100, 71),
    Work("research", "Deployment", "notebooks", 6, 1, H100, 1),
    Work("serving", "Deployment", "chat-llm", 4, 4, H200, 62),
    Work("serving", "Deployment", "embedder", 8, 1, H200, 38),
    Work("serving", "Deployment", "vision-api", 12, 1, profile("1g.10gb"), 45, "mig.nvidia.com"),
    Work("serving", "Deployment", "rerank", 6, 1, profile("3g.40gb"), 22, "mig.nvidia.com"),
    Work("vision", "Job", "finetune", 4, 4, A100_40, 85),
    Work("vision", "Deployment", "labs", 6, 1, A100_40, 0),
    Work("vision", "Deployment", "demo", 4, 1, A100_40, None),
    Work("platform", "Job", "evaluation", 2, 8, B200, 97),
    Work("platform", "Deployment", "dev-boxes", 6, 1, A100, 3),
)
WAITING = (
    Work("research", "Job", "pretrain-moe", 8, 8, H100, 90),
    Work("serving", "Job", "batch-inference", 2, 8, H200, 80),
)


def fill(up: Up) -> None:
    """Create the work, and wait until it runs or waits; then let two things fail."""
    for name in NAMESPACES:
        up.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    # The largest pods first, each size bound before the next: pods of one card are spread, and leave no whole node.
    for devices in sorted({work.devices for work in RUNNING}, reverse=True):
        for work in RUNNING:
            if work.devices == devices:
                create(up, work)
        awaited = sum(work.pods for work in RUNNING if work.devices >= devices)
        until("the work runs", lambda: sum(phase(pod) == "Running" for pod in pods(up)) == awaited, 120, 0.2)  # noqa: B023
    for work in WAITING:
        create(up, work)
    until("all pods are there", lambda: len(pods(up)) == PODS, 60, 0.2)
    taint = {"simulated.haru.dev/device-taints": "gpu-7=xid-79:NoSchedule"}
    up.api.patch("nodes", "hgx-h200-3", {"metadata": {"annotations": taint}})
    up.api.patch("nodes", "dgx-a100-40gb-3", {"spec": {"unschedulable": True}})


def disturb(up: Up) -> None:
    """Let urgent work preempt, and let a card fail under the work that holds it.

    The urgent work has a time limit, so that it is known when what it has preempted is expected to start again.
    """
    up.api.create(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1000}
    )
    urgent = Work("serving", "Job", "hotfix", 1, 8, B200, 88, priority="urgent", seconds=URGENT_SECONDS)
    create(up, urgent)
    broken = {"simulated.haru.dev/device-taints": "gpu-1=xid-48:NoExecute"}
    up.api.patch("nodes", "hgx-h200-1", {"metadata": {"annotations": broken}})


def pods(up: Up) -> list[Obj]:
    return [pod for name in NAMESPACES for pod in up.api.list("pods", name)]


def create(up: Up, work: Work) -> None:
    """Create the claim template and the Job or Deployment."""
    for obj in objects(work):
        up.api.create(obj, work.namespace)


def objects(work: Work) -> list[Obj]:
    asked = {"deviceClassName": work.device_class, "count": work.devices,
             "selectors": [{"cel": {"expression": work.expression}}]}  # fmt: skip
    claims = {"devices": {"requests": [{"name": "gpu", "exactly": asked}]}}
    template = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                "metadata": {"name": work.name}, "spec": {"spec": claims}}  # fmt: skip
    notes = {} if work.busy is None else {"simulated.haru.dev/utilization": str(work.busy)}
    pod = {
        "metadata": {"labels": {"app": work.name}, "annotations": notes},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "registry.example.com/work:1",
                            "resources": {"requests": {"cpu": "2"}, "claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": work.name}],
        },
    }  # fmt: skip
    if work.seconds:
        pod["spec"]["activeDeadlineSeconds"] = work.seconds
    if work.priority:
        pod["spec"]["priorityClassName"] = work.priority
    made: Obj = {"metadata": {"name": work.name}}
    if work.kind == "Job":
        pod["spec"]["restartPolicy"] = "Never"
        spec = {"completionMode": "Indexed", "parallelism": work.pods, "completions": work.pods, "template": pod}
        made |= {"apiVersion": "batch/v1", "kind": "Job", "spec": spec}
    else:
        selector = {"matchLabels": {"app": work.name}}
        made |= {"apiVersion": "apps/v1", "kind": "Deployment",
                 "spec": {"replicas": work.pods, "selector": selector, "template": pod}}  # fmt: skip
    return json.loads(json.dumps([template, made]))  # type: ignore[no-any-return]
