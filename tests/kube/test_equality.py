"""What counts as a change of an object: pointers, empty lists, zeros and JSON values."""

from __future__ import annotations

import pytest
from counted_calls import steps
from kube_cases import Obj

from haru.kube.equality import same_json, same_members, same_objects


@pytest.mark.parametrize(
    ("new", "old", "is_same"),
    [
        ({"securityContext": {"seLinuxOptions": {}}}, {"securityContext": {}}, False),
        ({"affinity": {}}, {}, False),
        ({"nodeSelector": {}, "tolerations": []}, {}, True),
        ({"hostNetwork": False, "nodeName": ""}, {}, True),
        ({"priority": 0}, {}, False),
        ({"containers": [{"name": "a", "resources": {}}]}, {"containers": [{"name": "a"}]}, True),
        ({"containers": [{"name": "a", "lifecycle": {}}]}, {"containers": [{"name": "a"}]}, False),
        ({"containers": [{"name": "a"}]}, {"containers": []}, False),
        ({"volumes": [{"emptyDir": {"sizeLimit": "0"}}]}, {"volumes": [{"emptyDir": {}}]}, False),
    ],
)
def test_empty_object_differs_from_none_and_empty_list_does_not(new: Obj, old: Obj, is_same: bool) -> None:
    assert same_objects(new, old, "core.v1.PodSpec") is is_same
    assert same_objects(old, new, "core.v1.PodSpec") is is_same


def test_one_is_not_true() -> None:
    assert not same_json({"a": 1}, {"a": True})
    parameters = [{"opaque": {"driver": "d", "parameters": {"a": each}}} for each in (1, True)]
    one, other = ({"config": [each]} for each in parameters)
    assert not same_members(one, other, "config", "resource.v1.DeviceClassSpec")


def test_pointer_that_is_written_as_null_differs_from_an_empty_object() -> None:
    one, other = ({"podGroupTemplates": [{"name": "a", "schedulingConstraints": each}]} for each in ({}, None))
    assert not same_members(one, other, "podGroupTemplates", "scheduling.v1alpha2.WorkloadSpec")


def test_equal_specs_are_told_without_a_look_at_each_field() -> None:
    def cost(count: int) -> int:
        one, other = (
            {"spec": {"devices": {"requests": [{"name": f"r-{n}", "exactly": {"count": n}} for n in range(count)]}}}
            for _ in range(2)
        )
        return steps(lambda: same_members(one, other, "spec", "resource.v1.ResourceClaim")).count

    assert cost(20) == cost(1)
