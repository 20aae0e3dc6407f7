"""LimitRanges: defaults and bounds, in the words of 1.36."""

from __future__ import annotations

from typing import Any

import pytest

from haru.kube.errors import aggregate
from haru.kube.limit_ranges import ANNOTATION, pod_faults, set_defaults, volume_claim_faults

Obj = dict[str, Any]


def ranges(*items: Obj) -> Obj:
    return {"metadata": {"name": "r"}, "spec": {"limits": list(items)}}


def pod(*containers: Obj, **spec: Any) -> Obj:
    return {"metadata": {"name": "p"}, "spec": {"containers": list(containers), **spec}}


def container(name: str = "a", requests: Obj | None = None, limits: Obj | None = None) -> Obj:
    return {"name": name, "resources": {"requests": requests or {}, "limits": limits or {}}}


def test_limit_range_defaults_fill_missing_requests_and_limits() -> None:
    made = pod(container(requests={"cpu": "1"}), container("b"), initContainers=[container("i", limits={"cpu": "9"})])
    default = {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "500m", "memory": "1Gi"}}
    before = made["spec"]
    set_defaults(ranges(default), made)
    first, second = made["spec"]["containers"]
    assert first["resources"] == {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}}
    assert second["resources"] == {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "2"}}
    assert made["spec"]["initContainers"][0]["resources"]["limits"] == {"cpu": "9"}
    assert made["metadata"]["annotations"][ANNOTATION] == (
        "LimitRanger plugin set: memory request for container a; cpu limit for container a; "
        "cpu, memory request for container b; cpu limit for container b; cpu, memory request for init container i"
    )
    assert before["containers"][1]["resources"]["limits"] == {}, "what was given stays as it was"


def test_pod_with_own_limits_gets_no_annotation() -> None:
    made = pod(container(limits={"cpu": "1"}))
    set_defaults(ranges({"type": "Container", "default": {"cpu": "2"}}, {"type": "Pod", "max": {"cpu": "1"}}), made)
    assert "annotations" not in made["metadata"]


@pytest.mark.parametrize(
    ("item", "made", "faults"),
    [
        ({"min": {"cpu": "1"}}, container(), ["minimum cpu usage per Container is 1.  No request is specified"]),
        (
            {"min": {"cpu": "1"}},
            container(requests={"cpu": "500m"}),
            ["minimum cpu usage per Container is 1, but request is 500m"],
        ),
        (
            {"min": {"cpu": "1"}},
            container(requests={"cpu": "1"}, limits={"cpu": "900m"}),
            ["minimum cpu usage per Container is 1, but limit is 900m"],
        ),
        (
            {"max": {"memory": "1Gi"}},
            container(),
            ["maximum memory usage per Container is 1Gi.  No limit is specified"],
        ),
        (
            {"max": {"nvidia.com/gpu": "2"}},
            container(limits={"nvidia.com/gpu": "4"}),
            ["maximum nvidia.com/gpu usage per Container is 2, but limit is 4"],
        ),
        (
            {"max": {"cpu": "2"}},
            container(requests={"cpu": "3"}, limits={"cpu": "2"}),
            ["maximum cpu usage per Container is 2, but request is 3"],
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            container(requests={"cpu": "1"}, limits={"cpu": "5"}),
            ["cpu max limit to request ratio per Container is 2, but provided ratio is 5.000000"],
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            container(limits={"cpu": "5"}),
            ["cpu max limit to request ratio per Container is 2, but no request is specified or request is 0"],
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            container(requests={"cpu": "5"}),
            ["cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0"],
        ),
        ({"maxLimitRequestRatio": {"cpu": "1500m"}}, container(requests={"cpu": "2"}, limits={"cpu": "3"}), []),
    ],
)
def test_container_bounds_are_enforced(item: Obj, made: Obj, faults: list[str]) -> None:
    assert pod_faults(ranges({"type": "Container", **item}), pod(made)) == faults
    assert pod_faults(ranges({"type": "Container", **item}), pod(initContainers=[made])) == faults


def test_pod_bounds_apply_to_sum_of_containers() -> None:
    both = pod(container(requests={"cpu": "2"}, limits={"cpu": "2"}), container("b", {"cpu": "3"}, {"cpu": "3"}))
    assert pod_faults(ranges({"type": "Pod", "max": {"cpu": "4"}}), both) == [
        "maximum cpu usage per Pod is 4, but limit is 5"
    ]
    assert pod_faults(ranges({"type": "Pod", "min": {"cpu": "5"}}), both) == []


def test_volume_claim_bounds_are_enforced() -> None:
    item = {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}

    def faults(size: str) -> list[str]:
        return volume_claim_faults(ranges(item), {"spec": {"resources": {"requests": {"storage": size}}}})

    assert faults("1536Mi") == []
    assert faults("1Mi") == ["minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"]
    assert faults("3Gi") == ["maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"]


def test_several_violations_are_reported_together() -> None:
    assert aggregate(["a", "b", "a"]) == "[a, b]" and aggregate(["a"]) == "a"
