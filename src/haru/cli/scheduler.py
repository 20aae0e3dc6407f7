"""Run Haru's scheduler against an API server, beside kube-scheduler or for `haru up --no-scheduler`.

It schedules the pods whose schedulerName is `haru` (or that of --scheduler-name). Replicas elect a leader.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from haru.cli.component import Component, Election, add_component_arguments, parse_gates, run_component
from haru.cli.main import UsageError

if TYPE_CHECKING:
    from haru.accounting.collector import UsageCollector
    from haru.client.api import ApiClient
    from haru.client.server_version import ServerVersion
    from haru.kube.gates import FeatureGates
    from haru.scheduler.configuration import Configuration
    from haru.scheduler.decision_log import DecisionLog
    from haru.scheduler.scheduler import Scheduler
    from haru.scheduler.settings import Fairness

_log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru scheduler`."""
    add_component_arguments(parser, 10259)
    parser.add_argument(
        "--scheduler-name",
        action="append",
        metavar="NAME",
        help="schedulerName to serve (default haru); may be repeated",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="KubeSchedulerConfiguration: profiles, weights, leader election"
    )
    parser.add_argument(
        "--scheduler-profile",
        choices=("Default", "HaruPacking", "HaruExpected"),
        help="how nodes are chosen: as by kube-scheduler (default), fullest nodes and cards first, or by the "
        "work that nodes can still take",
    )
    parser.add_argument(
        "--backfill",
        action="store_true",
        help="reserve nodes and devices for the head of the queue; smaller work runs first only if that does "
        "not delay it",
    )
    parser.add_argument(
        "--schedule-group-members-singly",
        action="store_true",
        help="schedule pods of a PodGroup one by one, without their quorum, while the gates for gangs are "
        "off; without this flag such pods are held",
    )
    add_protection_arguments(parser)
    add_log_arguments(parser)
    parser.add_argument(
        "--usage-history",
        type=Path,
        metavar="DIR",
        help="directory for the usage history (which work holds which devices) that haru top --since reads; "
        "also serve its metrics",
    )


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    """Where decisions are written down; also for `haru up`."""
    parser.add_argument(
        "--decision-log",
        type=Path,
        metavar="DIR",
        help="directory for the decision log: every decision with its inputs, for haru replay (replaces what is there)",
    )
    parser.add_argument(
        "--decision-log-size",
        type=mebibytes,
        metavar="MIB",
        help="maximum size of the decision log, approximately (default 256)",
    )


def mebibytes(text: str) -> int:
    """A size for argparse."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'Invalid value: "{text}": write a number of MiB, at least 1')
    return int(text)


def open_log(directory: Path | None, size: int | None) -> DecisionLog | None:
    """The decision log that flags ask for; raises UsageError."""
    from haru.scheduler.decision_log import DEFAULT_MEBIBYTES, DecisionLog

    try:
        return None if directory is None else DecisionLog(directory.expanduser(), size or DEFAULT_MEBIBYTES)
    except OSError as error:
        raise UsageError(f"--decision-log: {directory}: {error.strerror}") from None


def add_protection_arguments(parser: argparse.ArgumentParser) -> None:
    """Who may not be evicted yet, and who may not evict yet; also for `haru up`."""
    parser.add_argument(
        "--minimum-run-time",
        metavar="DURATION",
        help="do not preempt work that has run for less than this time, for example 10m (default 0s)",
    )
    parser.add_argument(
        "--preemption-delay",
        metavar="DURATION",
        help="pods created less than this time ago preempt nothing, for example 30s (default 0s)",
    )


def serves(options: argparse.Namespace) -> bool:
    """Whether it runs until it is stopped."""
    return True


def run(options: argparse.Namespace) -> int:
    """Runs the scheduler until it is stopped or loses its Lease."""
    given = parse_gates(options.feature_gates)
    configuration = _configuration(options)
    fairness = _fairness(options)
    running: list[Scheduler] = []
    accounts: list[UsageCollector] = []

    async def work(client: ApiClient) -> None:
        from haru.client.discovery import adapt_to_server, wait_for_change

        for note in configuration.notes:
            _log.info("--config: %s", note)
        while True:
            version = await adapt_to_server(client)
            scheduling = asyncio.create_task(schedule(client, version))
            changing = asyncio.create_task(wait_for_change(client, version))
            try:
                await asyncio.wait({scheduling, changing}, return_when=asyncio.FIRST_COMPLETED)
                if scheduling.done():
                    return await scheduling
            finally:
                for task in (scheduling, changing):
                    task.cancel()
                await asyncio.gather(scheduling, changing, return_exceptions=True)
            _log.info("the API server has changed to 1.%s: the scheduler starts anew", changing.result().minor)

    async def schedule(client: ApiClient, version: ServerVersion) -> None:
        from haru.client.events import EventRecorder
        from haru.client.server_version import gates_for_server
        from haru.scheduler.config import scheduler_config
        from haru.scheduler.scheduler import Scheduler

        gates, unknown = gates_for_server(given.overrides, version)
        if unknown:
            _log.warning("--feature-gates: 1.%s does not have %s", gates.minor, ", ".join(unknown))
        component.gates = gates
        hold = not options.schedule_group_members_singly
        config = scheduler_config(gates, (), configuration=configuration, fairness=fairness, hold_group_members=hold)
        log = open_log(options.decision_log, options.decision_log_size)
        scheduler = Scheduler(client, config, EventRecorder(client, next(iter(configuration.profiles))), log)
        running[:] = [scheduler]
        if options.usage_history is None:
            await scheduler.run()
            return
        accounts[:] = [_keeper(options.usage_history.expanduser(), client, gates)]
        async with asyncio.TaskGroup() as group:
            group.create_task(scheduler.run(), name="scheduler")
            group.create_task(accounts[0].run(), name="accounting")

    leader = configuration.leader_election
    component = Component(
        lease=leader.name,
        work=work,
        metrics=lambda: b"".join([*(one.metrics.text() for one in running), *(one.text() for one in accounts)]),
        ready=lambda: bool(running) and running[0].ready.is_set(),
        election=Election(leader.elect, leader.namespace, leader.lease, leader.renew, leader.retry),
        gates=given,
        dump=lambda: running[0].dump() if running else None,
    )
    if options.kubeconfig is None and configuration.kubeconfig:
        options.kubeconfig = Path(configuration.kubeconfig).expanduser()
    return run_component(options, component)


def _keeper(directory: Path, client: ApiClient, gates: FeatureGates) -> UsageCollector:
    from haru.accounting.collector import UsageCollector
    from haru.accounting.history import NAME, History, HistoryError
    from haru.engine import Features

    try:
        return UsageCollector(client, History(directory / NAME), features=Features.from_gates(gates.all()))
    except HistoryError as error:
        raise UsageError(f"--usage-history: {error}") from error


def _fairness(options: argparse.Namespace) -> Fairness:
    from haru.scheduler.config import parse_fairness

    try:
        return parse_fairness(options.backfill, options.minimum_run_time, options.preemption_delay)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _configuration(options: argparse.Namespace) -> Configuration:
    from haru.engine.framework import PROFILES
    from haru.scheduler.configuration import Configuration, ConfigurationError, load_configuration

    if options.config is None:
        profile = PROFILES[options.scheduler_profile or "Default"]
        return Configuration(dict.fromkeys(options.scheduler_name or ["haru"], profile))
    for flag in ("scheduler_name", "scheduler_profile"):
        if getattr(options, flag) is not None:
            name = flag.replace("_", "-")
            raise UsageError(f"--{name}: the profiles are those of --config: say it there, or leave one of them out")
    try:
        return load_configuration(options.config, "haru")
    except ConfigurationError as error:
        raise UsageError(f"--config: {error}") from error
