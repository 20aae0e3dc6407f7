"""Facts of this machine (size, addresses, kernel), read from /proc and /sys."""

from __future__ import annotations

import os
import platform
import shutil
import socket
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "ppc64le": "ppc64le", "s390x": "s390x"}


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts; memory and storage in bytes, `huge_pages` is bytes by size as resources name it (`2Mi`)."""

    cpus: int
    memory: int
    storage: int
    huge_pages: dict[str, int] = field(default_factory=dict)
    architecture: str = "amd64"
    kernel: str = ""
    os_image: str = ""
    machine_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""
    swap: int = 0
    has_apparmor: bool = False


def read_machine(root: Path, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> Machine:
    """This machine; `root` is the directory whose file system pods write to."""
    memory = _memory(proc / "meminfo")
    return Machine(
        cpus=os.cpu_count() or 1,
        memory=memory.get("MemTotal", 0),
        storage=shutil.disk_usage(root).total,
        huge_pages=_huge_pages(sys / "kernel/mm/hugepages"),
        architecture=_ARCHITECTURES.get(platform.machine(), platform.machine()),
        kernel=platform.release(),
        os_image=_os_image(),
        machine_id=_line(Path("/etc/machine-id")),
        system_uuid=_line(sys / "class/dmi/id/product_uuid"),
        boot_id=_line(proc / "sys/kernel/random/boot_id"),
        swap=memory.get("SwapTotal", 0),
        has_apparmor=_has_apparmor(sys),
    )


def _has_apparmor(sys: Path) -> bool:
    is_mounted = (sys / "kernel/security/apparmor").exists()
    return is_mounted and _line(sys / "module/apparmor/parameters/enabled").startswith("Y")


@lru_cache(maxsize=1)
def throttle_paths(sys: Path = Path("/sys")) -> tuple[str, ...]:
    """Directories that say how often each processor was slowed down for its heat."""
    return tuple(sorted(map(str, (sys / "devices/system/cpu").glob("cpu[0-9]*/thermal_throttle"))))


def own_address() -> str:
    """The address of the default route, else loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: the kernel only says which address it would take.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _memory(file: Path) -> dict[str, int]:
    found = {}
    for line in file.read_text().splitlines():
        name, _, rest = line.partition(":")
        parts = rest.split()
        if parts and parts[0].isdigit():
            found[name] = int(parts[0]) * (1024 if parts[-1] == "kB" else 1)
    return found


def _huge_pages(directory: Path) -> dict[str, int]:
    found = {}
    for entry in sorted(directory.glob("hugepages-*kB")):
        kilobytes = int(entry.name.removeprefix("hugepages-").removesuffix("kB"))
        unit, size = ("Gi", kilobytes >> 20) if kilobytes >= 1 << 20 else ("Mi", kilobytes >> 10)
        if size:
            found[f"{size}{unit}"] = int(_line(entry / "nr_hugepages") or 0) * kilobytes * 1024
    return found


def _os_image() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


def _line(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
