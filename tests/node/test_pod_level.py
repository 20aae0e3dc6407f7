"""What the status of a pod says of the pod as a whole: what it was allocated, and what its group has."""

from __future__ import annotations

from typing import Any

import pytest

from haru.kube.pod_resize import Allocations
from haru.node.podworker.pod_level import level_status
from haru.node.status.pod_status import status_patch

Obj = dict[str, Any]


def container(requests: Obj | None = None, limits: Obj | None = None) -> Obj:
    sizes = {name: amounts for name, amounts in (("requests", requests), ("limits", limits)) if amounts}
    return {"name": "a", "image": "i", "resources": sizes}


def pod(*containers: Obj, phase: str = "Running", level: Obj | None = None, **status: Any) -> Obj:
    spec: Obj = {"containers": [{**one, "name": f"c{n}"} for n, one in enumerate(containers)]}
    if level:
        spec["resources"] = level
    return {"metadata": {"name": "p", "uid": "u"}, "spec": spec, "status": {"phase": phase, **status}}


ONE = container({"cpu": "100m", "memory": "64Mi", "ephemeral-storage": "1Gi"}, {"cpu": "200m", "memory": "128Mi"})


@pytest.mark.parametrize(
    ("made", "resources", "allocated"),
    [
        (pod(container()), {}, None),
        (
            pod(ONE, phase="Pending"),
            {
                "requests": {"cpu": "100m", "memory": "64Mi", "ephemeral-storage": "1Gi"},
                "limits": {"cpu": "200m", "memory": "128Mi"},
            },
            {"cpu": "100m", "memory": "64Mi", "ephemeral-storage": "1Gi"},
        ),
        (
            pod(ONE),
            {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}},
            {"cpu": "100m", "memory": "64Mi", "ephemeral-storage": "1Gi"},
        ),
        # A container without a limit leaves the group without one.
        (
            pod(ONE, container()),
            {"requests": {"cpu": "100m", "memory": "64Mi"}},
            {"cpu": "100m", "memory": "64Mi", "ephemeral-storage": "1Gi"},
        ),
        # What was told before it ran stays, though.
        (
            pod(ONE, container(), resources={"limits": {"cpu": "200m", "memory": "128Mi", "example.com/x": "1"}}),
            {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}},
            {"cpu": "100m", "memory": "64Mi", "ephemeral-storage": "1Gi"},
        ),
        (
            pod(container({"cpu": "100m"}), level={"requests": {"cpu": "300m"}, "limits": {"memory": "1Gi"}}),
            {"requests": {"cpu": "300m"}, "limits": {"memory": "1Gi"}},
            {"cpu": "300m"},
        ),
    ],
)
def test_status_says_what_the_group_of_a_running_pod_has(made: Obj, resources: Obj, allocated: Obj | None) -> None:
    told = level_status(made, is_actuated=True)
    assert (told["resources"], told.get("allocatedResources")) == (resources, allocated)


def test_old_groups_tell_a_limit_of_memory_that_they_do_not_have() -> None:
    made = pod(ONE, container(), resources={"limits": {"cpu": "200m", "memory": "128Mi"}})
    told = level_status(made, is_actuated=True, tells_unlimited=True)
    assert told["resources"]["limits"] == {"cpu": "200m"}


def test_resources_stay_until_the_group_has_what_was_allocated() -> None:
    had = {"requests": {"cpu": "100m"}}
    made = pod(container(), level={"requests": {"cpu": "300m"}}, resources=had)
    told = level_status(made, is_actuated=False)
    assert told == {"resources": had, "allocatedResources": {"cpu": "300m"}}


def test_resource_that_is_no_longer_told_goes_from_the_status() -> None:
    before = {"resources": {"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}, "limits": {"cpu": "1"}}}
    assert status_patch(before, {"resources": {"requests": {"cpu": "2"}}}) == {
        "resources": {"requests": {"ephemeral-storage": None, "cpu": "2"}, "limits": None}
    }


def test_pod_of_an_earlier_agent_has_what_its_status_says() -> None:
    told = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}
    # What is told of containers as a sum is no request of the pod's own.
    assert Allocations().allocated(plain := pod(ONE, resources=told)) is plain
    same = pod(ONE, level={"requests": {"cpu": "100m"}}, resources=told)
    assert Allocations().allocated(same) is same
    larger = pod(ONE, level={"requests": {"cpu": "300m"}}, resources=told)
    assert Allocations().allocated(larger)["spec"]["resources"] == {"requests": {"cpu": "100m"}}
