"""Conversion between versions: lossless both ways, and nothing is copied that need not be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube_cases import Obj, claim, device, kind_of, resource, slice_of

from haru.kube.conversion import convert
from haru.kube.kinds import known_kind


def there_and_back(obj: Obj, api_version: str) -> Obj:
    own = kind_of(obj)
    return convert(convert(obj, known_kind(api_version, own.kind)), own)


texts = st.sampled_from(["a", "gpu", "x-1"])
selectors = st.lists(st.just({"cel": {"expression": "true"}}), max_size=2)
exact = st.fixed_dictionaries(
    {"deviceClassName": texts},
    optional={
        "selectors": selectors,
        "allocationMode": st.sampled_from(["ExactCount", "All"]),
        "count": st.integers(1, 9),
        "adminAccess": st.booleans(),
        "tolerations": st.lists(st.just({"operator": "Exists"}), max_size=2),
        "capacity": st.just({"requests": {"memory": "1Gi"}}),
    },
)
alternatives = st.lists(exact.map(lambda e: {"name": "s", **e}), min_size=1, max_size=3)
inline_requests = st.one_of(
    exact.map(lambda e: {"name": "r", **e}), alternatives.map(lambda a: {"name": "r", "firstAvailable": a})
)
payloads = st.fixed_dictionaries(
    {},
    optional={
        "attributes": st.dictionaries(texts, st.just({"int": 1}), max_size=2),
        "capacity": st.just({"memory": {"value": "1Gi"}}),
        "consumesCounters": st.just([{"counterSet": "s", "counters": {"c": {"value": "1"}}}]),
        "nodeName": texts,
        "nodeSelector": st.just({"nodeSelectorTerms": [{}]}),
        "allNodes": st.just(True),
        "taints": st.just([{"key": "k", "effect": "None"}]),
        "bindsToNode": st.booleans(),
        "bindingConditions": st.just(["ready"]),
        "bindingFailureConditions": st.just(["failed"]),
        "allowMultipleAllocations": st.booleans(),
        "nodeAllocatableResourceMappings": st.just({"cpu": {}}),
    },
)


@given(st.lists(inline_requests, max_size=4), st.booleans())
def test_v1beta1_claims_round_trip_through_v1(requests: list[Obj], templated: bool) -> None:
    spec: Obj = {"devices": {"requests": requests}} if requests else {}
    obj = resource("ResourceClaim", spec, "v1beta1")
    if templated:
        obj = resource("ResourceClaimTemplate", {"spec": spec}, "v1beta1")
    assert there_and_back(obj, "resource.k8s.io/v1") == obj
    other_way = convert(obj, known_kind("resource.k8s.io/v1", obj["kind"]))
    assert there_and_back(other_way, "resource.k8s.io/v1beta1") == other_way
    assert there_and_back(other_way, "resource.k8s.io/v1beta2") == other_way


@given(st.lists(payloads, max_size=4), st.booleans())
def test_v1beta1_slices_round_trip_through_v1(basics: list[Obj], counters: bool) -> None:
    spec: Obj = {"driver": "d", "pool": {"name": "p"}, "nodeName": "n"}
    if counters:
        spec["sharedCounters"] = [{"name": "s", "counters": {"c": {"value": "1"}}}]
    else:
        spec["devices"] = [{"name": f"d{i}", "basic": basic} for i, basic in enumerate(basics)]
    obj = resource("ResourceSlice", spec, "v1beta1")
    assert there_and_back(obj, "resource.k8s.io/v1") == obj


def test_zero_values_of_v1beta1_are_omitted_in_v1() -> None:
    old = resource("ResourceSlice", {"nodeName": "", "allNodes": False, "devices": [{"name": "a"}]}, "v1beta1")
    assert convert(old, known_kind("resource.k8s.io/v1", "ResourceSlice"))["spec"] == {"devices": [{"name": "a"}]}
    request: Obj = {"name": "r", "deviceClassName": "", "count": 0, "firstAvailable": [{"name": "s"}]}
    old = resource("ResourceClaim", {"devices": {"requests": [request]}}, "v1beta1")
    new = convert(old, known_kind("resource.k8s.io/v1", "ResourceClaim"))
    assert new["spec"]["devices"]["requests"] == [{"name": "r", "firstAvailable": [{"name": "s"}]}]


def test_request_with_both_forms_is_kept_for_validation() -> None:
    request = {"name": "r", "deviceClassName": "c", "firstAvailable": [{"name": "s"}]}
    old = resource("ResourceClaim", {"devices": {"requests": [request]}}, "v1beta1")
    new = convert(old, known_kind("resource.k8s.io/v1", "ResourceClaim"))["spec"]["devices"]["requests"][0]
    assert new == {"name": "r", "exactly": {"deviceClassName": "c"}, "firstAvailable": [{"name": "s"}]}


def test_conversion_shares_unchanged_parts() -> None:
    obj = slice_of(device())
    beta = convert(obj, known_kind("resource.k8s.io/v1beta1", "ResourceSlice"))
    assert beta["metadata"] is obj["metadata"]
    assert beta["spec"]["devices"][0]["basic"]["attributes"] is obj["spec"]["devices"][0]["attributes"]
    assert convert(obj, kind_of(obj)) is obj
    newer = convert(claim(), known_kind("resource.k8s.io/v1beta2", "ResourceClaim"))
    assert newer == {**claim(), "apiVersion": "resource.k8s.io/v1beta2"}


def test_device_taint_rules_convert_by_version_only() -> None:
    rule = resource("DeviceTaintRule", {"taint": {"key": "k", "effect": "None"}}, "v1alpha3")
    moved = convert(rule, known_kind("resource.k8s.io/v1beta2", "DeviceTaintRule"))
    assert moved == {**rule, "apiVersion": "resource.k8s.io/v1beta2"}


def test_core_and_events_api_events_convert_into_each_other() -> None:
    core = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p"},
        "reason": "Scheduled",
        "message": "hello",
        "source": {"component": "haru"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 3,
        "reportingComponent": "haru",
        "reportingInstance": "haru-1",
        "type": "Normal",
    }
    event = convert(core, known_kind("events.k8s.io/v1", "Event"))
    assert event["regarding"] == core["involvedObject"]
    assert event["note"] == "hello"
    assert event["deprecatedCount"] == 3
    assert event["reportingController"] == "haru"
    assert convert(event, known_kind("v1", "Event")) == core


def autoscaler(metrics: list[Obj], **more: Any) -> Obj:
    target = {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "annotations": {"own": "1"}},
        "spec": {"scaleTargetRef": target, "maxReplicas": 5, "metrics": metrics, **more},
    }


def cpu(value: int) -> Obj:
    target = {"type": "Utilization", "averageUtilization": value}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


METRICS: list[Obj] = [
    {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
    {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "1k"}}},
    {
        "type": "Object",
        "object": {
            "metric": {"name": "hits", "selector": {"matchLabels": {"a": "b"}}},
            "describedObject": {"kind": "Service", "name": "web"},
            "target": {"type": "Value", "value": "100"},
        },
    },
    {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "30"}}},
]


@pytest.mark.parametrize("metrics", [[], [cpu(50)], METRICS, [*METRICS, cpu(70)]])
def test_autoscaler_v1_keeps_v2_fields_in_annotations(metrics: list[Obj]) -> None:
    new = autoscaler(metrics, behavior={"scaleDown": {"selectPolicy": "Disabled"}})
    if not metrics:
        del new["spec"]["metrics"]
    old = convert(new, known_kind("autoscaling/v1", "HorizontalPodAutoscaler"))
    assert "metrics" not in old["spec"]
    assert old["spec"].get("targetCPUUtilizationPercentage") == next(
        (m["resource"]["target"]["averageUtilization"] for m in metrics if m == cpu(50) or m == cpu(70)), None
    )
    if not metrics:
        new["spec"]["metrics"] = [cpu(80)]
    assert convert(old, known_kind("autoscaling/v2", "HorizontalPodAutoscaler")) == new
