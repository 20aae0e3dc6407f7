"""DRA next to an agent, and the containers of a runtime without CDI."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from dra_bench import DRIVER, NODE, Bench, bench, pod, result

from haru.cli.main import build_parser
from haru.cli.node import _kubelet_dir
from haru.drivers.library import ClaimToPrepare, Edits, Entry, Health, ReadyDevice
from haru.node.dra.adapters import AgentPods, run_with_devices
from haru.node.podworker import container_start
from haru.proto.cri_pb2 import ContainerConfig, KeyValue
from waiting import until

Obj = dict[str, Any]


class Plain:
    """A driver whose devices are one variable each."""

    async def prepare(self, claim: ClaimToPrepare) -> list[ReadyDevice]:
        return [ReadyDevice(one, Edits((f"DEVICE={one.device}",))) for one in claim.devices]

    async def unprepare(self, claim: Entry) -> None:
        pass


class FakeAgent:
    """As much of an agent as is talked to: it counts how often a pod is to be looked at."""

    def __init__(self, *pods: Obj) -> None:
        self.store = {one["metadata"]["uid"]: one for one in pods}
        self.pods = SimpleNamespace(has_synced=False, store=self.store)
        self.pokes: list[str] = []
        self.failure: Exception | None = None
        self.fails = asyncio.Event()

    async def run(self) -> None:
        await self.fails.wait()
        assert self.failure is not None
        raise self.failure

    def worker(self, uid: str) -> Any:
        if uid not in self.store:
            return None
        return SimpleNamespace(wake=lambda: self.pokes.append(uid))


@pytest_asyncio.fixture
async def here() -> AsyncIterator[Bench]:
    async with bench() as made:
        yield made


async def test_pod_status_follows_device_health(here: Bench) -> None:
    mine, gone = pod("p", "claim"), pod("gone", "other")
    await here.claim("claim", result("gpu-0"), pods=[mine])
    await here.claim("other", result("gpu-1"), pods=[gone])
    agent: Any = FakeAgent(mine)
    pods = AgentPods()
    devices = here.devices(reconcile_seconds=0.05)
    devices._pods = pods
    devices.load()
    assert pods() is None
    pods.agent = agent
    assert pods() is None
    task = asyncio.create_task(run_with_devices(agent, devices))
    async with here.driver(Plain()) as server:
        await until(lambda: devices.registry.find(DRIVER), "the driver")
        await devices.prepare(mine)
        await devices.prepare(gone)
        await until(lambda: devices.status(mine)["main"][0]["resources"][0]["health"] == "Healthy", "health")
        # While it is not known which pods there are nothing is taken from any; then from those that are gone.
        assert len(devices.manager.claims()) == 2
        agent.pods.has_synced = True
        await until(lambda: [info.name for info in devices.manager.claims()] == ["claim"], "what is left behind")
        agent.pokes.clear()
        await server.set_health({(NODE, "gpu-0"): Health("Unhealthy", "too hot")})
        await until(lambda: agent.pokes == [mine["metadata"]["uid"]], "the pod is looked at")
        agent.failure = OSError("the runtime has gone")
        agent.fails.set()
        with pytest.raises(OSError, match="the runtime has gone"):
            await task
        assert not (here.kubelet / "pod-resources" / "kubelet.sock").exists()


async def test_too_long_socket_path_disables_pod_resources_only(here: Bench, caplog: pytest.LogCaptureFixture) -> None:
    here.kubelet = here.root / ("x" * 100)
    here.kubelet.mkdir()
    async with here.running():
        await until(lambda: "PodResources is not served" in caplog.text, "the complaint")


def test_cdi_edits_are_written_into_container_config(tmp_path: Path) -> None:
    edits = {
        "env": ["A=new", "B=2"],
        "deviceNodes": [{"path": "/dev/x"}, {"path": "/dev/y", "hostPath": "/dev/z", "permissions": "r"}],
        "mounts": [{"hostPath": "/h", "containerPath": "/c", "options": ["ro"]}],
    }
    devices = [{"name": "one", "containerEdits": edits}, {"name": "two", "containerEdits": {"additionalGids": [4]}}]
    spec = {"cdiVersion": "0.5.0", "kind": "v.com/card", "devices": devices}
    (tmp_path / "v.json").write_text(json.dumps(spec))
    config = ContainerConfig(envs=[KeyValue(key="A", value=b"old"), KeyValue(key="C", value=b"3")])
    container_start.apply(config, ["v.com/card=one"], [tmp_path])
    assert {one.key: one.value for one in config.envs} == {"A": b"new", "B": b"2", "C": b"3"}
    told = [(one.container_path, one.host_path, one.permissions) for one in config.devices]
    assert told == [("/dev/x", "/dev/x", "rwm"), ("/dev/y", "/dev/z", "r")]
    assert [(one.container_path, one.host_path, one.readonly) for one in config.mounts] == [("/c", "/h", True)]
    with pytest.raises(container_start.CdiError, match="asks for groups"):
        container_start.apply(config, ["v.com/card=two"], [tmp_path])


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], "/var/lib/kubelet"),
        (["--root-dir", "/srv/node"], "/srv/node"),
        (["--root-dir", "/srv/node", "--kubelet-dir", "/k"], "/k"),
    ],
)
def test_kubelet_directory_follows_flags(flags: list[str], expected: str) -> None:
    assert _kubelet_dir(build_parser().parse_args(["node", *flags])) == Path(expected)
