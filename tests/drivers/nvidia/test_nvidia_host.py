"""What a container gets of a machine: device files, libraries, programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from nvidia_bench import VERSION, claim, machine, options, played

from haru.drivers.library import DeviceError
from haru.drivers.nvidia.host import Host, pci_places
from haru.drivers.nvidia.process import assemble


def test_whole_card_gets_device_nodes_mounts_and_environment(tmp_path: Path) -> None:
    edits = machine(tmp_path).of_card("gpu-1", 1, VERSION)
    assert edits.env == ("NVIDIA_VISIBLE_DEVICES=void",)
    assert [node.path for node in edits.device_nodes] == [
        "/dev/nvidia1",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
    ]
    libraries = "/usr/lib/x86_64-linux-gnu"
    assert {mount.container_path: mount.host_path.removeprefix(str(tmp_path)) for mount in edits.mounts} == {
        f"{libraries}/libcuda.so": f"{libraries}/libcuda.so.{VERSION}",
        f"{libraries}/libcuda.so.1": f"{libraries}/libcuda.so.{VERSION}",
        f"{libraries}/libcuda.so.{VERSION}": f"{libraries}/libcuda.so.{VERSION}",
        f"{libraries}/libnvidia-ml.so.1": f"{libraries}/libnvidia-ml.so.{VERSION}",
        f"{libraries}/libnvidia-ml.so.{VERSION}": f"{libraries}/libnvidia-ml.so.{VERSION}",
        "/usr/bin/nvidia-smi": "/usr/bin/nvidia-smi",
    }
    assert all(mount.options == ("ro", "nosuid", "nodev", "rbind", "rprivate") for mount in edits.mounts)


async def test_partition_gets_its_own_device_nodes(tmp_path: Path) -> None:
    given = options(tmp_path, "DynamicMIG", host=machine(tmp_path / "m"))
    _, _, cards = assemble(played("dgx-h100-mig"), given, tmp_path / "data")
    await cards.prepare(claim("a", "gpu-1-mig-1g10gb-19-0"))
    (ready,) = await cards.prepare(claim("b", "gpu-1-mig-1g10gb-19-1"))
    paths = [node.path for node in ready.edits.device_nodes]
    assert paths[:3] == ["/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap204", "/dev/nvidia-caps/nvidia-cap205"]


def test_missing_device_nodes_are_reported(tmp_path: Path) -> None:
    host = machine(tmp_path, [0])
    with pytest.raises(DeviceError, match=r"gpu-1: there is no /dev/nvidia1: is the kernel driver loaded"):
        host.of_card("gpu-1", 1, VERSION)
    with pytest.raises(DeviceError, match=r"mig-minors has no gpu0/gi99/access"):
        host.of_partition("gpu-0-mig-x", 0, 99, 0, VERSION)
    (tmp_path / "dev/nvidia-uvm").unlink()
    with pytest.raises(DeviceError, match=r"there is no /dev/nvidia-uvm:"):
        host.of_card("gpu-0", 0, VERSION)
    assert Host(tmp_path, tmp_path, is_played=True).of_partition("gpu-1-mig-x", 1, 99, 0, VERSION).device_nodes


def test_pci_address_gives_pcie_root_and_numa_node(tmp_path: Path) -> None:
    place = tmp_path / "sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0"
    place.mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices/0000:17:00.0").symlink_to(place)
    assert pci_places("0000:17:00.0", tmp_path) == ("pci0000:16", None)
    for text, numa in (("1\n", 1), ("-1\n", None), ("?\n", None)):
        (place / "numa_node").write_text(text)
        assert pci_places("0000:17:00.0", tmp_path) == ("pci0000:16", numa)
    assert pci_places("0000:18:00.0", tmp_path) == ("", None)
