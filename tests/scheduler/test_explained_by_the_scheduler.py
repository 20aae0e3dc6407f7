"""The scheduler explains from what it keeps of the cluster: it offers what `haru explain` offers."""

from __future__ import annotations

import pytest
from test_explain_scenarios import CLASS, Obj, gpus, made_by, of_deployment, on, taken, wants

from haru.engine import SchedulerCache
from haru.engine.state import WATCHED_KINDS
from haru.explain import explain
from haru.scheduler.events.informers import OPTIONAL, REQUIRED, TRANSFORMS

JOB_SET = "JobSet/train"
CASES: dict[str, list[Obj]] = {
    "deployment": of_deployment(taken("a", "gpu-0")),
    "stateful set": made_by("StatefulSet/web", taken("a", "gpu-0", name="web-0"), {"replicas": 1}),
    "the third of a stateful set": made_by(
        "StatefulSet/web", taken("a", "gpu-0", name="web-5"), {"replicas": 3, "ordinals": {"start": 3}}
    ),
    "job": made_by("Job/train", taken("a", "gpu-0"), {"parallelism": 1}),
    "job of a job set": made_by("Job/train", taken("a", "gpu-0"), {"parallelism": 1}, above=JOB_SET),
    "job of Kueue": made_by(
        "Job/train", taken("a", "gpu-0"), {"parallelism": 1}, labels={"kueue.x-k8s.io/queue-name": "q"}
    ),
    "job of somebody else": made_by("Job/train", taken("a", "gpu-0"), {"managedBy": "example.com/jobs"}),
}


@pytest.mark.parametrize("name", CASES)
def test_what_the_scheduler_keeps_gives_the_same_remedies(name: str) -> None:
    objects = [CLASS, *on("a", gpus(1)), *CASES[name], *wants(1)]
    kept = [TRANSFORMS[obj["kind"]](obj) if obj["kind"] in TRANSFORMS else obj for obj in objects]
    waiting = next(obj for obj in objects if obj["kind"] == "Pod" and obj["metadata"]["name"] == "p")
    whole, told = (explain(SchedulerCache.of(each).snapshot(), "pod", waiting) for each in (objects, kept))
    assert whole.remedies and told == whole


def test_all_by_which_the_scheduler_closes_nodes_is_read_to_explain_it() -> None:
    """But for what pods are spread by on their own, which closes no node."""
    spread_by = {
        ("v1", "Service"),
        ("v1", "ReplicationController"),
        ("apps/v1", "ReplicaSet"),
        ("apps/v1", "StatefulSet"),
    }
    assert {*REQUIRED, *OPTIONAL} - spread_by <= {*WATCHED_KINDS}
