"""Device files, libraries and programs of this machine that a container needs to use a card.

Everything of the kernel driver's version beside `libcuda` is mounted where the machine has it, under its own name and
under those that link to it: no hook has to run in the container. Access to a partition is a device file of its own,
whose number is in `/proc/driver/nvidia-caps/mig-minors`.
Sources: NVIDIA's documentation of MIG's device nodes; what `nvidia-ctk cdi generate` lists, as behaviour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from haru.drivers.library import DeviceError, DeviceNode, Edits, Mount

_DIRECTORIES: Final = ("usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64", "usr/lib")
_PROGRAMS: Final = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)
_OPTIONS: Final = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_COMMON: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
_NEEDED: Final = ("nvidiactl", "nvidia-uvm")
_ENVIRONMENT: Final = ("NVIDIA_VISIBLE_DEVICES=void",)
"""So that a runtime of NVIDIA's does not add all cards of its own accord."""


@dataclass(frozen=True, slots=True)
class Host:
    """This machine. `driver_root` is where the kernel driver's libraries are installed."""

    driver_root: Path = Path("/")
    root: Path = Path("/")
    """Where /dev, /proc and /sys are: another one in tests."""
    is_played: bool = False
    """The cards are not here: device files that are missing are left out."""

    def of_card(self, device: str, minor: int, version: str) -> Edits:
        """What a container gets with a whole card. Raises `DeviceError`."""
        return self._edits(device, [f"nvidia{minor}"], version)

    def of_partition(self, device: str, minor: int, instance: int, compute: int, version: str) -> Edits:
        """What a container gets with a partition. Raises `DeviceError`."""
        names = [f"nvidia{minor}"]
        numbers = self._capabilities()
        for path in (f"gpu{minor}/gi{instance}/access", f"gpu{minor}/gi{instance}/ci{compute}/access"):
            if path in numbers:
                names.append(f"nvidia-caps/nvidia-cap{numbers[path]}")
            elif not self.is_played:
                raise DeviceError(device, f"/proc/driver/nvidia-caps/mig-minors has no {path}")
        return self._edits(device, names, version)

    def _edits(self, device: str, names: list[str], version: str) -> Edits:
        nodes = []
        for name in [*names, *_COMMON]:
            if (self.root / "dev" / name).exists():
                nodes.append(DeviceNode(f"/dev/{name}"))
            elif not self.is_played and (name in names or name in _NEEDED):
                raise DeviceError(device, f"there is no /dev/{name}: is the kernel driver loaded? see nvidia-modprobe")
        return Edits(_ENVIRONMENT, tuple(self._mounts(version)), tuple(nodes))

    def _capabilities(self) -> dict[str, int]:
        """`gpu0/gi1/access` -> the number of the device file."""
        try:
            text = (self.root / "proc/driver/nvidia-caps/mig-minors").read_text()
        except OSError:
            return {}
        return {path: int(number) for path, number in re.findall(r"^(\S+) (\d+)$", text, re.M)}

    def _mounts(self, version: str) -> Iterator[Mount]:
        for directory in self._libraries(version):
            versioned = sorted(directory.glob(f"*.so.{version}"))
            for path in sorted(directory.iterdir()):
                if path in versioned or (".so" in path.name and path.is_symlink() and path.resolve() in versioned):
                    yield self._mount(path.resolve(), path)
        for name in _PROGRAMS:
            path = self.driver_root / "usr/bin" / name
            if path.exists():
                yield self._mount(path, path)

    def _libraries(self, version: str) -> list[Path]:
        """Directories with the libraries of this version; one that is a link to another counts once."""
        known: dict[Path, None] = {}
        for name in _DIRECTORIES:
            directory = (self.driver_root / name).resolve()
            if (directory / f"libcuda.so.{version}").exists():
                known.setdefault(directory)
        return list(known)

    def _mount(self, path: Path, inside: Path) -> Mount:
        return Mount(str(path), f"/{inside.relative_to(self.driver_root.resolve())}", _OPTIONS)


def pci_places(bus_id: str, root: Path = Path("/")) -> tuple[str, int | None]:
    """(PCIe root as `pci0000:17`, NUMA node) of a PCI device; empty and None where the kernel does not say."""
    device = root / "sys/bus/pci/devices" / bus_id
    try:
        found = next((part for part in device.resolve(strict=True).parts if re.fullmatch(r"pci[0-9a-f]+:.+", part)), "")
    except OSError:
        return "", None
    try:
        numa = int((device / "numa_node").read_text())
    except (OSError, ValueError):
        return found, None
    return found, numa if numa >= 0 else None
