"""What objects count as, which quotas count them, and that charges and a recount come to the same."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haru.kube.quota.checking import QuotaRefusal, Write, charges, evaluator_of, status_of
from haru.kube.quota.claims import covers
from haru.kube.quota.limited import Limited
from haru.kube.quota.usage import Surroundings

Obj = dict[str, Any]
NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
AROUND = Surroundings(NOW, {"gpu": "nvidia.com/gpu"})
PER_CLASS = "deviceclass.resource.k8s.io/devices"
IMPLICIT = "requests.deviceclass.resource.kubernetes.io"


def pod(requests: Obj | None = None, limits: Obj | None = None, metadata: Obj | None = None, **spec: Any) -> Obj:
    container = {"name": "a", "resources": {"requests": requests or {}, "limits": limits or {}}}
    named = {"name": "p", "namespace": "default", **(metadata or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": {"containers": [container], **spec}}


def claim(*requests: Obj, **metadata: Any) -> Obj:
    named = {"name": "c", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z", **metadata}
    listed = [{"name": f"r{number}", **request} for number, request in enumerate(requests)]
    return {"kind": "ResourceClaim", "metadata": named, "spec": {"devices": {"requests": listed}}}


def exactly(name: str, count: int = 1, **more: Any) -> Obj:
    return {"exactly": {"deviceClassName": name, "allocationMode": "ExactCount", "count": count, **more}}


def usage(group: str, plural: str, obj: Obj, around: Surroundings = AROUND) -> dict[str, str]:
    evaluator = evaluator_of(group, plural)
    assert evaluator is not None
    return {name: str(amount) for name, amount in evaluator.usage(obj, around).items()}


def test_quota_usage_of_pod() -> None:
    made = pod(
        {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "2", "hugepages-2Mi": "4Mi"},
        {"cpu": "2", "nvidia.com/gpu": "2"},
        overhead={"cpu": "500m"},
    )
    assert usage("", "pods", made) == {
        "count/pods": "1",
        "pods": "1",
        "cpu": "1500m",
        "requests.cpu": "1500m",
        "limits.cpu": "2500m",
        "memory": "1Gi",
        "requests.memory": "1Gi",
        "hugepages-2Mi": "4Mi",
        "requests.hugepages-2Mi": "4Mi",
        "requests.nvidia.com/gpu": "2",
    }


@pytest.mark.parametrize(
    ("changes", "charged"),
    [
        ({}, True),
        ({"status": {"phase": "Succeeded"}}, False),
        ({"status": {"phase": "Failed"}}, False),
        ({"metadata": {"deletionTimestamp": "2026-03-04T05:06:00Z", "deletionGracePeriodSeconds": 3}}, False),
        ({"metadata": {"deletionTimestamp": "2026-03-04T05:06:00Z", "deletionGracePeriodSeconds": 30}}, True),
    ],
)
def test_terminated_pod_uses_no_compute_quota(changes: Obj, charged: bool) -> None:
    made = pod({"cpu": "1"}, metadata=changes.get("metadata"))
    found = usage("", "pods", {**made, "status": changes.get("status") or {}})
    assert found["count/pods"] == "1" and ("pods" in found) == ("cpu" in found) == charged


CLAIMS: list[tuple[Obj, dict[str, str]]] = [
    (
        claim(exactly("gpu", 2), exactly("nic")),
        {
            f"gpu.{PER_CLASS}": "2",
            f"nic.{PER_CLASS}": "1",
            "requests.nvidia.com/gpu": "2",
            f"{IMPLICIT}/gpu": "2",
            f"{IMPLICIT}/nic": "1",
        },
    ),
    (
        claim({"exactly": {"deviceClassName": "nic", "allocationMode": "All"}}),
        {f"nic.{PER_CLASS}": "32", f"{IMPLICIT}/nic": "32"},
    ),
    (
        claim(exactly("nic", 3, adminAccess=True)),
        {f"nic.{PER_CLASS}": "3", f"{IMPLICIT}/nic": "3"},
    ),
    (
        claim(
            {
                "firstAvailable": [
                    {"name": "a", "deviceClassName": "nic", "allocationMode": "ExactCount", "count": 1},
                    {"name": "b", "deviceClassName": "nic", "allocationMode": "ExactCount", "count": 4},
                    {"name": "c", "deviceClassName": "fpga", "allocationMode": "ExactCount", "count": 2},
                ]
            },
            exactly("nic", 1),
        ),
        {f"nic.{PER_CLASS}": "5", f"fpga.{PER_CLASS}": "2", f"{IMPLICIT}/nic": "5", f"{IMPLICIT}/fpga": "2"},
    ),
    (claim(exactly("nic", 2, allocationMode="Unheard")), {f"nic.{PER_CLASS}": "0"}),
]


@pytest.mark.parametrize(("made", "expected"), CLAIMS)
def test_quota_usage_of_claims(made: Obj, expected: dict[str, str]) -> None:
    expected = {"count/resourceclaims.resource.k8s.io": "1", **expected}
    assert usage("resource.k8s.io", "resourceclaims", made) == expected


def test_extended_resource_claim_is_charged_with_its_pod() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    mark = {"resource.kubernetes.io/extended-resource-claim": "true"}
    made = claim(exactly("gpu", 2), annotations=mark, ownerReferences=[owner])
    by = pod({"nvidia.com/gpu": "2"})
    around = Surroundings(NOW, {"gpu": "nvidia.com/gpu"}, True, lambda _: by)
    found = usage("resource.k8s.io", "resourceclaims", made, around)
    assert "requests.nvidia.com/gpu" not in found and found[f"gpu.{PER_CLASS}"] == "2"
    assert usage("resource.k8s.io", "resourceclaims", made)["requests.nvidia.com/gpu"] == "2"
    assert covers(by, made, [made])
    older = {**made, "metadata": {**made["metadata"], "name": "b"}}
    assert not covers(by, made, [made, older]), "of several without a word in the status, the first counts"
    told = {**by, "status": {"extendedResourceClaimStatus": {"resourceClaimName": "c"}}}
    assert covers(told, made, []) and not covers(told, older, [])


def test_quota_usage_of_volume_claims_and_services() -> None:
    storage = {"resources": {"requests": {"storage": "1500m"}}, "storageClassName": "fast"}
    made = {"metadata": {"name": "v"}, "spec": storage}
    assert usage("", "persistentvolumeclaims", made) == {
        "count/persistentvolumeclaims": "1",
        "persistentvolumeclaims": "1",
        "requests.storage": "2",
        "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "fast.storageclass.storage.k8s.io/requests.storage": "2",
    }
    grown = {**made, "status": {"allocatedResources": {"storage": "3"}}}
    assert usage("", "persistentvolumeclaims", grown)["requests.storage"] == "3"
    ports = [{"port": 1}, {"port": 2, "nodePort": 30000}]
    balanced = {"metadata": {}, "spec": {"type": "LoadBalancer", "ports": ports}}
    assert usage("", "services", balanced)["services.nodeports"] == "2"
    balanced["spec"]["allocateLoadBalancerNodePorts"] = False
    assert usage("", "services", balanced)["services.nodeports"] == "1"


def quota(hard: Obj, used: Obj | None = None, **spec: Any) -> Obj:
    status = {"hard": hard, "used": dict.fromkeys(hard, "0") if used is None else used}
    metadata = {"name": "q", "namespace": "default"}
    return {"metadata": metadata, "spec": {"hard": hard, **spec}, "status": status}


def write(obj: Obj, old: Obj | None = None, plural: str = "pods", group: str = "") -> Write:
    evaluator = evaluator_of(group, plural)
    assert evaluator is not None
    return Write(evaluator, "", obj, old, AROUND)


def scope(name: str, operator: str = "Exists", *values: str) -> Obj:
    return {"scopeSelector": {"matchExpressions": [{"scopeName": name, "operator": operator, "values": list(values)}]}}


ELSEWHERE = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaceSelector": {}}]}}


@pytest.mark.parametrize(
    ("limits", "made", "counted"),
    [
        ({"scopes": ["BestEffort"]}, pod(), True),
        ({"scopes": ["BestEffort"]}, pod({"cpu": "1"}), False),
        ({"scopes": ["NotBestEffort", "Terminating"]}, pod({"cpu": "1"}, activeDeadlineSeconds=1), True),
        ({"scopes": ["NotBestEffort", "Terminating"]}, pod({"cpu": "1"}), False),
        ({"scopes": ["NotTerminating"]}, pod(), True),
        ({"scopes": ["CrossNamespacePodAffinity"]}, pod(affinity=ELSEWHERE), True),
        ({"scopes": ["CrossNamespacePodAffinity"]}, pod(), False),
        (scope("PriorityClass", "In", "high"), pod(priorityClassName="high"), True),
        (scope("PriorityClass", "In", "high"), pod(priorityClassName="low"), False),
        (scope("PriorityClass", "NotIn", "high"), pod(), True),
        (scope("PriorityClass", "Exists"), pod(), False),
        (scope("PriorityClass", "DoesNotExist"), pod(), True),
        (scope("VolumeAttributesClass", "Exists"), pod(), False),
    ],
)
def test_quota_scopes_select_pods(limits: Obj, made: Obj, counted: bool) -> None:
    assert [charge.used for charge in charges(write(made), [quota({"pods": "5"}, **limits)])] == (
        [{"pods": "1"}] if counted else []
    )


def test_active_deadline_moves_pod_to_terminating_quota() -> None:
    before, after = pod(), pod(activeDeadlineSeconds=9)
    assert write(after, before).matters and not write(after, after).matters
    ending = quota({"pods": "0"}, scopes=["Terminating"])
    with pytest.raises(QuotaRefusal, match="exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0"):
        charges(write(after, before), [ending])


def test_update_charges_only_the_increase() -> None:
    before, after = pod({"cpu": "1"}), pod({"cpu": "3"})
    (charge,) = charges(write(after, before), [quota({"cpu": "9", "pods": "1"}, {"cpu": "1", "pods": "1"})])
    assert charge.used == {"cpu": "3", "pods": "1"}
    assert charges(write(before, after), [quota({"cpu": "0"}, {"cpu": "3"})]) == []


def test_new_quota_status_is_written_with_charge() -> None:
    fresh = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}}
    (charge,) = charges(write(pod()), [fresh])
    assert charge.pending and not charge.used
    half = {**fresh, "status": {"hard": {"pods": "0"}}}
    with pytest.raises(QuotaRefusal, match="status unknown for quota: q, resources: pods"):
        charges(write(pod()), [half])


def test_limited_resource_requires_a_covering_quota() -> None:
    limited = (Limited("", "pods", ("nvidia.com/gpu",)),)
    with pytest.raises(QuotaRefusal, match=r"insufficient quota to consume: requests\.nvidia\.com/gpu"):
        charges(write(pod({"nvidia.com/gpu": "1"})), [quota({"pods": "5"})], limited)
    assert charges(write(pod({"nvidia.com/gpu": "1"})), [quota({"requests.nvidia.com/gpu": "5"})], limited)
    urgent = {"scopeName": "PriorityClass", "operator": "In", "values": ["urgent"]}
    limited = (Limited("", "pods", (), (urgent,)),)
    with pytest.raises(QuotaRefusal) as caught:
        charges(write(pod(priorityClassName="urgent")), [], limited)
    assert str(caught.value) == "insufficient quota to match these scopes: [{PriorityClass In [urgent]}]"
    assert charges(write(pod(priorityClassName="calm")), [], limited) == []
    covering = quota({"pods": "5"}, scopeSelector={"matchExpressions": [urgent]})
    assert len(charges(write(pod(priorityClassName="urgent")), [covering], limited)) == 1


PODS = st.builds(
    lambda cpu, cards, deadline: pod(
        {"cpu": f"{cpu}m", **({"nvidia.com/gpu": str(cards)} if cards else {})},
        **({"activeDeadlineSeconds": 1} if deadline else {}),
    ),
    st.integers(1, 4000),
    st.integers(0, 8),
    st.booleans(),
)
HARD = {"pods": "6", "requests.cpu": "8", "requests.nvidia.com/gpu": "12", "count/pods": "9"}


@settings(max_examples=60, deadline=None)
@given(st.lists(PODS, max_size=14), st.sampled_from([[], ["Terminating"], ["NotTerminating"]]))
def test_charges_equal_recount(wanted: list[Obj], scopes: list[str]) -> None:
    limit = quota(HARD, scopes=scopes)
    admitted: list[Obj] = []
    for made in wanted:
        try:
            found = charges(write(made), [limit])
        except QuotaRefusal as refusal:
            assert str(refusal).startswith("exceeded quota: q, ") and refusal.requested
            continue
        admitted.append(made)
        for charge in found:
            limit = {**limit, "status": {**limit["status"], "used": dict(charge.used)}}
    evaluator = evaluator_of("", "pods")
    assert evaluator is not None
    status = status_of(limit, [(evaluator, admitted)], AROUND)
    assert status == limit["status"]
    assert all(
        int(status["used"][name]) <= int(HARD[name]) for name in ("pods", "count/pods", "requests.nvidia.com/gpu")
    )
