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
from haru.errors import InputError

_DIRECTORIES: Final = (
    *("usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu"),
    *("lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "usr/lib"),
)
_PROGRAM_DIRECTORIES: Final = ("opt/bin", "usr/bin", "usr/sbin", "bin", "sbin")
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
_READABLE: Final = 0o444


class DriverRootError(InputError):
    """`--driver-root` is not where the kernel driver's libraries are; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Host:
    """This machine. `driver_root` is where the kernel driver's libraries are installed."""

    driver_root: Path = Path("/")
    root: Path = Path("/")
    """Where /dev, /proc and /sys are: another one in tests."""
    is_played: bool = False
    """The cards are not here: device files that are missing are left out."""

    def check(self, version: str) -> None:
        """Raise `DriverRootError` if containers would get no libraries of this version."""
        if not self.is_played and not self._libraries(version):
            raise DriverRootError(
                f'--driver-root: "{self.driver_root}": Invalid value: libcuda.so.{version} is in none of its '
                f"directories {', '.join(_DIRECTORIES)}: name the directory where NVIDIA's driver is installed"
            )

    def library(self, name: str) -> Path | None:
        """A library of the kernel driver."""
        found = (self.driver_root / directory / name for directory in _DIRECTORIES)
        return next((path for path in found if path.exists()), None)

    def of_card(self, device: str, minor: int, version: str) -> Edits:
        """What a container gets with a whole card. Raises `DeviceError`."""
        return self._edits(device, minor, [], version)

    def of_partition(self, device: str, minor: int, instance: int, compute: int, version: str) -> Edits:
        """What a container gets with a partition. Raises `DeviceError`."""
        access = []
        numbers = self._capabilities()
        for path in (f"gpu{minor}/gi{instance}/access", f"gpu{minor}/gi{instance}/ci{compute}/access"):
            if path in numbers:
                access.append(self._access(device, numbers[path]))
            elif not self.is_played:
                raise DeviceError(device, f"/proc/driver/nvidia-caps/mig-minors has no {path}")
        return self._edits(device, minor, access, version)

    def _edits(self, device: str, minor: int, access: list[DeviceNode], version: str) -> Edits:
        nodes = [*self._node(device, f"nvidia{minor}", is_needed=True), *access]
        for name in _COMMON:
            nodes += self._node(device, name, is_needed=name in _NEEDED)
        return Edits(_ENVIRONMENT, tuple(self._mounts(version)), tuple(nodes))

    def _node(self, device: str, name: str, *, is_needed: bool) -> list[DeviceNode]:
        """A device file, if there is one. Raises `DeviceError` where it is needed."""
        if (self.root / "dev" / name).exists():
            return [DeviceNode(f"/dev/{name}")]
        if is_needed and not self.is_played:
            raise DeviceError(device, f"there is no /dev/{name}: is the kernel driver loaded? see nvidia-modprobe")
        return []

    def _access(self, device: str, number: int) -> DeviceNode:
        """The device file of a capability; the container gets it also where nobody made it on the machine."""
        name = f"nvidia-caps/nvidia-cap{number}"
        if found := self._node(device, name, is_needed=False):
            return found[0]
        try:
            major = re.search(r"^\s*(\d+) nvidia-caps$", (self.root / "proc/devices").read_text(), re.M)
        except OSError:
            major = None
        if major is None:
            raise DeviceError(device, f"there is no /dev/{name}, and /proc/devices has no nvidia-caps")
        return DeviceNode(f"/dev/{name}", type="c", major=int(major[1]), minor=number, file_mode=_READABLE)

    def _capabilities(self) -> dict[str, int]:
        """`gpu0/gi1/access` -> the number of the device file."""
        try:
            text = (self.root / "proc/driver/nvidia-caps/mig-minors").read_text()
        except OSError:
            return {}
        return {path: int(number) for path, number in re.findall(r"^(\S+) (\d+)$", text, re.M)}

    def _mounts(self, version: str) -> Iterator[Mount]:
        for directory in self._libraries(version):
            versioned = {path.resolve() for path in directory.glob(f"*.so.{version}")}
            for path in sorted(directory.iterdir()):
                if ".so" in path.name and path.resolve() in versioned:
                    yield self._mount(path.resolve(), path)
        for name in _PROGRAMS:
            found = (self.driver_root / directory / name for directory in _PROGRAM_DIRECTORIES)
            for path in [path for path in found if path.exists()][:1]:
                yield self._mount(path, path)

    def _libraries(self, version: str) -> list[Path]:
        """Directories with the libraries of this version; one that is a link to another counts once."""
        known: dict[Path, Path] = {}
        for name in _DIRECTORIES:
            directory = self.driver_root / name
            if (directory / f"libcuda.so.{version}").exists():
                known.setdefault(directory.resolve(), directory)
        return list(known.values())

    def _mount(self, path: Path, inside: Path) -> Mount:
        return Mount(str(path), f"/{inside.relative_to(self.driver_root)}", _OPTIONS)


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
