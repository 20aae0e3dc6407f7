"""What a node says of devices (PodResources, health), which sockets it believes, and what CDI files come to."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from dra_bench import DRIVER, NODE, Bench, bench, pod, result

from haru.drivers.cdi.edits import CdiError, DeviceNode, Edits, Mount, Spec, read_spec
from haru.drivers.cdi.reader import CdiFiles
from haru.drivers.checkpoint import Checkpoint, CheckpointError
from haru.drivers.library import ClaimToPrepare, Entry, ReadyDevice
from haru.drivers.protocol import V1
from haru.drivers.sockets import SocketError, call, channel, serve
from haru.node.dra.errors import DriverAway
from haru.node.dra.health import HealthCache
from haru.node.dra.metrics import DraMetrics
from haru.node.dra.plugins import Instance
from haru.node.dra.pod_resources import (
    SERVICE,
    SOCKET,
    TokenBucket,
)
from haru.node.dra.registry import PluginRegistry
from haru.proto import podresources_pb2 as podresources
from haru.proto.dra_pb2 import Claim, DeviceHealth, DeviceIdentifier, NodeWatchResourcesResponse
from protobuf_wire import fields
from waiting import until

Obj = dict[str, Any]


class Plain:
    """A driver whose devices are one variable each."""

    async def prepare(self, claim: ClaimToPrepare) -> list[ReadyDevice]:
        return [ReadyDevice(one, Edits((f"DEVICE={one.device}",))) for one in claim.devices]

    async def unprepare(self, claim: Entry) -> None:
        pass


@pytest_asyncio.fixture
async def here() -> AsyncIterator[Bench]:
    async with bench() as made:
        yield made


# -- PodResources ----------------------------------------------------------------------------------------------------


async def test_pod_resources_api_lists_devices_per_container(here: Bench) -> None:
    mine, ended = pod("p", "claim"), pod("ended")
    mine["spec"]["initContainers"] = [
        {"name": "setup", "resources": {"claims": [{"name": "c0"}]}},
        {"name": "sidecar", "restartPolicy": "Always", "resources": {"claims": [{"name": "c0", "request": "other"}]}},
    ]
    ended["status"]["phase"] = "Succeeded"
    here.pods += [mine, ended]
    claim = await here.claim("claim", result("gpu-0"), result("gpu-1", "other"), pods=[mine])
    async with here.driver(Plain()), here.running(DRIVER) as devices:
        await devices.prepare(mine)
        async with channel(here.kubelet / SOCKET) as through:
            ask = call(through, f"/{SERVICE}/List", podresources.ListPodResourcesResponse)
            (told,) = (await ask(podresources.ListPodResourcesRequest())).pod_resources
            assert (told.namespace, told.name) == ("default", "p")
            by_container = {
                one.name: [
                    (
                        dynamic.claim_namespace,
                        dynamic.claim_name,
                        device.driver_name,
                        device.pool_name,
                        device.device_name,
                    )
                    for dynamic in one.dynamic_resources
                    for device in dynamic.claim_resources
                ]
                for one in told.containers
            }
            first, second = (("default", "claim", DRIVER, NODE, name) for name in ("gpu-0", "gpu-1"))
            assert by_container == {"sidecar": [second], "main": [first, second]}
            (id_,) = told.containers[0].dynamic_resources[0].claim_resources[0].cdi_devices
            assert id_.name == f"{DRIVER}/claim={claim['metadata']['uid']}-gpu-1"

            get = call(through, f"/{SERVICE}/Get", podresources.GetPodResourcesResponse)
            assert (
                await get(podresources.GetPodResourcesRequest(pod_name="p", pod_namespace="default"))
            ).pod_resources == told
            for name, why in (("ended", "is not active"), ("nobody", "not found")):
                with pytest.raises(grpc.aio.AioRpcError, match=why) as error:
                    await get(podresources.GetPodResourcesRequest(pod_name=name, pod_namespace="default"))
                assert error.value.code() is grpc.StatusCode.NOT_FOUND
            ask = call(through, f"/{SERVICE}/GetAllocatableResources", podresources.AllocatableResourcesResponse)
            allocatable = await ask(podresources.AllocatableResourcesRequest())
            assert allocatable.cpu_ids
        count = devices.metrics.registry.get_sample_value
        labels = {"server_api_version": "v1"}
        assert count("kubelet_pod_resources_endpoint_requests_get_total", labels) == 3
        assert count("kubelet_pod_resources_endpoint_errors_get_total", labels) == 2
        assert count("dra_resource_claims_in_use", {"driver_name": "<any>"}) == 1
        assert count(
            "dra_operations_duration_seconds_count", {"operation_name": "PrepareResources", "is_error": "false"}
        )


async def test_pod_resources_answer_has_published_field_numbers(here: Bench) -> None:
    """Numbers of fields, read from the wire by hand: a table that is wrong twice would agree with itself."""
    mine = pod("p", "claim")
    here.pods.append(mine)
    await here.claim("claim", result("gpu-0"), pods=[mine])
    async with here.driver(Plain()), here.running(DRIVER) as devices:
        await devices.prepare(mine)
        async with channel(here.kubelet / SOCKET) as through:
            data: bytes = await through.unary_unary(f"/{SERVICE}/List")(b"")

    def inner(message: bytes, *path: int) -> bytes:
        for number in path:
            message = next(value for found, value in fields(message) if found == number and isinstance(value, bytes))
        return message

    resource = inner(data, 1, 3, 5, 4)
    assert inner(data, 1, 3, 5, 2) == b"claim"
    assert [inner(resource, number) for number in (2, 3, 4)] == [DRIVER.encode(), NODE.encode(), b"gpu-0"]
    assert inner(resource, 1, 1).startswith(f"{DRIVER}/claim=".encode())


def test_pod_resources_calls_are_rate_limited() -> None:
    now = [0.0]
    bucket = TokenBucket(100.0, 10, lambda: now[0])
    assert [bucket.take() for _ in range(11)] == [True] * 10 + [False]
    now[0] += 0.021
    assert [bucket.take() for _ in range(3)] == [True, True, False]


# -- health ----------------------------------------------------------------------------------------------------------


def _report(health: int, message: str = "", timeout: int = 0, device: str = "d") -> NodeWatchResourcesResponse:
    where = DeviceIdentifier(pool_name="p", device_name=device)
    told = DeviceHealth(device=where, health=health, health_check_timeout_seconds=timeout, message=message)
    return NodeWatchResourcesResponse(devices=[told])


def test_device_health_expires_and_reports_changes() -> None:
    cache, key = HealthCache(), ("x", "p", "d")
    assert cache.of(*key, 0) == ("Unknown", "")
    assert cache.take("x", _report(1), 0) == [key]
    assert cache.take("x", _report(1), 10) == []
    assert cache.of(*key, 39.9) == ("Healthy", "")
    assert cache.of(*key, 40) == ("Unknown", "")
    assert cache.next_expiry() == 40
    assert cache.expire(40) == [key]
    assert cache.expire(41) == []
    assert cache.take("x", _report(2, "hot", 5), 50) == [key]
    assert cache.take("x", _report(2, "hotter", 5), 51) == [key]
    assert cache.take("x", _report(2, "hotter", 7), 51) == [key]
    assert cache.of(*key, 57) == ("Unhealthy", "hotter")
    assert cache.of(*key, 58) == ("Unknown", "")
    assert cache.take("x", _report(2, "m" * 1025), 60) == [key]
    assert cache.of(*key, 61) == ("Unhealthy", "m" * 1021 + "...")
    assert cache.forget("y") == []
    assert cache.forget("x") == [key]
    assert cache.take("x", _report(17), 70) == []
    assert cache.of(*key, 71) == ("Unknown", "")


# -- sockets ---------------------------------------------------------------------------------------------------------


async def test_files_that_are_no_driver_socket_are_ignored(here: Bench) -> None:
    registry = here.kubelet / "plugins_registry"
    registry.mkdir(parents=True)
    (registry / "readme.txt").write_text("no socket")
    listener = await asyncio.start_unix_server(lambda reader, writer: writer.close(), str(registry / "mute.sock"))
    async with here.running() as devices, here.driver(Plain()):
        await until(lambda: devices.registry.drivers() == {DRIVER}, "the driver beside the others")
    listener.close()


async def test_stale_driver_socket_is_retried_until_driver_listens(here: Bench) -> None:
    path = here.kubelet / "plugins_registry" / f"{DRIVER}-reg.sock"
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    async with here.running() as devices, here.driver(Plain()):
        await until(lambda: devices.registry.find(DRIVER), "the driver behind a socket of the same name")


async def test_invalid_socket_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SocketError, match="longer than 107 bytes"):
        await serve(tmp_path / ("x" * 108), {})
    file = tmp_path / "file"
    file.write_text("precious")
    with pytest.raises(SocketError, match="no socket"):
        await serve(file, {})
    assert file.read_text() == "precious"


async def test_plugin_whose_path_no_socket_can_have_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    (tmp_path / "d").symlink_to(deep)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "d" / "reg.sock"))
        watching = asyncio.create_task(PluginRegistry(deep, DraMetrics()).run())
        await until(lambda: "longer than 107 bytes" in caplog.text, "the fault")
        watching.cancel()


# -- files -----------------------------------------------------------------------------------------------------------


def test_checkpoint_is_complete_or_an_error(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "deep" / "state", "things")
    assert checkpoint.load() is None
    checkpoint.store({"b": [1, 2], "a": "x"})
    assert checkpoint.load() == {"b": [1, 2], "a": "x"}
    (tmp_path / "deep" / ".state.new").write_text("what a crash left")
    checkpoint.store({"a": "y"})
    assert checkpoint.load() == {"a": "y"}
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["state"]
    with pytest.raises(CheckpointError, match="of things, not"):
        Checkpoint(checkpoint.path, "others").load()
    good = checkpoint.path.read_bytes()
    for position in range(len(good)):
        checkpoint.path.write_bytes(good[:position])
        with pytest.raises(CheckpointError, match="state"):
            checkpoint.load()
    checkpoint.path.write_bytes(good.replace(b'"y"', b'"z"'))
    with pytest.raises(CheckpointError, match="checksum"):
        checkpoint.load()


def _write(directory: Path, name: str, kind: str, devices: dict[str, Obj], **more: Any) -> None:
    directory.mkdir(exist_ok=True)
    listed = [{"name": key, "containerEdits": edits} for key, edits in devices.items()]
    (directory / name).write_text(json.dumps({"cdiVersion": "0.6.0", "kind": kind, "devices": listed, **more}))


def test_cdi_ids_resolve_to_environment_mounts_and_device_nodes(tmp_path: Path) -> None:
    static, dynamic = tmp_path / "etc", tmp_path / "run"
    node = {"path": "/dev/x0", "hostPath": "/dev/y0", "type": "c", "major": 1, "minor": 3, "permissions": "rw"}
    mount = {"hostPath": "/usr/lib/x", "containerPath": "/lib/x", "options": ["ro", "bind"]}
    common = {"env": ["ALL=1", "A=common"]}
    devices = {"one": {"env": ["A=one"], "deviceNodes": [node]}, "two": {"env": ["B=two"], "mounts": [mount]}}
    _write(static, "v.json", "v.com/card", devices, containerEdits=common)
    (static / "w.yaml").write_text(
        "cdiVersion: 0.5.0\nkind: w.com/net\ndevices:\n- name: n0\n  containerEdits: {env: [N=0]}\n"
    )
    files = CdiFiles([static, dynamic])
    assert files.ids() == ["v.com/card=one", "v.com/card=two", "w.com/net=n0"]
    edits = files.resolve(["v.com/card=one", "v.com/card=two", "w.com/net=n0", "v.com/card=one"])
    assert edits.env == ("ALL=1", "A=one", "B=two", "N=0")
    assert edits.mounts == (Mount("/usr/lib/x", "/lib/x", ("ro", "bind")),)
    assert edits.device_nodes == (DeviceNode("/dev/x0", "/dev/y0", "c", 1, 3, permissions="rw"),)
    _write(dynamic, "v.json", "v.com/card", {"one": {"env": ["A=newer"]}})
    assert files.resolve(["v.com/card=one"]).env == ("A=newer",)


@pytest.mark.parametrize(
    ("device", "told"),
    [
        ("v.com/card=three", "no CDI file in .* has this device"),
        ("v.com/card", "write vendor/class=name"),
        ("v.com/card=hooked", "1 hooks are demanded, which only a runtime with CDI runs"),
        ("v.com/card=rdt", "intelRdt"),
        ("v.com/card=twice", "both define it"),
        ("bad.com/card=x", r"bad.json: devices\[0\].containerEdits.env\[0\]: \"nothing\": write NAME=value"),
    ],
)
def test_unresolvable_cdi_id_is_refused(tmp_path: Path, device: str, told: str) -> None:
    hooked = {"hooks": [{"hookName": "createContainer", "path": "/bin/true"}]}
    devices = {"hooked": hooked, "rdt": {"intelRdt": {"closID": "x"}}, "twice": {"env": ["A=1"]}}
    _write(tmp_path, "v.json", "v.com/card", devices)
    _write(tmp_path, "v2.json", "v.com/card", {"twice": {"env": ["A=2"]}})
    _write(tmp_path, "bad.json", "bad.com/card", {"x": {"env": ["nothing"]}})
    with pytest.raises(CdiError, match=told):
        CdiFiles([tmp_path]).resolve([device])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"cdiVersion": "9"}, 'cdiVersion: "9"'),
        ({"kind": "novendor"}, "write vendor/class"),
        ({"devices": {}}, "devices: not a list"),
        ({"devices": [{"name": "-"}]}, r"devices\[0\].name"),
        ({"devices": [{"name": "a"}, {"name": "a"}]}, "stands there twice"),
        ({"containerEdits": {"mounts": [{"hostPath": "x", "containerPath": "/y"}]}}, r"mounts\[0\].hostPath"),
        ({"containerEdits": {"deviceNodes": [{"path": "/d", "major": "1"}]}}, r"deviceNodes\[0\].major"),
        ({"containerEdits": {"deviceNodes": [{"path": "/d", "type": "z"}]}}, r"deviceNodes\[0\].type"),
        ({"containerEdits": {"additionalGids": [True]}}, r"additionalGids\[0\]"),
    ],
)
def test_invalid_cdi_file_names_the_field(change: Obj, told: str) -> None:
    good: Obj = {"cdiVersion": "0.5.0", "kind": "v.com/card", "devices": [{"name": "a"}]}
    read_spec(good, "file")
    with pytest.raises(CdiError, match=told):
        read_spec({**good, **change}, "file")


def test_cdi_spec_round_trips() -> None:
    node = DeviceNode("/dev/x", "/dev/y", "b", 8, 0, 0o660, "rwm", 1, 2)
    edits = Edits(("A=1",), (Mount("/a", "/b", ("ro",), "bind"),), (node,), (44,))
    spec = Spec("v.com/card", {"one": edits}, Edits(("B=2",)))
    assert read_spec(spec.as_file(), "it") == spec


async def test_call_under_way_when_the_connection_is_given_up_says_that_the_driver_is_away(here: Bench) -> None:
    """gRPC cancels the call; whoever waits for it was not cancelled, and must not look as if."""
    called = asyncio.Event()

    class Stuck(Plain):
        async def prepare(self, claim: ClaimToPrepare) -> list[ReadyDevice]:
            called.set()
            await asyncio.Event().wait()
            return []

    mine = pod("p", "claim")
    claim = await here.claim("claim", result("gpu-0"), pods=[mine])
    async with here.driver(Stuck()) as driver:
        endpoint = str(here.options().socket)
        instance = Instance(DRIVER, endpoint, V1, has_health=False, registrar=Path(endpoint), metrics=DraMetrics())
        asked = Claim(namespace="default", uid=claim["metadata"]["uid"], name="claim")
        waiting = asyncio.create_task(instance.prepare([asked]))
        await called.wait()
        await instance.close()
        with pytest.raises(DriverAway, match="is leaving"):
            await waiting
        again = Instance(DRIVER, endpoint, V1, has_health=False, registrar=Path(endpoint), metrics=DraMetrics())
        called.clear()
        waiting = asyncio.create_task(again.prepare([asked]))
        await called.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await again.close()
        assert driver is not None
