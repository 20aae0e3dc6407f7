"""What the tests of the NVIDIA driver share: nodes of a profile, a machine's files, programs that only write down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from haru.drivers.library import Allocated, ClaimError, ClaimToPrepare
from haru.drivers.nvidia.host import Host
from haru.drivers.nvidia.process import NvidiaOptions
from haru.drivers.nvidia.recording import Recording
from haru.drivers.nvidia.simulated_nvml import SimulatedNvml, recording_of
from haru.drivers.simulated.profiles import load_profile

Obj = dict[str, Any]
NODE = "node-a"
VERSION = "580.65.06"
GROUP = "resource.nvidia.com/v1beta1"


def recorded(profile: str, cards: int = 2) -> Recording:
    """What NVML would say on a node of a profile that has only so many cards."""
    found = recording_of(load_profile(profile), NODE)
    return replace(found, cards=found.cards[:cards])


def played(profile: str, cards: int = 2) -> SimulatedNvml:
    return SimulatedNvml(recorded(profile, cards))


def claim(uid: str, *devices: str, parameters: Sequence[Obj] = (), named: bool = False) -> ClaimToPrepare:
    given = tuple(
        Allocated("gpu", NODE, device, parameters=tuple(parameters), named=(named,) * len(parameters))
        for device in devices
    )
    return ClaimToPrepare("default", f"claim-{uid}", uid, given)


def options(root: Path, *gates: str, host: Host | None = None, **more: Any) -> NvidiaOptions:
    given: Obj = {"usage_seconds": 0, "look_seconds": 0.05, **more}
    files = host or Host(root / "machine", root / "machine", is_played=True)
    return NvidiaOptions(NODE, root / "k", root / "cdi", files, frozenset(gates), **given)


class Written:
    """Programs that are only written down; those in `broken` fail."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, str], str]] = []
        self.broken: set[str] = set()

    def __call__(self, arguments: Sequence[str], env: Mapping[str, str], text: str = "") -> str:
        self.calls.append((" ".join(arguments), dict(env), text))
        if arguments[0] in self.broken:
            raise ClaimError(f"{arguments[0]}: is broken")
        if "nvidia-cuda-mps-control" in arguments and "-d" in arguments:
            Path(env["CUDA_MPS_PIPE_DIRECTORY"], "control").touch()
        if text == "quit\n":
            Path(env["CUDA_MPS_PIPE_DIRECTORY"], "control").unlink()
        return ""

    def told(self) -> list[str]:
        """The calls without their environment."""
        return [f"{call} <{text.strip()}>" if text else call for call, _, text in self.calls]


def machine(root: Path, minors: Sequence[int] = (0, 1)) -> Host:
    """A machine with device files, libraries and programs of the kernel driver."""
    for name in (*(f"nvidia{minor}" for minor in minors), "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        _touch(root / "dev" / name)
    libraries = root / "usr/lib/x86_64-linux-gnu"
    for name in ("libcuda", "libnvidia-ml"):
        _touch(libraries / f"{name}.so.{VERSION}")
        (libraries / f"{name}.so.1").symlink_to(f"{name}.so.{VERSION}")
    (libraries / "libcuda.so").symlink_to("libcuda.so.1")
    _touch(libraries / "libc.so.6")
    _touch(libraries / "libnvidia-old.so.470.1")
    _touch(root / "usr/bin/nvidia-smi")
    lines = []
    for minor in minors:
        for instance in range(1, 15):
            number = 100 * (minor + 1) + 2 * instance
            lines += [f"gpu{minor}/gi{instance}/access {number}", f"gpu{minor}/gi{instance}/ci0/access {number + 1}"]
            _touch(root / f"dev/nvidia-caps/nvidia-cap{number}")
            _touch(root / f"dev/nvidia-caps/nvidia-cap{number + 1}")
    _touch(root / "proc/driver/nvidia-caps/mig-minors").write_text("config 1\nmonitor 2\n" + "\n".join(lines) + "\n")
    return Host(root, root)


def _touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path
