"""The Node object that the agent writes: what the machine has, conditions, and the events about them."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import virtual_time
from haru.kube.errors import StatusError
from haru.kube.gates import FeatureGates
from haru.kube.pod_resize import Allocations
from haru.node.agent.agent import Agent
from haru.node.agent.machine import Machine
from haru.node.agent.node_status import (
    Host,
    allocatable,
    capacity,
    condition_events,
    declared_features,
    runtime_version,
    with_resources_of_others,
)
from haru.node.agent.options import NodeOptions
from haru.node.agent.registration import Registration
from haru.node.cri.errors import CriError
from haru.proto import cri_pb2 as cri

Obj = dict[str, Any]
GIB = 1 << 30


def options(**reserved: str) -> NodeOptions:
    found = {name.replace("_", "-"): text for name, text in reserved.items()}
    return NodeOptions("n", Path("/"), Path("/logs"), reserved=found)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("1.6.20~ds1", "1.6.20"),
        ("v2.1.4", "2.1.4"),
        ("2.0.0-rc.3", "2.0.0-rc.3"),
        ("1.7.2+unknown", "1.7.2+unknown"),
        ("1.31", "1.31"),
        ("1.31-beta", "1.31"),
        ("unknown", "unknown"),
    ],
)
def test_runtime_version_has_no_suffix_of_a_distribution(text: str, version: str) -> None:
    assert runtime_version(text) == version


def test_quantities_are_written_as_the_api_server_keeps_them() -> None:
    machine = Machine(cpus=4, memory=16 * GIB, storage=100 * GIB + 1024, huge_pages={"2Mi": GIB, "1Gi": 0})
    assert capacity(options(), machine) == {
        "cpu": "4", "memory": "16Gi", "ephemeral-storage": "104857601Ki", "pods": "110",
        "hugepages-2Mi": "1Gi", "hugepages-1Gi": "0",
    }  # fmt: skip
    assert allocatable(options(cpu="100m", memory="100Mi", ephemeral_storage="1000Gi"), machine) == {
        "cpu": "3900m", "memory": "15160Mi", "ephemeral-storage": "0", "pods": "110",
        "hugepages-2Mi": "1Gi", "hugepages-1Gi": "0",
    }  # fmt: skip


def test_resource_that_an_operator_gave_the_node_may_be_used() -> None:
    wanted = {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}, "addresses": []}
    stored = {"status": {"capacity": {"cpu": "5", "example.com/dongle": "4", "hugepages-2Mi": "0"}}}
    assert with_resources_of_others(wanted, stored) == {
        "capacity": {"cpu": "4", "example.com/dongle": "4"},
        "allocatable": {"cpu": "3", "example.com/dongle": "4"},
        "addresses": [],
    }


def conditions(**statuses: str) -> list[Obj]:
    return [{"type": name, "status": status} for name, status in statuses.items()]


@pytest.mark.parametrize(
    ("before", "after", "reasons"),
    [
        ({}, {"MemoryPressure": "False", "Ready": "False"}, ["NodeHasSufficientMemory"]),
        ({}, {"DiskPressure": "True", "Ready": "True"}, ["NodeHasDiskPressure", "NodeReady"]),
        ({"Ready": "True"}, {"Ready": "True"}, []),
        ({"Ready": "True"}, {"Ready": "False"}, ["NodeNotReady"]),
        ({"Ready": "Unknown"}, {"Ready": "True"}, ["NodeReady"]),
        ({"PIDPressure": "False"}, {"PIDPressure": "True"}, ["NodeHasInsufficientPID"]),
    ],
)
def test_changed_conditions_are_events(before: dict[str, str], after: dict[str, str], reasons: list[str]) -> None:
    assert condition_events({"status": {"conditions": conditions(**before)}}, conditions(**after)) == reasons


class Api:
    """One node, as an API server has it."""

    def __init__(self, status: Obj) -> None:
        meta: Obj = {"name": "n", "uid": "1", "labels": {}}
        self.node: Obj = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": status}
        self.patches: list[Obj] = []
        self.csi_nodes: list[Obj] = []

    async def create(self, kind: Any, obj: Obj) -> Obj:
        if obj["kind"] == "CSINode":
            self.csi_nodes.append(obj)
            return obj
        raise StatusError(409, "AlreadyExists", "there")

    async def get(self, *_: Any) -> Obj:
        return copy.deepcopy(self.node)

    async def patch(self, kind: Any, name: str, body: Obj, *_: Any, **__: Any) -> Obj:
        self.patches.append(body)
        self.node["metadata"]["labels"] |= body.get("metadata", {}).get("labels", {})
        for field, value in body.get("status", {}).items():
            merged = {**self.node["status"].get(field, {}), **value} if isinstance(value, dict) else value
            self.node["status"][field] = (
                {key: one for key, one in merged.items() if one is not None} if isinstance(value, dict) else merged
            )
        return copy.deepcopy(self.node)


class Runtime:
    """A runtime that answers after some seconds, or with an error."""

    def __init__(self) -> None:
        self.seconds, self.error = 0.0, ""

    async def status(self) -> cri.StatusResponse:
        await asyncio.sleep(self.seconds)
        if self.error:
            raise CriError("status", "UNAVAILABLE", self.error)
        kinds = ("RuntimeReady", "NetworkReady")
        ready = cri.RuntimeStatus(conditions=[cri.RuntimeCondition(type=kind, status=True) for kind in kinds])
        return cri.StatusResponse(status=ready)

    async def version(self) -> cri.VersionResponse:
        return cri.VersionResponse(runtime_name="containerd", runtime_version="1.6.20~ds1")

    async def images(self) -> list[cri.Image]:
        return []


class Reported:
    """A registered node on a machine with room, and the events about it as reason and message."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, status: Obj | None = None) -> None:
        async def at_once(work: Any, *args: Any) -> Any:
            return work(*args)

        monkeypatch.setattr(asyncio, "to_thread", at_once)
        self.api, self.runtime = Api(status or {}), Runtime()
        self.events: list[tuple[str, str]] = []
        recorder = SimpleNamespace(event=self._event)
        host = Host(Machine(cpus=4, memory=GIB, storage=100 * GIB, boot_id="b2"), ["192.0.2.1"])
        parts: Any = (self.api, self.runtime, options(), host, recorder)
        self.registration = Registration(*parts)

    def _event(self, about: Obj, type: str, reason: str, message: str) -> None:
        assert (about["kind"], about["metadata"]) == ("Node", {"name": "n", "uid": "n"})
        self.events.append((reason, message))

    async def report(self) -> Obj:
        """Report; what was written of the status."""
        self.api.patches.clear()
        await self.registration.report()
        return self.api.patches[-1]["status"] if self.api.patches else {}

    def reasons(self) -> list[str]:
        found = [reason for reason, _ in self.events]
        self.events.clear()
        return found


PRESSURES = ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"]


def test_node_tells_that_it_is_ready_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        node = Reported(monkeypatch)
        await node.registration.register()
        await node.report()
        assert node.events[-1] == ("NodeReady", "Node n status is now: NodeReady")
        assert node.reasons() == [*PRESSURES, "NodeReady"]
        assert await node.report() == {}
        assert node.reasons() == []

    virtual_time.run(run())


def test_restarted_machine_and_cordon_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        node = Reported(monkeypatch, {"nodeInfo": {"bootID": "b1"}})
        await node.registration.register()
        await node.report()
        assert node.events[0] == ("Rebooted", "Node n has been rebooted, boot id: b2")
        node.events.clear()
        node.api.node["status"]["nodeInfo"]["bootID"] = "b1"  # a write that came late
        node.api.node["spec"]["unschedulable"] = True
        await node.report()
        assert node.reasons() == ["NodeNotSchedulable"]
        node.api.node["spec"] = {}
        await node.report()
        assert node.reasons() == ["NodeSchedulable"]

    virtual_time.run(run())


def test_runtime_that_does_not_answer_is_down_within_thirty_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        node = Reported(monkeypatch)
        await node.registration.register()
        await node.report()
        node.reasons()
        node.runtime.seconds = 3600.0
        began = asyncio.get_running_loop().time()
        patch = await node.report()
        assert asyncio.get_running_loop().time() - began < 21.0
        assert patch["conditions"][-1]["message"] == "container runtime is down: no answer within 20 s"
        assert patch.keys() == {"conditions"}  # what was known of it stays
        assert node.reasons() == ["NodeNotReady"]
        node.runtime.seconds = 0.0
        await node.report()
        assert node.reasons() == ["NodeReady"]

    virtual_time.run(run())


def test_label_of_the_machine_is_put_right_and_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        node = Reported(monkeypatch)
        await node.registration.register()
        node.api.node["metadata"]["labels"] = {"kubernetes.io/arch": "weird", "kubernetes.io/os": "linux", "a": "b"}
        await node.registration.report()
        assert node.api.patches[1] == {"metadata": {"labels": {"kubernetes.io/arch": "amd64"}}}

    virtual_time.run(run())


def test_resource_that_an_operator_took_away_goes_from_allocatable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        node = Reported(monkeypatch)
        await node.registration.register()
        await node.report()
        node.api.node["status"]["capacity"]["example.com/dongle"] = "4"
        assert (await node.report())["allocatable"]["example.com/dongle"] == "4"
        assert await node.report() == {}
        del node.api.node["status"]["capacity"]["example.com/dongle"]
        assert (await node.report())["allocatable"]["example.com/dongle"] is None
        assert "example.com/dongle" not in node.api.node["status"]["allocatable"]

    virtual_time.run(run())


def test_pod_that_wants_more_of_an_operators_resource_than_there_is_left_is_rejected(tmp_path: Path) -> None:
    agent = Agent(SimpleNamespace(shared=None), NodeOptions("n", tmp_path, tmp_path))  # type: ignore[arg-type]
    own = {"cpu": "4", "memory": "1Gi", "pods": "110"}
    agent.context = SimpleNamespace(allocatable=own, allocations=Allocations())  # type: ignore[assignment]
    node = {"status": {"allocatable": {"cpu": "1", "example.com/dongle": "4"}}}
    agent._nodes = SimpleNamespace(get=lambda name: node)  # type: ignore[assignment]

    def problem(name: str, amount: str) -> tuple[str, str] | None:
        containers = [{"name": "main", "resources": {"requests": {name: amount}}}]
        return agent._no_room({"metadata": {"name": "p", "uid": "p"}, "spec": {"containers": containers}})

    text = "Node didn't have enough resource: example.com/dongle, requested: 5, used: 0, capacity: 4"
    assert problem("example.com/dongle", "5") == ("OutOfexample.com/dongle", text)
    assert problem("example.com/dongle", "4") is None
    assert problem("cpu", "2") is None  # the agent knows better what its machine has
    assert problem("example.com/other", "5") is None


def test_node_says_that_it_has_no_storage_drivers_and_which_features_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Reported(monkeypatch)

    async def body() -> Obj:
        await node.registration.register()
        return await node.report()

    status = virtual_time.run(body())
    (made,) = node.api.csi_nodes
    assert (made["metadata"]["name"], made["spec"]) == ("n", {"drivers": []})
    assert [owner["kind"] for owner in made["metadata"]["ownerReferences"]] == ["Node"]
    assert status["declaredFeatures"] == [
        "ExtendWebSocketsToKubelet",
        "InPlacePodLevelResourcesVerticalScaling",
        "InPlacePodVerticalScalingInitContainers",
        "RestartAllContainersOnContainerExits",
    ]
    off = FeatureGates({"RestartAllContainersOnContainerExits": False})
    assert declared_features(off) == status["declaredFeatures"][:3]
    node.registration.short_of = lambda: ("DiskPressure",)
    conditions = virtual_time.run(node.report())["conditions"]
    assert {one["type"] for one in conditions if one["status"] == "True"} == {"DiskPressure", "Ready"}


@pytest.mark.parametrize(("old", "reasons"), [(False, ["Starting"]), (True, ["Starting", "CgroupV1"])])
def test_machine_with_old_control_groups_is_told_of(
    monkeypatch: pytest.MonkeyPatch, old: bool, reasons: list[str]
) -> None:
    node = Reported(monkeypatch)
    node.registration.tell_start(old_groups=old)
    assert node.reasons() == reasons
