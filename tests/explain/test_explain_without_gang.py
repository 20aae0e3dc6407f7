"""Jobs that could be gangs and get no group of their own: it is said, and why."""

from __future__ import annotations

from typing import Any

import pytest
from engine_objects import Obj, node, options, pod

from haru.engine import SchedulerCache
from haru.explain import explain

EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def asked_about(annotations: Obj, *objects: Obj, **spec: Any) -> Any:
    template = {"metadata": {}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    shape = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": template, **spec}
    metadata = {"name": "train", "namespace": "default", "uid": "uid-train", "annotations": annotations}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": shape}
    return explain(SchedulerCache.of([node("a"), *objects, job]).snapshot(), "job", job, options=options())


def messages(told: Any) -> list[str]:
    return [reason.message for reason in told.reasons if reason.type == "NoGang"]


@pytest.mark.parametrize(
    ("annotations", "why"),
    [
        ({"haru.dev/gang": "false"}, 'its annotation haru.dev/gang is "false"'),
        (
            {EXCLUSIVE: "rack"},
            f"JobSet places it exclusively ({EXCLUSIVE}), and its other pods come once the first has a node",
        ),
    ],
)
def test_job_without_gang_names_reason(annotations: Obj, why: str) -> None:
    told = asked_about(annotations)
    assert messages(told) == [f"it gets no gang of its own: {why}"]
    assert told.summary.endswith(f"; it gets no gang of its own: {why}")


def test_running_job_without_gang_names_reason() -> None:
    running = pod("train-0", node="a")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train", "controller": True}
    running["metadata"]["ownerReferences"] = [owner]
    running["status"] = {"phase": "Running"}
    told = asked_about({"haru.dev/gang": "false"}, running)
    assert (told.verdict, len(messages(told))) == ("Runs", 1)


@pytest.mark.parametrize(
    ("annotations", "spec"),
    [({}, {}), ({"haru.dev/gang": "true"}, {}), ({"haru.dev/gang": "false"}, {"completionMode": "NonIndexed"})],
)
def test_gang_or_non_indexed_job_does_not_mention_gang(annotations: Obj, spec: Obj) -> None:
    told = asked_about(annotations, **spec)
    assert not messages(told) and "gang of its own" not in told.summary
