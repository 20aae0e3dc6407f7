"""Load a cluster with a seeded plan of gangs, claims and churn, and check what its scheduler promises.

Every event is checked: half gangs, devices held twice, overcommitted nodes, lost and stuck pods, starvation. Work is
created in a namespace of its own, on the nodes of --node-selector only, and deleted at the end; after a crash
--cleanup deletes it. --local starts a cluster of processes and, with --faults, breaks them. Exit status: 0 nothing was
broken, 1 a promise was broken (--compare: the second run broke more), 2 bad usage, or a cluster that is refused.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import random
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haru.cli.connection import add_connection_arguments, connect, told_as_usage
from haru.cli.main import UsageError
from haru.cli.number_flags import count, decimal
from haru.event_loop import cancelled
from haru.interrupts import STATUS
from haru.kube.meta import Obj
from haru.kube.names import counted
from haru.stop import stop_event

if TYPE_CHECKING:
    from haru.client.api import ApiClient
    from haru.stress.local.faults import FaultKind
    from haru.stress.manifests import Target
    from haru.stress.plan import Limits
    from haru.stress.report import Report
    from haru.stress.run import Settings, StressRun

_FLEET_NODES = "simulated.haru.dev/fleet=default"
_LOCAL_PROFILES = "dgx-h100:2,cpu:2"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru stress`."""
    add_connection_arguments(parser)
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--plan", action="store_true", help="print the plan of the seed, and do nothing")
    modes.add_argument("--cleanup", action="store_true", help="delete what an earlier run left, and exit")
    modes.add_argument(
        "--compare", nargs=2, type=Path, metavar=("A.json", "B.json"), help="compare two reports, and exit"
    )
    modes.add_argument("--local", action="store_true", help="start a local cluster of processes and run there")
    _add_plan_arguments(parser)
    _add_target_arguments(parser)
    local = parser.add_argument_group("local cluster")
    local.add_argument("--faults", metavar="LIST", help="faults to inject with --local: names, or all; seeded")
    local.add_argument(
        "--runs",
        type=int,
        default=1,
        metavar="N",
        help="runs, one after another, of the seed and the following ones (default 1)",
    )
    local.add_argument(
        "--fault-interval", type=_seconds, default=6.0, metavar="SECONDS", help="mean time between faults (default 6)"
    )
    local.add_argument(
        "--profile", default=_LOCAL_PROFILES, metavar="NAME:COUNT,…", help=f"its nodes (default {_LOCAL_PROFILES})"
    )
    local.add_argument(
        "--directory", type=Path, metavar="DIR", help="directory for its logs and data (default: a temporary one)"
    )
    parser.add_argument("-o", "--output", choices=("text", "json", "html"), default="text", help="output format")
    parser.add_argument(
        "--report",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="also write the report there: .json, .html or text",
    )
    parser.add_argument("-v", "--verbose", action="count", default=0, help="more log messages; repeat for more")


def _seconds(text: str) -> float:
    return decimal(text, "write a number of seconds, 0 or more")


def _add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    plan = parser.add_argument_group("plan")
    plan.add_argument(
        "--seed", type=int, metavar="N", help="seed of the plan and the faults (default: a new one, which is told)"
    )
    plan.add_argument("--units", type=int, default=60, metavar="N", help="works to create (default 60)")
    plan.add_argument(
        "--duration", type=_seconds, default=60.0, metavar="SECONDS", help="time in which they are created (default 60)"
    )
    plan.add_argument("--gang-size", type=int, default=8, metavar="N", help="largest gang (default 8)")
    plan.add_argument("--devices", type=int, default=4, metavar="N", help="most devices of one claim (default 4)")
    plan.add_argument(
        "--kinds",
        default="gangs,claims,pods,churn",
        metavar="LIST",
        help="what to try: gangs, claims, pods, churn, preemption (default: all but preemption)",
    )
    plan.add_argument("--max-pods", type=count, default=200, metavar="N", help="most pods at once (default 200)")
    plan.add_argument(
        "--drain", type=_seconds, default=120.0, metavar="SECONDS", help="time for the last works (default 120)"
    )
    for name, default, told in (
        ("gang", 15.0, "a gang may be bound in part"),
        ("start", 60.0, "a bound pod may take to run"),
        ("fit", 30.0, "the first of the queue may wait although it fits"),
        ("starvation", 60.0, "a work may wait while younger ones that ask for no less are scheduled"),
    ):
        plan.add_argument(
            f"--{name}-grace",
            type=_seconds,
            default=default,
            metavar="SECONDS",
            help=f"how long {told} (default {default:g})",
        )


def _add_target_arguments(parser: argparse.ArgumentParser) -> None:
    target = parser.add_argument_group("target")
    target.add_argument(
        "--scheduler-name",
        default="",
        metavar="NAME",
        help="schedulerName of the pods (default default-scheduler; --local: haru)",
    )
    target.add_argument(
        "--namespace", default="haru-stress", metavar="NAME", help="namespace of the work (default haru-stress)"
    )
    target.add_argument(
        "--node-selector",
        action="append",
        metavar="KEY=VALUE",
        help=f"label of the nodes that may be filled; may be repeated (default {_FLEET_NODES}: haru fleet)",
    )
    target.add_argument(
        "--device-class",
        default="gpu.nvidia.com",
        metavar="NAME",
        help="DeviceClass of the claims (default gpu.nvidia.com)",
    )
    target.add_argument(
        "--image",
        default="",
        metavar="IMAGE",
        help="image of the pods, one that runs until it is ended; required unless all nodes are simulated",
    )
    target.add_argument(
        "--allow-foreign-work", action="store_true", help="run although others have pods on the cluster"
    )
    target.add_argument("--keep", action="store_true", help="leave the work there at the end")


def serves(options: argparse.Namespace) -> bool:
    """Whether it runs until it is stopped, or has ended by itself."""
    return not (options.plan or options.compare or options.cleanup)


def run(options: argparse.Namespace) -> int:
    """Prints a plan or a comparison, cleans up, or runs."""
    from haru.cli.logs import configure_logging
    from haru.stress.cluster import StressError
    from haru.stress.local.faults import FaultError
    from haru.stress.local.processes import LocalClusterError
    from haru.stress.plan import PlanError
    from haru.stress.report import ReportError

    configure_logging(options.verbose, "text")
    if options.local and not options.verbose:
        # That the API is away is what a run with faults is about.
        logging.getLogger("haru.client").setLevel(logging.ERROR)
    try:
        if options.compare:
            return _compare(options)
        if options.plan:
            return _print_plan(options)
        if options.faults and not options.local:
            raise UsageError("--faults: Forbidden without --local: faults are injected into processes of its own only")
        if options.cleanup:
            return asyncio.run(_clean_up(options))
        return asyncio.run(_run_local(options) if options.local else _run(options))
    except (PlanError, StressError, FaultError, LocalClusterError, ReportError) as error:
        raise UsageError(str(error)) from error


# -- what does not run ------------------------------------------------------------------------------------------------


def _limits(options: argparse.Namespace) -> Limits:
    from haru.stress.plan import Limits, parse_kinds

    kinds = parse_kinds(options.kinds)
    return Limits(options.units, options.duration, options.gang_size, options.devices, kinds)


def _seed(options: argparse.Namespace) -> int:
    return int(options.seed) if options.seed is not None else random.SystemRandom().randrange(2**31)


def _print_plan(options: argparse.Namespace) -> int:
    from haru.stress.seeded_plan import seeded_plan

    plan = seeded_plan(_seed(options), _limits(options))
    print(json.dumps(plan.as_dict(), indent=2) if options.output == "json" else plan.text())
    return 0


def _compare(options: argparse.Namespace) -> int:
    from haru.stress.report import checked, compare, compare_text

    reports = []
    for path in options.compare:
        try:
            reports.append(checked(json.loads(path.read_text()), str(path)))
        except (OSError, ValueError) as error:
            raise UsageError(f"--compare: {path}: {error}") from error
    found = compare(*reports)
    names = (options.compare[0].name, options.compare[1].name)
    print(json.dumps(found, indent=2) if options.output == "json" else compare_text(found, names))
    return 1 if found["worse"] else 0


async def _clean_up(options: argparse.Namespace) -> int:
    from haru.stress.cluster import clean_up

    async with connect(options, "haru-stress") as client:
        with told_as_usage(client):
            pods = await clean_up(client, options.namespace)
    print(f"deleted the namespace {options.namespace} with {counted(pods, 'pod')}", file=sys.stderr)
    return 0


# -- a run ------------------------------------------------------------------------------------------------------------


def _target(options: argparse.Namespace, scheduler: str) -> Target:
    from haru.stress.manifests import Target

    selector = {}
    for text in options.node_selector or [_FLEET_NODES]:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f'--node-selector: Invalid value: "{text}": write KEY=VALUE')
        selector[key] = value
    return Target(
        namespace=options.namespace,
        run=uuid.uuid4().hex[:12],
        scheduler=options.scheduler_name or scheduler,
        node_selector=selector,
        device_class=options.device_class,
        image=options.image,
    )


def _settings(options: argparse.Namespace) -> Settings:
    from haru.stress.history import Rules
    from haru.stress.run import Settings

    rules = Rules(options.gang_grace, options.start_grace, options.fit_grace, options.starvation_grace)
    return Settings(options.max_pods, options.drain, rules)


async def _run(options: argparse.Namespace) -> int:
    from haru.stress.cluster import survey
    from haru.stress.run import StressRun
    from haru.stress.seeded_plan import seeded_plan

    seed, limits, target = _seed(options), _limits(options), _target(options, "default-scheduler")
    async with connect(options, "haru-stress") as client:
        with told_as_usage(client):
            ground = await survey(client, target, limits, foreign_work=options.allow_foreign_work)
        run = StressRun(client, seeded_plan(seed, ground.limits), ground, _settings(options))
        _say(
            f"seed {seed}, namespace {target.namespace}, scheduler {target.scheduler}, {counted(ground.nodes, 'node')}"
        )

        async def work() -> int:
            return _show(options, await run.run())

        async with _cleaned(options, client):
            return await _until_stopped(work(), [run])


async def _run_local(options: argparse.Namespace) -> int:
    from haru.stress.local.faults import parse_faults

    if options.runs < 1:
        raise UsageError(f"--runs: Invalid value: {options.runs}: write at least 1")
    kinds = parse_faults(options.faults) if options.faults else ()
    _limits(options)
    running: list[StressRun] = []
    with contextlib.ExitStack() as stack:
        home = options.directory or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="haru-stress-")))
        home.mkdir(parents=True, exist_ok=True)
        return await _until_stopped(_local_runs(options, home.resolve(), kinds, running), running)


async def _local_runs(
    options: argparse.Namespace, home: Path, kinds: tuple[FaultKind, ...], running: list[StressRun]
) -> int:
    """Start the cluster and carry out all runs on it; `running` has the present one."""
    from haru.stress.local.faults import plan_faults
    from haru.stress.local.harness import SCHEDULER, local_cluster, run_local

    seed, limits, target = _seed(options), _limits(options), _target(options, SCHEDULER)
    _say(f"seed {seed}: a local cluster starts in {home}")
    status = 0

    def started(run: StressRun) -> None:
        running[:] = [run]

    async with local_cluster(home, seed, options.profile) as cluster:
        for current in range(seed, seed + options.runs):
            faults = plan_faults(current, kinds, limits.seconds, options.fault_interval)
            report = await run_local(cluster, current, limits, target, _settings(options), faults, started)
            status = max(status, _show(options, report))
    return status


@contextlib.asynccontextmanager
async def _cleaned(options: argparse.Namespace, client: ApiClient) -> AsyncIterator[None]:
    """Delete at the end what the run created, also after Ctrl-C."""
    from haru.stress.cluster import clean_up

    try:
        yield
    finally:
        if options.keep:
            _say(f"kept: delete it with haru stress --cleanup --namespace {options.namespace}")
        else:
            with told_as_usage(client):
                await clean_up(client, options.namespace)


async def _until_stopped(work: Coroutine[Any, Any, int], running: Sequence[StressRun]) -> int:
    """Wait for the work's status, which a signal ends first (130), and show where the present run is."""
    from haru.cli.stress_display import Display

    stop = stop_event(None)  # what was created is deleted first, which takes as long as there is of it
    working, waiting = asyncio.create_task(work), asyncio.create_task(stop.wait())
    with Display(sys.stderr) as display:
        showing = asyncio.create_task(display.run(lambda: running[0] if running else None))
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        outcome, *_ = await cancelled(working, showing, waiting)
    if stop.is_set():
        _say("interrupted")
        return STATUS
    if isinstance(outcome, BaseExceptionGroup):
        outcome = outcome.exceptions[0]
    if isinstance(outcome, BaseException):
        raise outcome
    return int(outcome)


def _show(options: argparse.Namespace, report: Report) -> int:
    found = report.as_dict()
    print(_rendered(found, options.output))
    for path in options.report:
        if getattr(options, "runs", 1) > 1:
            path = path.with_stem(f"{path.stem}-{found['seed']}")
        form = {".json": "json", ".html": "html"}.get(path.suffix, "text")
        try:
            path.write_text(_rendered(found, form) + "\n")
        except OSError as error:
            raise UsageError(f"--report: {path}: {error.strerror}") from error
    return 1 if report.broken else 0


def _rendered(found: Obj, form: str) -> str:
    from haru.stress.report import html_of, text_of

    if form == "json":
        return json.dumps(found, indent=2)
    return html_of(found).rstrip() if form == "html" else text_of(found)


def _say(text: str) -> None:
    print(f"haru stress: {text}", file=sys.stderr, flush=True)
