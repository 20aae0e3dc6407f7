"""Drivers as processes: `haru driver simulated`, killed and checked; a driver of the library that dies at each step."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import uvicorn
import yaml
from crashing_driver import PLACES
from dra_bench import CLAIMS, DRIVER, NODE, NODES, Bench, bench, pod, result

from haru.drivers.cdi.reader import CdiFiles
from haru_process import HARU, Process, environment
from waiting import until

GPU = "gpu.nvidia.com"


class Served(Bench):
    """A bench whose API is also served over HTTP, for processes."""

    url: str
    kubeconfig: Path


@pytest_asyncio.fixture
async def here() -> AsyncIterator[Served]:
    async with bench() as made:
        made.__class__ = Served
        assert isinstance(made, Served)
        config = uvicorn.Config(made.server, "127.0.0.1", 0, lifespan="off", log_level="error", ws="none")
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        task = asyncio.create_task(server.serve())
        await until(lambda: server.started, "the API over HTTP")
        made.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        made.kubeconfig = made.root / "kubeconfig"
        made.kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "x",
                    "clusters": [{"name": "x", "cluster": {"server": made.url}}],
                    "users": [{"name": "x", "user": {"token": "admin"}}],
                    "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                }
            )
        )
        yield made
        server.should_exit = True
        server.force_exit = True
        await task


class Simulated(Process):
    """`haru driver simulated` for the bench's node."""

    def __init__(self, here: Served, *arguments: str) -> None:
        flags = ["--kubeconfig", str(here.kubeconfig), "--node", NODE, "--profile", "dgx-h100"]
        places = ["--kubelet-dir", str(here.kubelet), "--cdi-dir", str(here.cdi)]
        super().__init__(here.root, ["driver", "simulated", *flags, *places, *arguments], "driver")

    async def ready(self) -> None:
        assert (await asyncio.to_thread(self.line)).startswith(f"haru driver {GPU} is ready at ")


@pytest.fixture
def started() -> Iterator[list[Process]]:
    processes: list[Process] = []
    yield processes
    for process in processes:
        process.stop(signal.SIGKILL)


@pytest.mark.nightly  # by day tests/node/test_dra_on_containerd.py does it with real processes
async def test_simulated_driver_process_survives_kill_and_reports_health(here: Served, started: list[Process]) -> None:
    mine = pod("p", "claim")
    parameters = {"apiVersion": "simulated.haru.dev/v1alpha1", "kind": "SimulatedConfig", "env": {"MODE": "fast"}}
    config = [{"source": "FromClaim", "requests": [], "opaque": {"driver": GPU, "parameters": parameters}}]
    claim = await here.claim("claim", result("gpu-3", driver=GPU), pods=[mine], config=config)
    driver = Simulated(here)
    started.append(driver)
    await driver.ready()
    assert [len(one["spec"]["devices"]) for one in await here.slices()] == [8]
    async with here.running(GPU) as devices:
        prepared = await devices.prepare(mine)
        edits = CdiFiles([here.cdi]).resolve(prepared.devices["main"])
        told = dict(entry.split("=", 1) for entry in edits.env)
        assert told["MODE"] == "fast"
        assert told["HARU_DEVICE_GPU_3"].startswith("GPU-")
        files = {mount.container_path: Path(mount.host_path) for mount in edits.mounts}
        assert json.loads(files["/dev/haru/gpu-3"].read_text())["claim"] == claim["metadata"]["uid"]
        metadata = files[f"/var/run/kubernetes.io/dra-device-attributes/resourceclaims/claim/gpu/{GPU}-metadata.json"]
        attributes = json.loads(metadata.read_text())["requests"][0]["devices"][0]["attributes"]
        assert attributes["productName"]["string"].startswith("NVIDIA H100")

        before = devices.registry.get(GPU)
        await asyncio.to_thread(driver.stop, signal.SIGKILL)
        again = Simulated(here)
        started.append(again)
        await again.ready()
        await until(lambda: devices.registry.find(GPU) not in (None, before), "the driver is back")
        assert await devices.prepare(mine) == prepared

        ill = {"simulated.haru.dev/device-health": "gpu-3=Unhealthy:too hot"}
        await here.api.patch(NODES, NODE, {"metadata": {"annotations": ill}})

        def health() -> list[str]:
            status = devices.status(mine)["main"]
            return [one.get("message", "") for one in status[0]["resources"]]

        await until(lambda: health() == ["too hot"], "the health in the status")
        await devices.unprepare(mine["metadata"]["uid"])
        assert not files["/dev/haru/gpu-3"].exists()
        assert await asyncio.to_thread(again.stop) == 0
        assert await here.slices() == []
        await until(lambda: not devices.registry.drivers(), "the driver has left")


async def test_simulated_driver_passes_conformance_script(here: Served, started: list[Process]) -> None:
    driver = Simulated(here)
    started.append(driver)
    await driver.ready()
    pid = here.root / "pid"
    pid.write_text(str(driver.process.pid))
    again = here.root / "again.sh"
    arguments = " ".join(f"'{part}'" for part in driver.process.args)  # type: ignore[union-attr]
    again.write_text(f"kill -9 $(cat {pid})\n{arguments} >/dev/null 2>>{driver.log} &\necho $! >{pid}\n")
    flags = ["--node", NODE, "--driver-name", GPU, "--kubeconfig", str(here.kubeconfig), "-o", "json"]
    places = ["--kubelet-dir", str(here.kubelet), "--cdi-dir", str(here.cdi), "--restart", f"sh {again}"]
    try:
        check = await asyncio.to_thread(
            subprocess.run,
            [*HARU, "driver", "check", *flags, *places],
            env=environment(here.root),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        answer = json.loads(check.stdout)
        assert {one["name"]: (one["verdict"], one["message"]) for one in answer["checks"]} == {
            one["name"]: ("passed", "") for one in answer["checks"]
        }
        assert (check.returncode, len(answer["checks"])) == (0, 10), check.stderr
        assert (await here.api.list(CLAIMS))["items"] == []
        assert not list(here.cdi.iterdir())
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


BY_DAY = ("after prepare",)


@pytest.mark.parametrize(
    "place", [place if place in BY_DAY else pytest.param(place, marks=pytest.mark.nightly) for place in PLACES]
)
async def test_driver_killed_at_any_step_recovers_claims(here: Served, place: str, tmp_path: Path) -> None:
    mine = pod("p", "claim")
    claim = await here.claim("claim", result("gpu-0"), result("gpu-1", "other"), pods=[mine])
    mark = tmp_path / "die"
    mark.write_text(place)
    command = [sys.executable, str(Path(__file__).with_name("crashing_driver.py")), here.url, "admin"]
    log = tmp_path / "log"

    async def start() -> asyncio.subprocess.Process:
        with log.open("a") as file:
            process = await asyncio.create_subprocess_exec(
                *command,
                str(here.kubelet),
                str(here.cdi),
                env=environment(here.root, DIE_AT=str(mark)),
                stdout=subprocess.PIPE,
                stderr=file,
            )
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"ready\n", log.read_text()
        return process

    cards = here.kubelet / "plugins" / DRIVER / "cards"
    process = await start()
    async with here.running(DRIVER) as devices:

        async def survive(work: str) -> None:
            """Do it as an agent does: again until it works, with a new process once this one is dead."""
            nonlocal process
            for _ in range(50):
                try:
                    if work == "prepare":
                        await devices.prepare(mine)
                    else:
                        await devices.unprepare(mine["metadata"]["uid"])
                    return
                except Exception as error:
                    assert not mark.exists(), f"an error without a death: {error}"
                    if process.returncode is None and not await died(process):
                        continue
                    process = await start()
            raise AssertionError(f"{work} fails again and again: {log.read_text()}")

        await survive("prepare")
        uid = claim["metadata"]["uid"]
        assert (cards / uid).read_text() == "gpu-0 gpu-1"
        (info,) = devices.manager.claims()
        ids = [id_ for one in info.drivers[DRIVER] for id_ in one.cdi_ids]
        assert CdiFiles([here.cdi]).resolve(ids).env == ("CARD=gpu-1",)
        await survive("unprepare")
        assert not mark.exists()
        assert list(cards.iterdir()) == []
        assert list(here.cdi.iterdir()) == []
        assert devices.manager.claims() == []
        assert json.loads((here.kubelet / "plugins" / DRIVER / "claims.json").read_text())["content"]["claims"] == []
    if process.returncode is None:
        process.kill()
    await process.wait()


async def died(process: asyncio.subprocess.Process) -> bool:
    """Whether a process that may be on its way out has gone within a second."""
    try:
        async with asyncio.timeout(1):
            await process.wait()
    except TimeoutError:
        return False
    return True


async def test_nvidia_driver_process_works_with_recording(here: Served, started: list[Process]) -> None:
    recording = Path(__file__).parents[1] / "data" / "nvml" / "two-h100-of-the-player.json"
    flags = ["--play", str(recording), "--driver-gates", "DynamicMIG=true", "--node", NODE]
    places = ["--kubeconfig", str(here.kubeconfig), "--kubelet-dir", str(here.kubelet), "--cdi-dir", str(here.cdi)]
    driver = Process(here.root, ["driver", "nvidia", *flags, *places], "driver")
    started.append(driver)
    ready = await asyncio.to_thread(driver.line)
    assert ready.startswith(f"haru driver {GPU} is ready at ") and ready.strip().endswith("with 52 devices")
    assert len(await here.slices()) == 3
    mine = pod("p", "claim")
    await here.claim("claim", result("gpu-1-mig-3g40gb-9-4", driver=GPU), pods=[mine])
    async with here.running(GPU) as devices:
        prepared = await devices.prepare(mine)
        assert "NVIDIA_VISIBLE_DEVICES=void" in CdiFiles([here.cdi]).resolve(prepared.devices["main"]).env
        await devices.unprepare(mine["metadata"]["uid"])
    assert await asyncio.to_thread(driver.stop) == 0
    assert await here.slices() == []
