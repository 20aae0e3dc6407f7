"""Run a DRA driver on this node, or check one.

`haru driver simulated --node NAME --profile PROFILE` publishes the cards of a profile and prepares claims for them, for
the kubelet of this machine or for `haru node`. Containers get an environment variable and a plain file for each card.
Annotations of the Node set the state of the cards: `simulated.haru.dev/device-health: gpu-3=Unhealthy:too hot` and
`simulated.haru.dev/device-taints`.

`haru driver nvidia --node NAME` does the same with the NVIDIA cards of this machine (`pip install haru[nvidia]`), as
`gpu.nvidia.com`. `--record FILE` records the answers of NVML and exits; `--play FILE` replays a recording instead of
reading the cards.

`haru driver check --node NAME --driver-name NAME` acts as the kubelet against any driver of this machine and reports
what the driver does wrong. It uses a device that no claim has. Exit status: 0 stopped, or nothing is wrong; 1 something
is wrong; 2 bad usage.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

from haru.cli.connection import add_connection_arguments, connect, told_as_usage
from haru.cli.main import UsageError

if TYPE_CHECKING:
    from haru.drivers.conformance import Result
    from haru.drivers.nvidia.nvml import Nvml


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru driver`."""
    parser.add_argument("driver", choices=("simulated", "nvidia", "check"), help="action")
    add_connection_arguments(parser)
    parser.add_argument("--node", metavar="NAME", help="name of this machine's Node")
    parser.add_argument("--kubelet-dir", type=Path, default=Path("/var/lib/kubelet"), metavar="DIR",
                        help="kubelet directory (default /var/lib/kubelet)")  # fmt: skip
    parser.add_argument("--cdi-dir", type=Path, default=Path("/var/run/cdi"), metavar="DIR",
                        help="directory for CDI files (default /var/run/cdi)")  # fmt: skip
    simulated = parser.add_argument_group("simulated")
    simulated.add_argument("--profile", metavar="PROFILE", help="profile with devices, or a FILE.yaml")
    simulated.add_argument("--instance", default="", metavar="UID",
                           help="UID of the driver's pod; allows two instances to run side by side")  # fmt: skip
    drivers = parser.add_argument_group("simulated, nvidia")
    drivers.add_argument("--no-metadata", action="store_true", help="write no metadata files (KEP-5304)")
    drivers.add_argument("--keep-slices", action="store_true", help="keep the ResourceSlices at exit")
    _add_nvidia(parser)
    check = parser.add_argument_group("check")
    check.add_argument("--driver-name", metavar="NAME", help="name of the driver to check")
    check.add_argument(
        "--namespace", default="default", metavar="NAME", help="namespace of the test claims (default default)"
    )
    check.add_argument("--restart", metavar="COMMAND", help="command that kills and restarts the driver")
    check.add_argument("-o", "--output", choices=("text", "json"), default="text", help="output format")
    parser.add_argument("-v", "--verbose", action="count", default=1, help="more log messages")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="log format")


def _add_nvidia(parser: argparse.ArgumentParser) -> None:
    nvidia = parser.add_argument_group("nvidia")
    nvidia.add_argument("--driver-gates", default="", metavar="GATES",
                        help="comma-separated NAME=true or NAME=false: DynamicMIG, TimeSlicingSettings, MPSSupport "
                        "(off), NVMLDeviceHealthCheck (on)")  # fmt: skip
    nvidia.add_argument("--driver-root", type=Path, default=Path("/"), metavar="DIR",
                        help="root directory of the NVIDIA kernel driver's libraries (default /)")  # fmt: skip
    nvidia.add_argument("--ignore-xids", default="", metavar="NUMBERS",
                        help="comma-separated XIDs to ignore")  # fmt: skip
    nvidia.add_argument("--usage-seconds", type=float, default=30.0, metavar="SECONDS",
                        help="interval of card utilization in claim status (default 30; 0: never)")  # fmt: skip
    nvidia.add_argument("--record", type=Path, metavar="FILE", help="record the answers of NVML to FILE, and exit")
    nvidia.add_argument("--play", type=Path, metavar="FILE", help="replay a recording instead of reading the cards")


def serves(options: argparse.Namespace) -> bool:
    """Whether it runs until it is stopped."""
    return options.driver != "check" and options.record is None


def run(options: argparse.Namespace) -> int:
    """Runs a driver until it is stopped, or checks one."""
    from haru.cli.logs import configure_logging

    configure_logging(options.verbose, options.log_format)
    if options.driver == "nvidia" and options.record:
        return _record(options)
    if not options.node:
        raise UsageError("--node: Required value: name the Node that this machine is")
    if options.driver == "check":
        return _check(options)
    return _nvidia(options) if options.driver == "nvidia" else _simulated(options)


def _nvml(flags: argparse.Namespace) -> tuple[Nvml, str]:
    """(NVML of this machine, or a recording in its place; what it is)."""
    from haru.drivers.nvidia.binding import PyNvml
    from haru.drivers.nvidia.host import Host
    from haru.drivers.nvidia.recording import load
    from haru.drivers.nvidia.simulated_nvml import SimulatedNvml

    if flags.play is None:
        return PyNvml(Host(flags.driver_root).library("libnvidia-ml.so.1")), "nvml"
    recording = load(flags.play)
    return SimulatedNvml(recording), f"played: {recording.made}"


def _record(flags: argparse.Namespace) -> int:
    from haru.drivers.nvidia.nvml import NvmlError
    from haru.drivers.nvidia.recording import dump, record

    nvml, made = _nvml(flags)
    try:
        recording = record(nvml, made)
        flags.record.write_bytes(dump(recording))
    except (NvmlError, OSError) as error:
        raise UsageError(f"--record: {error}") from None
    print(f"{len(recording.cards)} cards are written down in {flags.record}")
    return 0


def _nvidia(flags: argparse.Namespace) -> int:
    from haru.drivers.nvidia.host import Host
    from haru.drivers.nvidia.nvml import NvmlError
    from haru.drivers.nvidia.process import NvidiaOptions, read_gates, run_nvidia

    xids = [part.strip() for part in flags.ignore_xids.split(",") if part.strip()]
    for xid in xids:
        if not xid.isdigit():
            raise UsageError(f'--ignore-xids: "{xid}": write numbers, separated by commas')
    if not flags.usage_seconds >= 0:
        raise UsageError(f"--usage-seconds: {flags.usage_seconds:g}: write 0 or more")
    options = NvidiaOptions(
        flags.node,
        flags.kubelet_dir,
        flags.cdi_dir,
        Host(flags.driver_root, is_played=flags.play is not None),
        read_gates(flags.driver_gates),
        not flags.no_metadata,
        flags.keep_slices,
        flags.usage_seconds,
        harmless=frozenset(int(xid) for xid in xids),
    )
    nvml, _ = _nvml(flags)

    async def work() -> int:
        async with connect(flags, "haru-driver") as client:
            return await run_nvidia(client, nvml, options)

    try:
        return asyncio.run(work())
    except NvmlError as error:
        raise UsageError(str(error)) from None


def _simulated(flags: argparse.Namespace) -> int:
    from haru.drivers.simulated.process import SimulatedOptions, run_simulated
    from haru.drivers.simulated.profiles import ProfileError, load_profile

    if not flags.profile:
        raise UsageError("--profile: Required value: name a profile with devices, such as dgx-h100")
    try:
        profile = load_profile(flags.profile)
    except ProfileError as error:
        raise UsageError(f"--profile: {error}") from None
    if not profile.driver:
        raise UsageError(f'--profile: "{flags.profile}": has no devices: name another one')
    options = SimulatedOptions(
        profile, flags.node, flags.kubelet_dir, flags.cdi_dir, flags.instance, not flags.no_metadata, flags.keep_slices
    )

    async def work() -> int:
        async with connect(flags, "haru-driver") as client:
            return await run_simulated(client, options)

    return asyncio.run(work())


def _check(flags: argparse.Namespace) -> int:
    from haru.drivers.conformance import Conformance, DriverUnderTest

    if not flags.driver_name:
        raise UsageError("--driver-name: Required value: name the driver to check")
    directories = (Path("/etc/cdi"), flags.cdi_dir)
    restart = None if flags.restart is None else lambda: _command(flags.restart)
    subject = DriverUnderTest(flags.driver_name, flags.node, flags.kubelet_dir, directories, flags.namespace, restart)

    async def work() -> list[Result]:
        async with connect(flags, "haru-driver-check") as client:
            with told_as_usage(client):
                return await Conformance(client, subject).run()

    results = asyncio.run(work())
    failed = any(result.verdict == "failed" for result in results)
    if flags.output == "json":
        told = [{"name": r.name, "verdict": r.verdict, "message": r.message} for r in results]
        answer = {"apiVersion": "haru.dev/v1alpha1", "kind": "DriverCheck", "driver": flags.driver_name, "checks": told}
        print(json.dumps(answer, indent=2))
    else:
        for result in results:
            print(f"{result.verdict:<14}  {result.name}{': ' if result.message else ''}{result.message}")
    return 1 if failed else 0


async def _command(text: str) -> None:
    process = await asyncio.create_subprocess_shell(text)
    status = await process.wait()
    if status:
        raise UsageError(f"--restart: {text}: ended with status {status}")
