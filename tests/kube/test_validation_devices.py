"""resource.k8s.io: one good object of each kind, and one mutation for each row of the error catalogue."""

from __future__ import annotations

from typing import Any

import pytest
from kube_cases import (
    ALL,
    DEFAULT,
    NOW,
    REMOVE,
    Obj,
    any_selector,
    claim,
    device,
    kind_of,
    problems,
    put,
    resource,
    slice_of,
    status_problems,
    update_problems,
)

from haru.kube import validation
from haru.kube.conversion import convert
from haru.kube.defaulting import apply_defaults
from haru.kube.kinds import by_kind

REQUEST = "spec.devices.requests.0"
EXACT = f"{REQUEST}.exactly"
SELECTOR = {"cel": {"expression": "true"}}
TAINT = {"key": "gpu.example.com/broken", "effect": "NoSchedule"}
COUNTERS = {"counterSet": "set", "counters": {"memory": {"value": "1Gi"}}}
OPAQUE = {"opaque": {"driver": "gpu.example.com", "parameters": {"mode": "shared"}}}
TWO_KINDS = "exactly one of `exactly` or `firstAvailable` is required"
NODE_CHOICE = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"

GOOD: list[Obj] = [
    claim(),
    claim("v1beta1"),
    claim("v1beta2", selectors=[SELECTOR], tolerations=[{"operator": "Exists"}], adminAccess=True),
    claim(allocationMode="All"),
    claim(capacity={"requests": {"gpu.example.com/memory": "1Gi"}}),
    resource("ResourceClaim", {}),
    resource("ResourceClaimTemplate", {"metadata": {"labels": {"a": "b"}}, "spec": claim()["spec"]}),
    resource("DeviceClass", {}),
    resource("DeviceClass", {"selectors": [SELECTOR], "config": [OPAQUE], "extendedResourceName": "example.com/gpu"}),
    slice_of(device(), device("gpu-1")),
    slice_of(devices=REMOVE),
    slice_of(devices=REMOVE, sharedCounters=[{"name": "set", "counters": {"memory": {"value": "80Gi"}}}]),
    slice_of(device(taints=[TAINT], consumesCounters=[COUNTERS])),
    slice_of(device(nodeName="worker-2"), nodeName=REMOVE, perDeviceNodeSelection=True),
    slice_of(device(bindingConditions=["ready"], bindingFailureConditions=["failed"], bindsToNode=True)),
    slice_of(device(attributes={"a/b/c": {"int": 1}})),
    slice_of(device(nodeAllocatableResourceMappings={"anything": {"allocationMultiplier": "1"}})),
    claim(tolerations=[{"key": f"k{i}"} for i in range(17)]),
    claim(capacity={"requests": {"no identifier": "1"}}),
    put(claim(), "spec.devices.constraints", [{"matchAttribute": "a.com/x", "distinctAttribute": "x"}]),
    resource("DeviceTaintRule", {"taint": {**TAINT, "timeAdded": NOW}}, "v1beta2"),
    resource("DeviceTaintRule", {"deviceSelector": {"driver": "gpu.example.com"}, "taint": TAINT}, "v1alpha3"),
    resource("ResourcePoolStatusRequest", {"driver": "gpu.example.com"}, "v1alpha3"),
]


@pytest.mark.parametrize("obj", GOOD, ids=lambda o: f"{o['kind']}-{o['apiVersion'].split('/')[1]}")
def test_valid_device_objects_are_accepted(obj: Obj) -> None:
    assert problems(obj) == []


CLAIM_FAULTS: list[tuple[str, Any, str]] = [
    (EXACT, REMOVE, f"spec.devices.requests[0]: Required value: {TWO_KINDS}"),
    (
        f"{REQUEST}.firstAvailable",
        [{"name": "a", "deviceClassName": "x"}],
        f"spec.devices.requests[0]: Invalid value: null: {TWO_KINDS}",
    ),
    (f"{REQUEST}.name", "", 'spec.devices.requests[0].name: Invalid value: "": a lowercase RFC 1123 label'),
    (f"{REQUEST}.name", "GPU", 'spec.devices.requests[0].name: Invalid value: "GPU": a lowercase RFC 1123 label'),
    (
        "spec.devices.requests",
        [{"name": f"r{i}", "exactly": {"deviceClassName": "c"}} for i in range(33)],
        "spec.devices.requests: Too many: 33: must have at most 32 items",
    ),
    (
        "spec.devices.requests",
        [{"name": "r", "exactly": {"deviceClassName": "c"}}] * 2,
        'spec.devices.requests[1]: Duplicate value: "r"',
    ),
    (f"{EXACT}.deviceClassName", REMOVE, "spec.devices.requests[0].exactly.deviceClassName: Required value"),
    (
        f"{EXACT}.allocationMode",
        "Immediate",
        'allocationMode: Unsupported value: "Immediate": supported values: "All", "ExactCount"',
    ),
    (f"{EXACT}.count", -1, "exactly.count: Invalid value: -1: must be greater than zero"),
    (
        EXACT,
        {"deviceClassName": "c", "allocationMode": "All", "count": 1},
        "count: Invalid value: 1: must not be specified when allocationMode is 'All'",
    ),
    (f"{EXACT}.selectors", [SELECTOR] * 33, "selectors: Too many: 33"),
    (f"{EXACT}.selectors", [{}], "exactly.selectors[0].cel: Required value"),
    (
        f"{EXACT}.selectors",
        [{"cel": {"expression": "bad"}}],
        'selectors[0].cel.expression: Invalid value: "bad": compilation failed: ERROR',
    ),
    (
        f"{EXACT}.selectors",
        [{"cel": {"expression": "slow"}}],
        "cel.expression: Forbidden: too complex, exceeds cost limit",
    ),
    (
        f"{EXACT}.selectors",
        [{"cel": {"expression": "x" * 10241}}],
        "cel.expression: Too long: may not be more than 10240 bytes",
    ),
    (
        f"{EXACT}.tolerations",
        [{"operator": "Exists", "value": "v"}],
        'tolerations[0].value: Invalid value: "v": must be empty for operator `Exists`',
    ),
    (
        f"{EXACT}.tolerations",
        [{"key": "k", "effect": "PreferNoSchedule"}],
        'effect: Unsupported value: "PreferNoSchedule": supported values: "NoExecute", "NoSchedule", "None"',
    ),
    (
        "spec.devices.constraints",
        [{"matchAttribute": "numa"}],
        'matchAttribute: Invalid value: "numa": a fully qualified name must be a domain and a name separated',
    ),
    (
        "spec.devices.constraints",
        [{"matchAttribute": "gpu.example.com/numa-node"}],
        "a valid C identifier must start with",
    ),
    (
        "spec.devices.constraints",
        [{"matchAttribute": "a.com/x", "requests": ["other"]}],
        'constraints[0].requests[0]: Invalid value: "other": must be the name of a request in the claim',
    ),
    (
        "spec.devices.constraints",
        [{"matchAttribute": "a.com/x", "requests": ["gpu/a/b"]}],
        "must be the name of a request in the claim or the name of a request and",
    ),
    (
        "spec.devices.constraints",
        [{}],
        'constraints[0]: Required value: exactly one of "matchAttribute" or "distinctAttribute"',
    ),
    ("spec.devices.config", [{"requests": ["other"], **OPAQUE}], "config[0].requests[0]: Invalid value"),
    ("spec.devices.config", [{}], "spec.devices.config[0].opaque: Required value"),
    ("spec.devices.config", [OPAQUE] * 33, "config: Too many: 33"),
    (
        "spec.devices.config",
        [{"opaque": {"driver": "d", "parameters": [1]}}],
        'parameters: Invalid value: "<value omitted>": must be a valid JSON object',
    ),
    ("spec.devices.config", [{"opaque": {"driver": "d"}}], "opaque.parameters: Required value"),
    ("spec.devices.config", [{"opaque": {"driver": "d", "parameters": {"a": "x" * 10240}}}], "parameters: Too long"),
    ("spec.devices.config", [{"opaque": {"driver": "d/e", "parameters": {}}}], "opaque.driver: Invalid value"),
    (
        REQUEST,
        {"name": "gpu", "firstAvailable": [{"name": f"s{i}", "deviceClassName": "c"} for i in range(9)]},
        "firstAvailable: Too many: 9: must have at most 8 items",
    ),
    (
        REQUEST,
        {"name": "gpu", "firstAvailable": [{"name": "s", "deviceClassName": "c"}] * 2},
        'firstAvailable[1]: Duplicate value: "s"',
    ),
    (
        REQUEST,
        {"name": "gpu", "firstAvailable": [{"deviceClassName": "c"}]},
        'firstAvailable[0].name: Invalid value: ""',
    ),
]


@pytest.mark.parametrize(("path", "value", "expected"), CLAIM_FAULTS)
def test_invalid_claim_is_refused(path: str, value: Any, expected: str) -> None:
    assert any(expected in text for text in problems(put(claim(), path, value)))


@pytest.mark.parametrize(("path", "value", "expected"), CLAIM_FAULTS[:8])
def test_claim_templates_are_validated_like_claims(path: str, value: Any, expected: str) -> None:
    template = resource("ResourceClaimTemplate", {"spec": claim()["spec"]})
    deeper = "spec." + expected if expected.startswith("spec.") else expected
    assert any(deeper in text for text in problems(put(template, f"spec.{path}", value)))


def test_claim_template_metadata_allows_only_labels_and_annotations() -> None:
    template = resource("ResourceClaimTemplate", {"metadata": {"name": "x"}, "spec": {}})
    assert problems(template) == ["spec.metadata.name: Forbidden: cannot be set"]
    template = resource("ResourceClaimTemplate", {"metadata": {"generation": 1, "finalizers": []}, "spec": {}})
    assert [text.split(":")[0] for text in problems(template)] == [
        "spec.metadata.generation",
        "spec.metadata.finalizers",
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"deviceClassName": ""}, f"spec.devices.requests[0]: Required value: {TWO_KINDS}"),
        ({"deviceClassName": "", "adminAccess": False}, "spec.devices.requests[0].exactly.allocationMode: Unsupported"),
        ({"count": -1}, "spec.devices.requests[0].exactly.count: Invalid value: -1"),
        (
            {"selectors": [{"cel": {"expression": "bad"}}]},
            "spec.devices.requests[0].exactly.selectors[0].cel.expression: Invalid",
        ),
    ],
)
def test_v1beta1_claim_errors_have_the_paths_of_v1(fields: Obj, expected: str) -> None:
    assert any(text.startswith(expected) for text in problems(claim("v1beta1", **fields)))


SLICE_FAULTS: list[tuple[Obj, str]] = [
    (slice_of(nodeName=REMOVE), f"spec: Required value: {NODE_CHOICE}"),
    (
        slice_of(allNodes=True),
        f'spec: Invalid value: "{{`nodeName`, `allNodes`}}": {NODE_CHOICE}, but multiple fields are set',
    ),
    (
        slice_of(nodeName=REMOVE, allNodes=False),
        "spec.allNodes: Invalid value: false: must be either unset or set to true",
    ),
    (slice_of(nodeName=""), 'spec.nodeName: Invalid value: "": must be either unset or set to a non-empty string'),
    (
        slice_of(nodeName=REMOVE, nodeSelector={"nodeSelectorTerms": []}),
        "nodeSelectorTerms: Required value: must have at least one node selector term",
    ),
    (
        slice_of(nodeName=REMOVE, nodeSelector={"nodeSelectorTerms": [{}, {}]}),
        "must have exactly one node selector term",
    ),
    (slice_of(driver=""), "spec.driver: Required value"),
    (slice_of(driver="gpu/x"), "spec.driver: Invalid value"),
    (slice_of(driver="d" * 64), "spec.driver: Too long: may not be more than 63 bytes"),
    (slice_of(pool={"name": "p"}), "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero"),
    (
        slice_of(pool={"name": "p", "generation": -1, "resourceSliceCount": 1}),
        "spec.pool.generation: Invalid value: -1",
    ),
    (slice_of(pool={"name": "a//b", "resourceSliceCount": 1}), 'spec.pool.name: Invalid value: ""'),
    (slice_of(*[device(f"d{i}") for i in range(129)]), "spec.devices: Too many: 129: must have at most 128 items"),
    (
        slice_of(*[device(f"d{i}", taints=[TAINT]) for i in range(65)]),
        "spec.devices: Too many: 65: must have at most 64 items",
    ),
    (slice_of(device(), device()), 'spec.devices[1]: Duplicate value: "gpu-0"'),
    (slice_of(device(name="")), 'spec.devices[0].name: Invalid value: ""'),
    (slice_of(device(), sharedCounters=[]), "only one of `sharedCounters` or `devices` is allowed"),
    (
        slice_of(device(attributes={"a": {}})),
        'spec.devices[0].attributes[a]: Invalid value: "": exactly one value must be specified',
    ),
    (slice_of(device(attributes={"a": {"int": 1, "bool": True}})), "exactly one value must be specified"),
    (
        slice_of(device(attributes={"a": {"string": "x" * 65}})),
        "attributes[a].string: Too long: may not be more than 64 bytes",
    ),
    (slice_of(device(attributes={"a": {"string": "é" * 33}})), "attributes[a].string: Too long"),
    (
        slice_of(device(attributes={"a": {"version": "8.0"}})),
        'attributes[a].version: Invalid value: "8.0": must be a string compatible with semver.org spec 2.0.0',
    ),
    (
        slice_of(device(attributes={"a": {"ints": []}})),
        "attributes[a].ints: Invalid value: []: must not be empty if specified",
    ),
    (
        slice_of(device(attributes={"a-b": {"int": 1}})),
        'spec.devices[0].attributes: Invalid value: "a-b": a valid C identifier',
    ),
    (slice_of(device(attributes={"/b": {"int": 1}})), "the domain must not be empty"),
    (
        slice_of(device(attributes={f"a{i}": {"int": i} for i in range(32)})),
        "spec.devices[0]: Invalid value: 33: the total number of attributes and capacities must not exceed 32",
    ),
    (
        slice_of(device(attributes={"a": {"ints": list(range(49))}})),
        "spec.devices[0]: Invalid value: 49: the total number of attribute values must not exceed 48",
    ),
    (
        slice_of(device(capacity={"memory": {"value": "1Gi", "requestPolicy": {}}})),
        "requestPolicy: Forbidden: allowMultipleAllocations must be true",
    ),
    (slice_of(device(taints=[TAINT] * 17)), "taints: Too many: 17"),
    (slice_of(device(taints=[{"key": "k", "effect": "PreferNoSchedule"}])), "taints[0].effect: Unsupported value"),
    (slice_of(device(taints=[{"key": "k"}])), "taints[0].effect: Required value"),
    (slice_of(device(consumesCounters=[COUNTERS] * 3)), "consumesCounters: Too many: 3: must have at most 2 items"),
    (slice_of(device(consumesCounters=[COUNTERS] * 2)), 'consumesCounters[1]: Duplicate value: "set"'),
    (slice_of(device(consumesCounters=[{"counterSet": "set"}])), "consumesCounters[0].counters: Required value"),
    (slice_of(devices=REMOVE, sharedCounters=[{"name": "s"}]), "spec.sharedCounters[0].counters: Required value"),
    (
        slice_of(
            devices=REMOVE, sharedCounters=[{"name": f"s{i}", "counters": {"a": {"value": "1"}}} for i in range(9)]
        ),
        "spec.sharedCounters: Too many: 9: must have at most 8 items",
    ),
    (
        slice_of(device(nodeName="x")),
        "can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
    ),
    (
        slice_of(device(), nodeName=REMOVE, perDeviceNodeSelection=True),
        "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when",
    ),
    (slice_of(device(bindingConditions=["ready"])), "bindingFailureConditions are required to use bindingConditions"),
    (
        slice_of(device(bindingFailureConditions=["bad"])),
        "bindingConditions are required to use bindingFailureConditions",
    ),
    (
        slice_of(device(bindingConditions=["a"], bindingFailureConditions=["a"])),
        "must not overlap with bindingConditions",
    ),
    (
        slice_of(device(bindingConditions=["a"] * 5, bindingFailureConditions=["b"])),
        "bindingConditions: Too many: 5: must have at most 4 items",
    ),
    (
        slice_of(device(nodeAllocatableResourceMappings={"example.com/x": {}})),
        "must be a node allocatable resource name",
    ),
    (
        slice_of(device(nodeAllocatableResourceMappings={"cpu": {"capacityKey": "nope"}})),
        'capacityKey: Not found: "nope"',
    ),
    (
        slice_of(device(nodeAllocatableResourceMappings={"example.com/cpu": {"allocationMultiplier": "1"}})),
        "must be a node allocatable resource name",
    ),
]


@pytest.mark.parametrize(("obj", "expected"), SLICE_FAULTS)
def test_invalid_slice_is_refused(obj: Obj, expected: str) -> None:
    assert any(expected in text for text in problems(obj))


@pytest.mark.parametrize(
    "obj", [obj for obj, _ in SLICE_FAULTS if "allNodes: Invalid" not in _ and "nodeName: Invalid" not in _]
)
def test_v1beta1_slice_errors_equal_those_of_v1(obj: Obj) -> None:
    beta = by_kind("resource.k8s.io/v1beta1", "ResourceSlice")
    assert beta is not None
    assert problems(convert(obj, beta)) == problems(obj)


POLICY_FAULTS = [
    ({"validValues": ["1Gi"]}, "default: Required value: required when validValues is defined"),
    ({"default": "1Gi", "validValues": ["1Gi"], "validRange": {"min": "1"}}, "exactly one policy can be specified"),
    ({"default": "2Gi", "validValues": ["1Gi"]}, 'validValues: Invalid value: "2Gi": default value is not valid'),
    ({"default": "1Gi", "validValues": ["2Gi", "1Gi"]}, "values must be sorted in ascending order"),
    ({"default": "1Gi", "validValues": ["1Gi", "1Gi"]}, "validValues[1]: Duplicate value"),
    ({"default": "1Gi", "validValues": ["1Gi", "99Gi"]}, "option is larger than capacity value: 8Gi"),
    ({"default": "1Gi", "validValues": ["1Gi"] * 11}, "validValues: Too many: 11"),
    ({"default": "1Gi", "validRange": {}}, "validRange.min: Required value"),
    ({"default": "1Gi", "validRange": {"min": "9Gi"}}, "min is larger than capacity value: 8Gi"),
    ({"default": "1Gi", "validRange": {"min": "2Gi"}}, "default is less than min: 2Gi"),
    ({"default": "4Gi", "validRange": {"min": "1Gi", "max": "2Gi"}}, "default is more than max: 2Gi"),
    ({"default": "1Gi", "validRange": {"min": "1Gi", "max": "9Gi"}}, "max is larger than capacity value: 8Gi"),
    (
        {"default": "1Gi", "validRange": {"min": "1Gi", "step": "0"}},
        'step: Invalid value: "0": must be greater than zero',
    ),
    (
        {"default": "1Gi", "validRange": {"min": "1Gi", "step": "8Gi"}},
        "one step 9Gi is larger than capacity value: 8Gi",
    ),
    (
        {"default": "2Gi", "validRange": {"min": "1Gi", "step": "3Gi"}},
        "is not a multiple of a given step (3Gi) from (1Gi)",
    ),
]


@pytest.mark.parametrize(("policy", "expected"), POLICY_FAULTS)
def test_invalid_request_policy_is_refused(policy: Obj, expected: str) -> None:
    capacity = {"memory": {"value": "8Gi", "requestPolicy": policy}}
    found = problems(slice_of(device(capacity=capacity, allowMultipleAllocations=True)))
    assert any(expected in text for text in found)


@pytest.mark.parametrize(
    "policy", [{}, {"default": "1Gi"}, {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}]
)
def test_valid_request_policy_is_accepted(policy: Obj) -> None:
    capacity = {"memory": {"value": "8Gi", "requestPolicy": policy}}
    assert problems(slice_of(device(capacity=capacity, allowMultipleAllocations=True))) == []


def test_cached_validation_of_one_part_does_not_apply_to_another() -> None:
    good, bad = device(), device(attributes={"model": {"version": "H200"}})
    assert problems(slice_of(good)) == []
    assert len(problems(slice_of(good, {**bad, "name": "gpu-1"}))) == 1
    assert len(problems(slice_of({**bad, "name": "gpu-1"}))) == 1
    # What is a good attribute map is no good capacity map, though the bytes are the same.
    assert problems(slice_of(device(attributes={"a": {"int": 1}}))) == []
    assert problems(slice_of(device(attributes={}, capacity={"a": {"value": "x"}}))) != []


def test_unchanged_parts_of_stored_slice_are_not_validated_again() -> None:
    old = slice_of(device(taints=[{"key": "k", "effect": "Future"}]))
    assert update_problems(put(old, "spec.pool.generation", 2), old) == []
    assert update_problems(put(old, "spec.devices.0.taints.0.value", "x"), old) != []


@pytest.mark.parametrize(
    ("path", "value"), [("spec.driver", "other.example.com"), ("spec.pool.name", "p2"), ("spec.nodeName", "worker-2")]
)
def test_slice_identity_fields_are_immutable(path: str, value: str) -> None:
    old = slice_of(device())
    assert update_problems(put(old, path, value), old) == [f'{path}: Invalid value: "{value}": field is immutable']


def test_spec_of_claims_and_templates_is_immutable() -> None:
    old = claim()
    found = update_problems(put(old, f"{EXACT}.count", 2), old)
    assert len(found) == 1
    assert found[0].startswith("spec: Invalid value: ")
    assert found[0].endswith(": field is immutable")
    assert update_problems(put(old, "metadata.labels", {"a": "b"}), old) == []


def test_stored_class_selectors_are_compiled_again_only_when_changed() -> None:
    old = resource("DeviceClass", {"selectors": [{"cel": {"expression": "bad"}}, SELECTOR]})
    assert update_problems(put(old, "spec.config", [OPAQUE]), old) == []
    assert len(update_problems(put(old, "spec.selectors", [SELECTOR, {"cel": {"expression": "bad"}}]), old)) == 1


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"extendedResourceName": "gpu"},
            'spec.extendedResourceName: Invalid value: "gpu": must be a valid extended resource name',
        ),
        ({"extendedResourceName": "requests.example.com/gpu"}, "must be a valid extended resource name"),
        ({"selectors": [SELECTOR] * 33}, "spec.selectors: Too many: 33"),
        ({"config": [{}]}, "spec.config[0].opaque: Required value"),
    ],
)
def test_invalid_device_class_is_refused(spec: Obj, expected: str) -> None:
    assert any(expected in text for text in problems(resource("DeviceClass", spec)))


@pytest.mark.parametrize(
    ("kind", "version", "spec", "expected"),
    [
        ("DeviceTaintRule", "v1beta2", {}, "spec.taint.key: Invalid value"),
        (
            "DeviceTaintRule",
            "v1beta2",
            {"taint": {"key": "k", "effect": "Maybe"}},
            "spec.taint.effect: Unsupported value",
        ),
        (
            "DeviceTaintRule",
            "v1beta2",
            {"taint": TAINT, "deviceSelector": {"pool": ""}},
            "spec.deviceSelector.pool: Required",
        ),
        ("ResourcePoolStatusRequest", "v1alpha3", {}, "spec.driver: Required value"),
        (
            "ResourcePoolStatusRequest",
            "v1alpha3",
            {"driver": "d", "limit": 1001},
            "spec.limit: Invalid value: 1001: must be less than or equal to 1000",
        ),
    ],
)
def test_invalid_taint_rules_and_pool_requests_are_refused(kind: str, version: str, spec: Obj, expected: str) -> None:
    assert any(expected in text for text in problems(resource(kind, spec, version)))


def test_pool_status_is_limited_and_immutable() -> None:
    request = resource("ResourcePoolStatusRequest", {"driver": "d"}, "v1alpha3")
    pool = {"driver": "d", "poolName": "p", "generation": 1, "validationError": "x" * 256}
    good = {**request, "status": {"poolCount": 1, "pools": [pool]}}
    assert status_problems(good, request) == []
    long = put(good, "status.pools.0.validationError", "x" * 257)
    assert status_problems(long, request) == [
        "status.pools[0].validationError: Too long: may not be more than 256 bytes"
    ]
    [found] = status_problems(put(good, "status.poolCount", 2), good)
    assert found.startswith("status: Invalid value") and found.endswith("field is immutable")
    assert [text.split(":")[0] for text in status_problems(put(good, "status.pools.0.driver", ""), good)] == [
        "status",
        "status.pools[0].driver",
    ]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, ["status.poolCount: Required value"]),
        ({"poolCount": -1}, ["status.poolCount: Invalid value: -1: must be greater than or equal to 0"]),
        (
            {"poolCount": 1, "pools": [{"driver": "", "poolName": "", "generation": 0, "nodeName": "A"}]},
            [
                "status.pools[0].driver: Required value",
                "status.pools[0].poolName: Required value",
                "status.pools[0].generation: Required value",
                'status.pools[0].nodeName: Invalid value: "A"',
            ],
        ),
    ],
)
def test_pool_status_has_what_is_required(status: Obj, expected: list[str]) -> None:
    request = resource("ResourcePoolStatusRequest", {"driver": "d"}, "v1alpha3")
    found = status_problems({**request, "status": status}, request)
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True))


def test_condition_of_a_pool_request_that_occurs_twice_is_told_whole() -> None:
    request = resource("ResourcePoolStatusRequest", {"driver": "d"}, "v1alpha3")
    condition = {"type": "Complete", "status": "True", "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    found = status_problems({**request, "status": {"poolCount": 1, "conditions": [condition] * 2}}, request)
    assert any(one.startswith("status.conditions[1]: Duplicate value: {") and '"reason":"R"' in one for one in found)


def test_pool_request_allows_long_drivers_and_refuses_empty_pools() -> None:
    long = ".".join(["a" * 60, "b" * 60])
    assert problems(resource("ResourcePoolStatusRequest", {"driver": long}, "v1alpha3")) == []
    [found] = problems(resource("ResourcePoolStatusRequest", {"driver": "d", "poolName": ""}, "v1alpha3"))
    assert found.startswith('spec.poolName: Invalid value: ""')


def test_updated_template_is_judged_as_a_new_one_too() -> None:
    old = resource("ResourceClaimTemplate", {"spec": claim()["spec"]})
    found = update_problems(put(old, "spec.spec.devices.requests.0.exactly.count", -1), old)
    assert [text.split(":")[0] for text in found] == ["spec.spec.devices.requests[0].exactly.count", "spec"]


def test_constraint_requires_match_attribute_without_consumable_capacity() -> None:
    gates = type(ALL).parse("DRAConsumableCapacity=false")
    obj = put(claim(), "spec.devices.constraints", [{}])
    assert problems(obj, gates) == ["spec.devices.constraints[0].matchAttribute: Required value"]
    assert problems(claim(), DEFAULT) == []


def test_defaulted_slice_is_valid() -> None:
    obj = slice_of(device(taints=[TAINT]))
    kind = kind_of(obj)
    filled = apply_defaults(obj, kind, ALL, NOW)
    assert filled["spec"]["devices"][0]["taints"] == [{**TAINT, "timeAdded": NOW}]
    assert validation.validate_create(filled, kind, ALL, any_selector) == []
