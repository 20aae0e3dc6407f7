"""Members that have succeeded: counted where the PodGroup says so, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from engine_objects import Obj, node, options, pod, pod_group

from haru.engine.podgroup import decide, pre_enqueue
from haru.engine.podgroup.podgroup_info import as_needed, count_succeeded
from haru.engine.state.cache import SchedulerCache

COUNTING = {"haru.dev/count-succeeded": "true"}


def group(minimum: int | None, annotations: dict[str, str]) -> Obj:
    made = pod_group("g", minimum)
    return {**made, "metadata": {**made["metadata"], "annotations": annotations}}


@pytest.mark.parametrize(
    ("minimum", "annotations", "succeeded", "expected"),
    [
        (4, COUNTING, 0, 4),
        (4, COUNTING, 1, 3),
        (4, COUNTING, 9, 1),
        (4, {}, 1, 4),
        (4, {"haru.dev/count-succeeded": "false"}, 1, 4),
    ],
)
def test_succeeded_members_reduce_min_count_when_annotated(
    minimum: int, annotations: Any, succeeded: int, expected: int
) -> None:
    given = group(minimum, annotations)
    seen = as_needed(given, succeeded)
    assert seen["spec"]["schedulingPolicy"]["gang"]["minCount"] == expected
    assert given["spec"]["schedulingPolicy"]["gang"]["minCount"] == minimum
    assert seen["metadata"] == given["metadata"]


def test_basic_policy_is_unchanged_by_succeeded_members() -> None:
    given = group(None, COUNTING)
    assert as_needed(given, 3) is given


@pytest.mark.parametrize("annotations", [COUNTING, {}])
def test_succeeded_members_count_in_snapshot_of_files(annotations: Any) -> None:
    done = {**pod("done", group="g", node="n"), "status": {"phase": "Succeeded"}}
    new = pod("new", group="g")
    objects = [node("n"), group(3, annotations), done, pod("runs", group="g", node="n"), new]
    cluster = SchedulerCache.of(objects)
    count_succeeded(cluster)
    snapshot = cluster.snapshot()
    held = pre_enqueue(snapshot, new)
    decision = decide(snapshot, [new], group=snapshot.pod_groups["default/g"], options=options())
    if annotations:
        assert (held, decision.status) == (None, "scheduled")
    else:
        assert held is not None and held.type == "TooFewMembers"
