"""The scheduler beside API servers of other releases: what they serve is read and written, in their versions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from scheduler_bench import CLAIMS, CLASSES, GROUPS, NODES, NS, PODS, SLICES, Bench, Obj, play

from haru.client.discovery import wait_for_change
from haru.client.server_version import ServerVersion, gates_for_server
from haru.kube import kinds
from haru.kube.gates import FeatureGates
from haru.kube.kinds import known_kind

V1BETA1 = "resource.k8s.io/v1beta1"
V1BETA2 = "resource.k8s.io/v1beta2"
V1 = "resource.k8s.io/v1"


class OlderServer(Bench):
    """A server that stands in for 1.`minor` with these versions; the scheduler's gates follow from it."""

    def __init__(self, minor: int, given: dict[str, bool] | None = None, **served: bool) -> None:
        super().__init__()
        self.given = given or {}
        self.gates = FeatureGates({}, minor)
        self.runtime_config = {f"resource.k8s.io/{version}": on for version, on in served.items()}

    def scheduler_gates(self) -> FeatureGates:
        return gates_for_server(self.given, self.api.version)[0]


@pytest.mark.parametrize(
    ("bench", "version"),
    [
        (OlderServer(33, v1beta1=True), "v1beta1"),
        (OlderServer(33, v1beta1=True, v1beta2=True), "v1beta2"),
        (OlderServer(34), "v1"),
        (OlderServer(35), "v1"),
        (OlderServer(36, v1=False, v1beta1=True), "v1beta1"),
        (OlderServer(36, v1=False, v1beta2=True), "v1beta2"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"1.{value.gates.minor}",
)
def test_pods_with_claims_are_bound_on_server_without_v1(bench: Bench, version: str) -> None:
    async def scenario(bench: Bench) -> None:
        assert bench.api.version.kind_for(CLAIMS).version == version
        await bench.node("n1", gpus=2)
        for number in range(3):
            await bench.claim(f"c{number}")
            await bench.pod(f"p{number}", claim=f"c{number}")
        await bench.eventually_bound("p0", "p1")
        results = [(await bench.allocation(f"c{number}"))["devices"]["results"][0]["device"] for number in range(2)]
        assert sorted(results) == ["gpu-0", "gpu-1"]
        condition = await bench.condition(PODS, "p2", "PodScheduled")
        assert condition["reason"] == "Unschedulable"
        await bench.delete("p0")
        await bench.api.delete(CLAIMS, "c0", NS)
        await bench.api.patch(CLAIMS, "c0", {"metadata": {"finalizers": None}}, NS)
        await bench.eventually_bound("p2")
        status, _, body = await bench.api.raw(
            "GET", f"/apis/resource.k8s.io/{version}/namespaces/{NS}/resourceclaims/c1"
        )
        assert status == 200 and b'"gpu-' in body

    play(scenario, bench=bench)


def test_server_without_claims_schedules_plain_pods_and_extended_resources() -> None:
    async def scenario(bench: Bench) -> None:
        assert not bench.api.version.serves(CLAIMS) and not bench.api.version.serves(GROUPS)
        await bench.node("n1", cpu=2)
        amounts = {"example.com/card": "1"}
        await bench.api.patch(
            NODES, "n1", {"status": {"allocatable": amounts, "capacity": amounts}}, "", "merge", "status"
        )
        container = {"name": "c", "image": "i", "resources": {"limits": amounts, "requests": amounts}}
        for name in ("a", "b"):
            await bench.create(PODS, {"metadata": {"name": name}, "spec": {"containers": [container]}})
        await bench.pod("plain")
        await bench.eventually_bound("plain")
        await asyncio.sleep(20)
        assert sorted([bool(await bench.node_of(name)) for name in ("a", "b")]) == [False, True]
        assert bench.metric('scheduler_schedule_attempts_total{profile="default-scheduler",result="error"') == 0

    play(scenario, bench=OlderServer(33))


def test_extended_resource_of_device_class_is_not_requested_before_its_gate() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.create(
            CLASSES, {"metadata": {"name": "card"}, "spec": {"extendedResourceName": "example.com/card"}}
        )
        await bench.node("n1", gpus=2)
        amounts = {"example.com/card": "1"}
        container = {"name": "c", "image": "i", "resources": {"limits": amounts, "requests": amounts}}
        await bench.create(PODS, {"metadata": {"name": "a"}, "spec": {"containers": [container]}})
        await asyncio.sleep(60)
        assert not await bench.node_of("a") and not (await bench.api.list(CLAIMS, NS))["items"]
        condition = await bench.condition(PODS, "a", "PodScheduled")
        assert (condition["reason"], condition["message"]) == (
            "Unschedulable",
            "0/1 nodes are available: 1 Insufficient example.com/card. "
            "no new claims to deallocate, preemption: 0/1 nodes are available: "
            "1 Preemption is not helpful for scheduling.",
        ), condition

    play(scenario, bench=OlderServer(34))


def resources(*found: str) -> list[tuple[str, str, str]]:
    return [tuple(text.rsplit("/", 2)) for text in found]  # type: ignore[misc]


CLAIMS_V1 = ("resource.k8s.io/v1/resourceslices", "resource.k8s.io/v1/resourceclaims")


@pytest.mark.parametrize(
    ("minor", "served", "given", "expected"),
    [
        (32, (), {}, {"DynamicResourceAllocation": False, "GenericWorkload": False, "DRADeviceTaints": False}),
        (33, ("resource.k8s.io/v1beta1/resourceslices",), {}, {"DynamicResourceAllocation": True}),
        (34, CLAIMS_V1, {}, {"DRAExtendedResource": False, "DRAPrioritizedList": True, "GangScheduling": False}),
        (34, CLAIMS_V1, {"DRAExtendedResource": True}, {"DRAExtendedResource": True}),
        (
            35,
            ("resource.k8s.io/v1alpha3/devicetaintrules",),
            {},
            {"DRADeviceTaints": True, "DRADeviceTaintRules": True},
        ),
        (36, CLAIMS_V1, {}, {"DRAExtendedResource": True, "GenericWorkload": False, "DRADeviceTaintRules": False}),
        (36, ("scheduling.k8s.io/v1alpha2/podgroups",), {}, {"GenericWorkload": True, "GangScheduling": False}),
        (36, ("scheduling.k8s.io/v1alpha2/podgroups",), {"GenericWorkload": False}, {"GenericWorkload": False}),
        (37, ("scheduling.k8s.io/v1beta1/podgroups",), {}, {"GangScheduling": True, "WorkloadAwarePreemption": True}),
        (37, ("resource.k8s.io/v1/devicetaintrules", *CLAIMS_V1), {}, {"DRADeviceTaintRules": True}),
    ],
)
def test_gates_that_nobody_gave_follow_from_server(
    minor: int, served: tuple[str, ...], given: dict[str, bool], expected: dict[str, bool]
) -> None:
    gates, unknown = gates_for_server(given, ServerVersion.of(minor, resources(*served)))
    assert {name: gates.enabled(name) for name in expected} == expected
    assert unknown == []


def test_given_gate_that_version_lacks_is_reported() -> None:
    gates, unknown = gates_for_server({"GangScheduling": True, "DRAAdminAccess": True}, ServerVersion.of(34, ()))
    assert unknown == ["GangScheduling"] and gates.enabled("DRAAdminAccess")


# --- 1.37

NEWER: Obj = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "g", "namespace": NS},
    "spec": {
        "workloadRef": {"workloadName": "w", "templateName": "t"},
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "disruptionMode": {"all": {}},
    },
    "status": {"conditions": [{"type": "PodGroupInitiallyScheduled", "status": "True"}, {"type": "DisruptionTarget"}]},
}
VERSION_37 = ServerVersion.of(37, resources("scheduling.k8s.io/v1beta1/podgroups"))


def test_pod_group_of_1_37_is_read_and_written_in_v1beta1() -> None:
    assert VERSION_37.kind_for(GROUPS).api_version == "scheduling.k8s.io/v1beta1"
    read = VERSION_37.incoming(GROUPS, NEWER)
    assert read["apiVersion"] == "scheduling.k8s.io/v1alpha2"
    assert read["spec"] == {
        "podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}},
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "disruptionMode": "PodGroup",
    }
    assert [entry["type"] for entry in read["status"]["conditions"]] == ["PodGroupScheduled", "DisruptionTarget"]
    assert VERSION_37.outgoing(GROUPS, read) == NEWER
    patch = {"status": {"conditions": [{"type": "PodGroupScheduled", "status": "False"}]}}
    sent = {"status": {"conditions": [{"type": "PodGroupInitiallyScheduled", "status": "False"}]}}
    assert VERSION_37.outgoing(GROUPS, patch) == sent


def test_items_of_list_are_converted_without_api_version() -> None:
    answer = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroupList", "items": [{"spec": NEWER["spec"]}]}
    read = VERSION_37.incoming_list(GROUPS, answer)
    assert read["apiVersion"] == GROUPS.api_version
    assert read["items"][0]["spec"]["disruptionMode"] == "PodGroup" and "apiVersion" not in read["items"][0]


def test_partial_metadata_and_other_kinds_stay_as_they_are() -> None:
    partial = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "g"}}
    assert VERSION_37.incoming(GROUPS, partial) is partial
    assert VERSION_37.kind_for(PODS) is PODS and VERSION_37.kind_for(SLICES) is SLICES


def test_change_of_served_versions_is_noticed_and_change_of_others_is_not() -> None:
    answers = iter(
        [
            ServerVersion.of(33, resources("resource.k8s.io/v1beta1/resourceclaims", "example.com/v1/widgets")),
            OSError("no answer"),
            ServerVersion.of(34, resources("resource.k8s.io/v1/resourceclaims")),
        ]
    )

    async def read(_: Any) -> ServerVersion:
        found = next(answers)
        if isinstance(found, OSError):
            raise found
        return found

    async def scenario() -> ServerVersion:
        before = ServerVersion.of(33, resources("resource.k8s.io/v1beta1/resourceclaims"))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("haru.client.discovery.read_server_version", read)
            return await wait_for_change(None, before, every=0)  # type: ignore[arg-type]

    assert asyncio.run(scenario()).minor == 34


def test_every_readable_version_that_this_server_has_is_known() -> None:
    for api_version in (V1, V1BETA1, V1BETA2):
        assert kinds.by_kind(api_version, "ResourceClaim") is not None
    assert known_kind("scheduling.k8s.io/v1alpha2", "PodGroup") is GROUPS


def test_owners_are_referred_to_in_the_version_that_the_server_has() -> None:
    ours = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "name": "g", "uid": "1"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "2"}
    theirs = {**ours, "apiVersion": "scheduling.k8s.io/v1beta1"}
    claim = {"apiVersion": V1, "kind": "ResourceClaim", "metadata": {"name": "c", "ownerReferences": [ours, job]}}
    sent = VERSION_37.outgoing(CLAIMS, claim)
    assert sent["metadata"]["ownerReferences"] == [theirs, job]
    assert VERSION_37.incoming(CLAIMS, sent) == claim
    listed = {"kind": "ResourceClaimList", "items": [sent]}
    assert VERSION_37.incoming_list(CLAIMS, listed)["items"] == [claim]
    assert ServerVersion.of(36, ()).outgoing(CLAIMS, claim) is claim
