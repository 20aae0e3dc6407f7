"""What members of objects may not be, in the words of 1.36."""

from __future__ import annotations

import pytest
from kube_cases import Obj, pod, problems, put, update_problems

from haru.kube.patch.strategic import apply_strategic_merge_patch
from haru.kube.schema import message_type
from haru.kube.validation.workload_status import validate_deployment_status, validate_stateful_set_status

CONTAINER = {"name": "c", "image": "i"}


@pytest.mark.parametrize(
    ("version", "path", "why"),
    [
        ("x", "metadata.name", "unsupported pod version: x"),
        ("v1", "spec.x['a']", "field label does not support subscript: spec.x['a']"),
        ("v1", "spec.x", "field label not supported: spec.x"),
    ],
)
def test_reference_to_a_field_that_cannot_be_is_refused_with_the_reason(version: str, path: str, why: str) -> None:
    source = {"fieldRef": {"apiVersion": version, "fieldPath": path}}
    found = problems(put(pod(), "spec.containers.0", {**CONTAINER, "env": [{"name": "E", "valueFrom": source}]}))
    assert [one.rpartition("error converting fieldPath: ")[2] for one in found] == [why]


def test_profile_of_another_type_than_localhost_is_shown_whole() -> None:
    profile = {"type": "Unconfined", "localhostProfile": "x"}
    (found,) = problems(pod(securityContext={"seccompProfile": profile}))
    assert 'Invalid value: {"type":"Unconfined","localhostProfile":"x"}: can only be set' in found


def test_node_with_a_network_that_is_none_is_told_which() -> None:
    spec = {"podCIDRs": ["10.0.0.0/8", "x"]}
    node: Obj = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": spec}
    (found,) = [one for one in problems(node) if "Internal error" in one]
    assert found.endswith("dual stack with error:invalid CIDR[1]: <nil> (invalid CIDR address: x)")


@pytest.mark.parametrize(("cidr", "but"), [("10.1.0.0/16", "10.0.0.0"), ("10.0.0.0", "10.1.0.0/16")])
def test_address_that_is_no_network_is_not_compared_with_its_block(cidr: str, but: str) -> None:
    block = {"cidr": cidr, "except": [but]}
    spec = {"podSelector": {}, "ingress": [{"from": [{"ipBlock": block}]}]}
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "n"}, "spec": spec}
    assert not [one for one in problems(policy) if "strict subset" in one]


def test_available_replicas_are_ready_ones() -> None:
    status = {"replicas": 3, "availableReplicas": 2}
    ((refused,), (other,)) = (
        [str(one) for one in check({"status": status}, {})]
        for check in (validate_stateful_set_status, validate_deployment_status)
    )
    assert "cannot be greater than status.readyReplicas" in refused and "than readyReplicas" in other


def test_capacity_whose_class_is_taken_away_is_refused_for_both_reasons() -> None:
    metadata = {"name": "c", "namespace": "n"}
    old = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": metadata,
        "storageClassName": "s",
    }
    new = {name: value for name, value in old.items() if name != "storageClassName"}
    found = update_problems(new, old)
    assert len(found) == 2 and "lowercase RFC 1123 subdomain" in found[0] and "field is immutable" in found[1]


@pytest.mark.parametrize(
    ("kind", "live", "patch", "made"),
    [
        (
            "io.k8s.api.policy.v1.PodDisruptionBudget",
            {"spec": {"selector": {"matchLabels": {"a": "b"}}}},
            {"spec": {"selector": {"matchLabels": {"a": None}}}},
            {"spec": {"selector": {"matchLabels": {"a": None}}}},
        ),
        (
            "io.k8s.api.discovery.v1.EndpointSlice",
            {"ports": [{"port": 1}]},
            {"ports": [{"port": 2, "spec": None}]},
            {"ports": [{"port": 2, "spec": None}]},
        ),
        (
            "io.k8s.api.core.v1.Pod",
            {"spec": {"containers": [{"name": "a"}]}},
            {"spec": {"containers": [{"name": "b", "x": None}]}},
            {"spec": {"containers": [{"name": "b", "x": None}, {"name": "a"}]}},
        ),
        ("io.k8s.api.discovery.v1.EndpointSlice", {}, {"ports": [{"x": None}]}, {"ports": [{}]}),
    ],
)
def test_what_a_strategic_patch_replaces_or_adds_to_a_list_keeps_its_nulls(
    kind: str, live: Obj, patch: Obj, made: Obj
) -> None:
    assert apply_strategic_merge_patch(live, patch, message_type(kind)) == made


def test_iscsi_of_a_volume_names_its_secret() -> None:
    source = {"targetPortal": "a", "iqn": "x", "lun": 1, "secretRef": {}}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "iscsi": source}
    volume: Obj = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": spec}
    assert problems(volume) == [
        'spec.iscsi.iqn: Invalid value: "x": must be valid format',
        "spec.iscsi.secretRef.name: Required value",
    ]


def test_topologies_of_a_storage_class_are_judged_in_an_update() -> None:
    old = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "s"}, "provisioner": "p"}
    terms = [{"matchLabelExpressions": [{"key": "a b", "values": ["x"]}]}]
    (found,) = update_problems({**old, "allowedTopologies": terms}, old)
    assert found.startswith("allowedTopologies[0].matchLabelExpressions[0].key: Invalid value")


def test_search_path_is_told_without_its_final_dot() -> None:
    (found,) = problems(pod(dnsConfig={"searches": ["A b."]}))
    assert 'spec.dnsConfig.searches[0]: Invalid value: "A b": a lowercase' in found


@pytest.mark.parametrize(
    ("capacity", "told"),
    [
        (
            {"storage": "-1"},
            [
                "spec.capacity[storage]: Invalid value: -1: must be a valid resource quantity",
                'spec.capacity[storage]: Invalid value: "-1": must be greater than zero',
            ],
        ),
        (
            {"x.y/z": "1m"},
            ['spec.capacity: Unsupported value: {"x.y/z":"1m"}: supported values: "storage"'],
        ),
    ],
)
def test_capacity_of_a_volume_is_refused_as_in_kubernetes(capacity: Obj, told: list[str]) -> None:
    spec = {"capacity": capacity, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/a"}}
    assert problems({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": spec}) == told
