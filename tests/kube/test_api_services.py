"""APIServices: what is refused and in which words, priorities, the order of groups, and what a row shows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from haru.kube.api_services import by_preference, local_service, name_of, version_rank
from haru.kube.defaulting import apply_defaults
from haru.kube.gates import FeatureGates
from haru.kube.kinds import group_versions, known_kind
from haru.kube.printers import row
from haru.kube.strategy import prepare_for_create
from haru.kube.validation import validate_create, validate_status_update
from haru.kube.wire import decode_protobuf
from haru.kube.wire_out import encode_protobuf

Obj = dict[str, Any]

GATES = FeatureGates()
KIND = known_kind("apiregistration.k8s.io/v1", "APIService")
NOW = "2026-11-22T00:00:00Z"
SERVICE: Obj = {"namespace": "kube-system", "name": "metrics-server"}


def api_service(name: str = "v1beta1.metrics.k8s.io", **spec: Any) -> Obj:
    """That of metrics-server; a value of None takes a field out."""
    whole: Obj = {
        "group": "metrics.k8s.io",
        "version": "v1beta1",
        "service": dict(SERVICE),
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        **spec,
    }
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": name},
        "spec": {field: value for field, value in whole.items() if value is not None},
    }


def judged(obj: Obj) -> list[str]:
    def unasked(expression: str) -> None:
        raise AssertionError(expression)

    return [str(each) for each in validate_create(apply_defaults(obj, KIND, GATES), KIND, GATES, unasked)]


@pytest.mark.parametrize(
    "obj",
    [
        api_service(),
        api_service(insecureSkipTLSVerify=True),
        api_service(caBundle="Zm9v"),
        api_service(service={**SERVICE, "port": 8443}),
        api_service(service=None),
        api_service(groupPriorityMinimum=20000, versionPriority=1000),
    ],
)
def test_valid_api_service_is_accepted(obj: Obj) -> None:
    assert judged(obj) == []


@pytest.mark.parametrize(
    ("obj", "found"),
    [
        (
            api_service("metrics"),
            'metadata.name: Invalid value: "metrics": must be `spec.version+"."+spec.group`: "v1beta1.metrics.k8s.io"',
        ),
        (
            api_service("v2.", group=None, version="v2", service=None),
            "spec.group: Required value: only v1 may have an empty group and it better be legacy kube",
        ),
        (
            api_service(groupPriorityMinimum=0),
            "spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000",
        ),
        (
            api_service(groupPriorityMinimum=20001),
            "spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000",
        ),
        (
            api_service(versionPriority=1001),
            "spec.versionPriority: Invalid value: 1001: must be positive and less than 1000",
        ),
        (api_service(service={"name": "a"}), "spec.service.namespace: Required value"),
        (api_service(service={"namespace": "a"}), "spec.service.name: Required value"),
        (
            api_service(service={**SERVICE, "port": 70000}),
            "spec.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive",
        ),
        (
            api_service(caBundle="Zm9v", insecureSkipTLSVerify=True),
            "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
        ),
        (
            api_service(service=None, caBundle="Zm9v"),
            'spec.caBundle: Invalid value: "3 bytes": local APIServices may not have a caBundle',
        ),
        (
            api_service(service=None, insecureSkipTLSVerify=True),
            "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
        ),
        (
            api_service("v1.apps", group="apps", version="v1"),
            "spec.service: Forbidden: apps/v1 is built in: the API server serves it itself",
        ),
    ],
)
def test_invalid_api_service_is_refused(obj: Obj, found: str) -> None:
    assert judged(obj) == [found]


def test_malformed_group_and_version_are_reported() -> None:
    found = judged(api_service("V1._", group="_", version="V1"))
    assert [each.partition(":")[0] for each in found] == ["spec.group", "spec.version"]
    assert "a lowercase RFC 1123 subdomain" in found[0] and "a DNS-1035 label" in found[1]


def test_condition_status_must_be_one_of_three_values() -> None:
    obj = api_service() | {"status": {"conditions": [{"type": "Available", "status": "Perhaps"}]}}
    found = [str(each) for each in validate_status_update(obj, api_service(), KIND, GATES)]
    assert found == [
        'status.conditions[0].status: Unsupported value: "Perhaps": supported values: "True", "False", "Unknown"'
    ]


def test_service_port_defaults_to_443() -> None:
    assert apply_defaults(api_service(), KIND, GATES)["spec"]["service"]["port"] == 443


def test_local_api_service_is_available_when_created() -> None:
    made = prepare_for_create(api_service(service=None), KIND, GATES, NOW)
    assert made["status"]["conditions"] == [
        {
            "type": "Available",
            "status": "True",
            "reason": "Local",
            "message": "Local APIServices are always available",
            "lastTransitionTime": NOW,
        }
    ]
    assert "status" not in prepare_for_create(api_service() | {"status": {"conditions": []}}, KIND, GATES, NOW)


def test_built_in_groups_have_kubernetes_priorities() -> None:
    for version, priorities in {
        ("", "v1"): (18000, 1),
        ("apps", "v1"): (17800, 15),
        ("autoscaling", "v2"): (17500, 30),
        ("networking.k8s.io", "v1beta1"): (17200, 9),
        ("coordination.k8s.io", "v1alpha2"): (16500, 12),
        ("resource.k8s.io", "v1beta2"): (16200, 15),
    }.items():
        made = local_service(*version)
        assert made is not None and made["metadata"]["name"] == name_of(*version)
        assert (made["spec"]["groupPriorityMinimum"], made["spec"]["versionPriority"]) == priorities
    without = [version for version in group_versions() if local_service(*version) is None]
    assert without == [("apiregistration.k8s.io", "v1")]
    for version in group_versions():
        made = local_service(*version)
        assert made is None or judged(made) == []


def test_groups_and_versions_are_ordered_by_priority() -> None:
    def one(name: str, group_priority: int, version_priority: int) -> Obj:
        version, _, group = name.partition(".")
        return api_service(
            name, group=group, version=version, groupPriorityMinimum=group_priority, versionPriority=version_priority
        )

    given = [one("v1.b", 10, 5), one("v2.b", 10, 5), one("v9.b", 10, 4), one("v1.a", 10, 1), one("v1beta1.c", 20, 1)]
    given.append(one("v1.c", 5, 1))
    names = [each["metadata"]["name"] for each in by_preference(given)]
    assert names == ["v1.c", "v1beta1.c", "v1.a", "v2.b", "v1.b", "v9.b"]
    versions = ["foo10", "v11alpha2", "v1", "v3beta1", "v10", "foo1", "v10beta3", "v12alpha1", "v2", "v11beta2"]
    ordered = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]
    assert sorted(versions, key=version_rank) == ordered


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ({}, "Unknown"),
        ({"status": "True", "reason": "Passed"}, "True"),
        ({"status": "False", "reason": "ServiceNotFound"}, "False (ServiceNotFound)"),
        ({"status": "False"}, "False"),
    ],
)
def test_table_row_shows_service_and_availability(status: Obj, shown: str) -> None:
    metadata = {"name": "v1beta1.metrics.k8s.io", "creationTimestamp": "2026-11-22T00:00:00Z"}
    obj = api_service() | {"metadata": metadata, "status": {"conditions": [{"type": "Available", **status}]}}
    now = datetime(2026, 11, 22, 0, 5, tzinfo=UTC)
    assert row(KIND, obj, now) == ["v1beta1.metrics.k8s.io", "kube-system/metrics-server", shown, "5m"]
    obj["spec"].pop("service")
    assert row(KIND, obj, now)[1] == "Local"


def test_protobuf_field_numbers_equal_kube_aggregator() -> None:
    """Written by hand from its proto file: 1 service, 2 group, 3 version, 4 insecure, 5 bundle, 7 and 8 priorities."""
    service = api_service(insecureSkipTLSVerify=True, caBundle="Zm9v")
    service["spec"]["service"]["port"] = 443
    encoded = encode_protobuf(service)
    assert encoded is not None
    spec = b"\x0a\x20\x0a\x0bkube-system\x12\x0emetrics-server\x18\xbb\x03"
    spec += b"\x12\x0emetrics.k8s.io\x1a\x07v1beta1\x20\x01\x2a\x03foo\x38\x64\x40\x64"
    assert b"\x12" + bytes([len(spec)]) + spec in encoded
    assert decode_protobuf(encoded) == service
