"""What a container gets of a machine: device files, libraries, programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from nvidia_bench import VERSION, claim, machine, options, played

from haru.drivers.library import DeviceError
from haru.drivers.nvidia.host import DriverRootError, Host, pci_places
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


def test_partition_gets_device_nodes_that_the_machine_lacks(tmp_path: Path) -> None:
    """Nothing makes them on a machine without nvidia-modprobe; the runtime makes those that have their numbers."""
    host = machine(tmp_path)
    (tmp_path / "dev/nvidia-caps/nvidia-cap102").unlink()
    with pytest.raises(DeviceError, match=r"no /dev/nvidia-caps/nvidia-cap102, and /proc/devices has no nvidia-caps"):
        host.of_partition("gpu-0-mig-x", 0, 1, 0, VERSION)
    (tmp_path / "proc/devices").write_text(
        "Character devices:\n195 nvidia\n241 nvidia-caps\n\nBlock devices:\n254 vd\n"
    )
    card, instance, compute, *_ = host.of_partition("gpu-0-mig-x", 0, 1, 0, VERSION).device_nodes
    assert (card.path, card.type, compute.path) == ("/dev/nvidia0", "", "/dev/nvidia-caps/nvidia-cap103")
    assert (instance.path, instance.type) == ("/dev/nvidia-caps/nvidia-cap102", "c")
    assert (instance.major, instance.minor, instance.file_mode) == (241, 102, 0o444)


def test_driver_root_as_cloud_nodes_have_it(tmp_path: Path) -> None:
    """`lib64` and `bin` at the top, and a link out of the root: /usr/local/nvidia of images that install the driver."""
    (tmp_path / "store").mkdir()
    for name in (f"libcuda.so.{VERSION}", f"libnvidia-ml.so.{VERSION}"):
        (tmp_path / "store" / name).touch()
    (tmp_path / "store/libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{VERSION}")
    root = tmp_path / "nvidia"
    (root / "bin").mkdir(parents=True)
    (root / "bin/nvidia-smi").touch()
    (root / "lib64").symlink_to(tmp_path / "store")
    host = Host(root, machine(tmp_path).root)
    host.check(VERSION)
    assert host.library("libnvidia-ml.so.1") == root / "lib64/libnvidia-ml.so.1"
    assert {mount.container_path: mount.host_path for mount in host.of_card("gpu-0", 0, VERSION).mounts} == {
        f"/lib64/libcuda.so.{VERSION}": str(tmp_path / f"store/libcuda.so.{VERSION}"),
        "/lib64/libnvidia-ml.so.1": str(tmp_path / f"store/libnvidia-ml.so.{VERSION}"),
        f"/lib64/libnvidia-ml.so.{VERSION}": str(tmp_path / f"store/libnvidia-ml.so.{VERSION}"),
        "/bin/nvidia-smi": str(root / "bin/nvidia-smi"),
    }


def test_driver_root_without_libraries_is_refused_at_start(tmp_path: Path) -> None:
    """Containers would start without libcuda."""
    empty = Host(tmp_path / "nowhere", machine(tmp_path).root)
    with pytest.raises(
        DriverRootError, match=rf'--driver-root: ".*nowhere": Invalid value: libcuda.so.{VERSION} is in'
    ):
        assemble(played("dgx-h100"), options(tmp_path, host=empty), tmp_path / "data")


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
