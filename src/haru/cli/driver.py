"""Run a DRA driver on this node, or check one.

`haru driver simulated --node NAME --profile PROFILE` publishes the cards of a profile and prepares claims on them, for
the kubelet of this machine or for `haru node`: containers get an environment variable and a plain file for each card.
Annotations of the Node say how the cards are: `simulated.haru.dev/device-health: gpu-3=Unhealthy:too hot` and
`simulated.haru.dev/device-taints`. `haru driver check --node NAME --driver-name NAME` plays the kubelet against any
driver of this machine and says what it does wrong; it takes a device that no claim has. Exit status: 0 stopped, or
nothing is wrong; 1 something is; 2 bad usage.
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru driver`."""
    parser.add_argument("driver", choices=("simulated", "check"), help="what to run")
    add_connection_arguments(parser)
    parser.add_argument("--node", metavar="NAME", help="the Node that this machine is")
    parser.add_argument("--kubelet-dir", type=Path, default=Path("/var/lib/kubelet"), metavar="DIR",
                        help="the kubelet's directory (default /var/lib/kubelet)")  # fmt: skip
    parser.add_argument("--cdi-dir", type=Path, default=Path("/var/run/cdi"), metavar="DIR",
                        help="where CDI files are written (default /var/run/cdi)")  # fmt: skip
    simulated = parser.add_argument_group("simulated")
    simulated.add_argument("--profile", metavar="PROFILE", help="a profile with devices, or a FILE.yaml")
    simulated.add_argument("--instance", default="", metavar="UID",
                           help="the UID of the driver's pod: two instances may then run side by side")  # fmt: skip
    simulated.add_argument("--no-metadata", action="store_true", help="write no metadata files (KEP-5304)")
    simulated.add_argument("--keep-slices", action="store_true", help="leave the ResourceSlices when stopping")
    check = parser.add_argument_group("check")
    check.add_argument("--driver-name", metavar="NAME", help="the driver to check")
    check.add_argument("--namespace", default="default", metavar="NAME", help="where claims are made (default default)")
    check.add_argument("--restart", metavar="COMMAND", help="what kills and starts the driver again")
    check.add_argument("-o", "--output", choices=("text", "json"), default="text", help="form of the answer")
    parser.add_argument("-v", "--verbose", action="count", default=1, help="more messages")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="form of the messages")


def run(options: argparse.Namespace) -> int:
    """Runs a driver until it is stopped, or checks one."""
    from haru.cli.logs import configure_logging

    configure_logging(options.verbose, options.log_format)
    if not options.node:
        raise UsageError("--node: Required value: name the Node that this machine is")
    if options.driver == "check":
        return _check(options)
    return _simulated(options)


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
    from haru.drivers.conformance import Conformance, Subject

    if not flags.driver_name:
        raise UsageError("--driver-name: Required value: name the driver to check")
    directories = (Path("/etc/cdi"), flags.cdi_dir)
    restart = None if flags.restart is None else lambda: _command(flags.restart)
    subject = Subject(flags.driver_name, flags.node, flags.kubelet_dir, directories, flags.namespace, restart)

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
