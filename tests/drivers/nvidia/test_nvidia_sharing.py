"""Time slices and MPS servers: what is set with a claim is put back with it, whatever happens between."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest
from nvidia_bench import GROUP, Written, claim, options, played

from haru.drivers.library import ClaimError, ConfigError, Entry
from haru.drivers.nvidia.plugin import NvidiaCards
from haru.drivers.nvidia.process import GatesError, assemble, read_gates
from haru.drivers.nvidia.sharing import run_command

LONG = {
    "apiVersion": GROUP,
    "kind": "GpuConfig",
    "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}},
}
MPS: dict[str, Any] = {
    "apiVersion": GROUP,
    "kind": "GpuConfig",
    "sharing": {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 40}},
}
GATES = ("TimeSlicingSettings", "MPSSupport")


def driver(root: Path, written: Written, nvml: Any) -> NvidiaCards:
    _, _, cards = assemble(nvml, options(root, *GATES, command=written), root / "data")
    return cards


def entry(uid: str) -> Entry:
    return Entry("default", f"claim-{uid}", uid)


async def test_time_slice_is_set_and_reset(tmp_path: Path) -> None:
    nvml, written = played("t4"), Written()
    cards = driver(tmp_path, written, nvml)
    first, second = (card.uuid for card in nvml.cards())
    await cards.prepare(claim("a", "gpu-0", "gpu-1", parameters=[LONG]))
    await cards.unprepare(entry("a"))
    await cards.unprepare(entry("a"))
    assert written.told() == [
        f"nvidia-smi compute-policy -i {uuid} --set-timeslice {interval}"
        for interval in (3, 0)
        for uuid in (first, second)
    ]
    assert nvml.compute_modes == {first: 0, second: 0}


async def test_mps_daemon_is_started_and_stopped_with_its_claim(tmp_path: Path) -> None:
    nvml, written = played("t4"), Written()
    cards = driver(tmp_path, written, nvml)
    (uuid, _) = (card.uuid for card in nvml.cards())
    (ready,) = await cards.prepare(claim("a", "gpu-0", parameters=[MPS]))
    (directory,) = (tmp_path / "data" / "mps").iterdir()
    assert directory.name.startswith("a-")
    assert nvml.compute_modes == {uuid: 3}
    mount, start, order = written.told()
    assert mount == f"mount -t tmpfs -o rw,nosuid,nodev,noexec,mode=1777 shm {directory}/shm"
    assert start.startswith("unshare --mount sh -c ") and start.endswith("nvidia-cuda-mps-control -d")
    assert written.calls[1][1] == {
        "CUDA_VISIBLE_DEVICES": uuid,
        "CUDA_MPS_PIPE_DIRECTORY": f"{directory}/pipe",
        "CUDA_MPS_LOG_DIRECTORY": f"{directory}/log",
        "HARU_MPS_SHM": f"{directory}/shm",
    }
    assert order == "nvidia-cuda-mps-control <set_default_active_thread_percentage 40>"
    assert "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps" in ready.edits.env
    assert {(m.host_path, m.container_path) for m in ready.edits.mounts} == {
        (f"{directory}/shm", "/dev/shm"),
        (f"{directory}/pipe", "/tmp/nvidia-mps"),
    }
    await cards.unprepare(entry("a"))
    assert written.told()[-1] == "nvidia-cuda-mps-control <quit>"
    assert not directory.exists()
    assert nvml.compute_modes == {uuid: 0}


async def test_half_started_mps_daemon_is_started_again_and_cleaned_up(tmp_path: Path) -> None:
    nvml, written = played("t4"), Written()
    cards = driver(tmp_path, written, nvml)
    written.broken = {"unshare"}
    with pytest.raises(ClaimError, match="unshare: is broken"):
        await cards.prepare(claim("a", "gpu-0", parameters=[MPS]))
    written.broken = set()
    cards = driver(tmp_path, written, nvml)
    cards.recover(["a"])
    await cards.prepare(claim("a", "gpu-0", parameters=[MPS]))
    await cards.prepare(claim("a", "gpu-0", parameters=[MPS]))
    assert len(list((tmp_path / "data" / "mps").iterdir())) == 1
    assert written.told().count("nvidia-cuda-mps-control <quit>") == 2
    cards = driver(tmp_path, written, nvml)
    cards.recover([])
    assert list((tmp_path / "data" / "mps").iterdir()) == [], "the claim is gone, and so is its server"


async def test_settings_lost_by_reboot_are_applied_again(tmp_path: Path) -> None:
    nvml, written = played("t4", 3), Written()
    cards = driver(tmp_path, written, nvml)
    await cards.prepare(claim("a", "gpu-0", parameters=[MPS]))
    await cards.prepare(claim("b", "gpu-1", "gpu-2", parameters=[LONG]))
    before = written.told()
    written.calls = []
    nvml.reboot()
    (directory,) = (tmp_path / "data" / "mps").iterdir()
    (directory / "pipe" / "control").unlink()
    driver(tmp_path, written, nvml).recover(["a", "b"])
    assert written.told() == before
    assert sorted(nvml.compute_modes.values()) == [0, 0, 3]


def test_running_mps_daemon_is_kept_across_driver_restart(tmp_path: Path) -> None:
    nvml, written = played("t4"), Written()
    asyncio.run(driver(tmp_path, written, nvml).prepare(claim("a", "gpu-0", parameters=[MPS])))
    (directory,) = (tmp_path / "data" / "mps").iterdir()
    words = ["sh", "-c", "echo; read forever", "nvidia-cuda-mps-control"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        daemon.stdout.readline()  # its arguments are to be seen from now on
        (directory / "pipe" / "nvidia-cuda-mps-control.pid").write_text(f"{daemon.pid}\n")
        written.calls = []
        driver(tmp_path, written, nvml).recover(["a"])
        assert written.calls == []
        daemon.communicate(b"")


async def test_devices_with_one_configuration_share_an_mps_daemon(tmp_path: Path) -> None:
    nvml, written = played("t4"), Written()
    ready = await driver(tmp_path, written, nvml).prepare(claim("a", "gpu-0", "gpu-1", parameters=[MPS]))
    assert [call for call in written.told() if call.endswith(" -d")] != []
    assert len([call for call in written.told() if call.endswith(" -d")]) == 1
    assert ready[0].edits == ready[1].edits


async def test_claim_with_invalid_configuration_changes_nothing(tmp_path: Path) -> None:
    nvml, written = played("dgx-h100-mig"), Written()
    _, partitions, cards = assemble(nvml, options(tmp_path, "DynamicMIG", command=written), tmp_path / "data")
    with pytest.raises(ConfigError, match="MigDeviceConfig"):
        plain = [{"apiVersion": GROUP, "kind": "GpuConfig"}]
        await cards.prepare(claim("a", "gpu-1", "gpu-0-mig-1g10gb-19-0", parameters=plain, named=True))
    with pytest.raises(ConfigError, match="the driver runs without TimeSlicingSettings"):
        await cards.prepare(claim("a", "gpu-1", parameters=[LONG]))
    assert (partitions.notes(), written.calls) == ([], [])


def test_run_command_returns_output_and_reports_failures() -> None:
    assert run_command(("sh", "-c", 'read x; echo "$A $x"'), {"A": "1"}, "2\n") == "1 2\n"
    with pytest.raises(ClaimError, match="sh: no luck"):
        run_command(("sh", "-c", "echo no luck >&2; exit 3"), {})
    with pytest.raises(ClaimError, match="false: status 1"):
        run_command(("false",), {})
    with pytest.raises(ClaimError, match="no-such-program: cannot be run: No such file"):
        run_command(("/no-such-program",), {})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("DynamicMIG=true,MPSSupport=true", "cannot be with MPSSupport=true"),
        ("Passthrough=true", 'no gate has that name: use DynamicMIG'),
        ("DynamicMIG", "write DynamicMIG=true or DynamicMIG=false"),
    ],
)  # fmt: skip
def test_invalid_feature_gates_are_refused(text: str, told: str) -> None:
    with pytest.raises(GatesError, match=told):
        read_gates(text)


def test_feature_gates_are_parsed_with_defaults() -> None:
    assert read_gates("") == {"NVMLDeviceHealthCheck"}
    assert read_gates("DynamicMIG=true, NVMLDeviceHealthCheck=false,TimeSlicingSettings=true") == {
        "DynamicMIG",
        "TimeSlicingSettings",
    }
