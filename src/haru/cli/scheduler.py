"""Run Haru's scheduler against an API server, beside kube-scheduler or for `haru up --no-scheduler`.

It schedules the pods whose schedulerName is `haru` (or that of --scheduler-name). Replicas elect a leader.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haru.cli.component import Component, Election, add_component_arguments, parse_gates, run_component
from haru.cli.main import UsageError
from haru.event_loop import cancelled

if TYPE_CHECKING:
    from haru.accounting.collector import UsageCollector
    from haru.client.api import ApiClient
    from haru.client.server_version import ServerVersion
    from haru.engine.state import Partition
    from haru.kube.gates import FeatureGates
    from haru.scheduler.coexistence import PartitionGuard
    from haru.scheduler.configuration import Configuration
    from haru.scheduler.decision_log import DecisionLog
    from haru.scheduler.scheduler import Scheduler
    from haru.scheduler.settings import Fairness

_MODULES = ("haru.client.discovery", "haru.client.events", "haru.client.gate_probes", "haru.scheduler.scheduler")
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
    add_profile_argument(parser)
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
    parser.add_argument(
        "--gang-adapters",
        type=_adapters,
        default="*",
        metavar="LIST",
        help="projects whose labels and objects name gangs, where the server serves them: '*' all, 'name' this one, "
        "'-name' not this one, '' none (default '*': coscheduling, jobset, leaderworkerset, kuberay, kubeflow, mpijob, "
        "kueue, annotation)",
    )
    add_protection_arguments(parser)
    add_publishing_arguments(parser)
    add_partition_arguments(parser)
    add_log_arguments(parser)
    parser.add_argument(
        "--usage-history",
        type=Path,
        metavar="DIR",
        help="directory for the usage history (which work holds which devices) that haru top --since reads; "
        "also serve its metrics",
    )


def add_partition_arguments(parser: argparse.ArgumentParser) -> None:
    """Which part of the cluster is served, and how devices are shared with other schedulers."""
    parser.add_argument(
        "--partition-node-selector",
        metavar="SELECTOR",
        help="place pods only on nodes with these labels, for example team=a",
    )
    parser.add_argument(
        "--partition-node-taint",
        metavar="KEY[=VALUE][:EFFECT]",
        help="place pods only on nodes with this taint",
    )
    for name, what in (
        ("pool", "allocate only devices of this pool (spec.pool.name)"),
        ("driver", "allocate only devices of this driver"),
        ("device-class", "allocate only claims that name this device class, and no other"),
    ):
        parser.add_argument(f"--partition-{name}", action="append", metavar="NAME", help=f"{what}; may be repeated")
    parser.add_argument(
        "--allow-overlapping-partitions",
        action="store_true",
        help="start although another scheduler of Haru may allocate the same devices; without this flag it is refused",
    )
    parser.add_argument(
        "--confirm-allocations",
        choices=("auto", "always", "never"),
        default="auto",
        help="whether the watch must show an allocation, and nobody else's before it, before pods are bound (default "
        "auto: while other schedulers allocate the same devices)",
    )


def _adapters(text: str) -> frozenset[str]:
    from haru.gangs import parse_adapters

    try:
        return parse_adapters(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"Invalid value: {error}") from None


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


def add_profile_argument(parser: argparse.ArgumentParser) -> None:
    """How nodes are chosen; also for `haru up`."""
    parser.add_argument(
        "--scheduler-profile",
        choices=("Default", "HaruPacking", "HaruExpected"),
        help="how nodes are chosen: as by kube-scheduler (default), fullest nodes and cards first, or by the "
        "work that nodes can still take",
    )


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


def add_publishing_arguments(parser: argparse.ArgumentParser) -> None:
    """What conditions and events say of work that waits; also for `haru up`."""
    parser.add_argument(
        "--publish-explanations",
        choices=("off", "counts", "names"),
        help="whether conditions and events of waiting pods and PodGroups explain why they wait and what would help: "
        "off; counts: work of other namespaces is counted, not named (default); names: with all names",
    )


def run(options: argparse.Namespace) -> int:
    """Runs the scheduler until it is stopped or loses its Lease."""
    given = parse_gates(options.feature_gates)
    configuration = _configuration(options)
    fairness = _fairness(options)
    from haru.scheduler.coexistence import LABELS, annotations_of

    running: list[Scheduler] = []
    refusals: list[str] = []
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
                if refusals:
                    raise UsageError(refusals[0])
                if scheduling.done():
                    return await scheduling
            finally:
                await cancelled(scheduling, changing)
            _log.info("the API server has changed to 1.%s: the scheduler starts anew", changing.result().minor)

    async def schedule(client: ApiClient, version: ServerVersion) -> None:
        from haru.client.events import EventRecorder
        from haru.client.gate_probes import doubtful_gates, kept_gates
        from haru.client.server_version import gates_for_server
        from haru.scheduler.config import scheduler_config
        from haru.scheduler.scheduler import Scheduler

        kept = await kept_gates(client, doubtful_gates(given.overrides, version))
        gates, unknown = gates_for_server(given.overrides, version, kept)
        if on := sorted(gate for gate, value in kept.items() if value):
            _log.info("the API server keeps the fields of %s, off in 1.%s by default", ", ".join(on), version.minor)
        if unknown:
            _log.warning("--feature-gates: 1.%s does not have %s", gates.minor, ", ".join(unknown))
        component.gates = gates
        hold = not options.schedule_group_members_singly
        config = scheduler_config(
            gates,
            (),
            configuration=configuration,
            fairness=fairness,
            hold_group_members=hold,
            confirm_allocations=options.confirm_allocations,
            gang_adapters=options.gang_adapters,
            publish_explanations=options.publish_explanations or "counts",
        )
        log = open_log(options.decision_log, options.decision_log_size)
        scheduler = Scheduler(client, config, EventRecorder(client, next(iter(configuration.profiles))), log)
        running[:] = [scheduler]
        accounts[:] = [_keeper(options.usage_history.expanduser(), client, gates)] if options.usage_history else []
        async with asyncio.TaskGroup() as group:
            group.create_task(scheduler.run(), name="scheduler")
            group.create_task(compare(client, scheduler), name="partitions")
            for one in accounts:
                group.create_task(one.run(), name="accounting")

    def guard(client: ApiClient) -> PartitionGuard:
        from haru.scheduler.coexistence import PartitionGuard

        lease, allow = f"{component.election.namespace}/{component.lease}", options.allow_overlapping_partitions
        return PartitionGuard(client, lease, configuration.partition, allow=allow)

    async def check(client: ApiClient) -> None:
        from haru.scheduler.coexistence import OverlapError

        try:
            await guard(client).check()
        except OverlapError as error:
            raise UsageError(str(error)) from None

    async def compare(client: ApiClient, scheduler: Scheduler) -> None:
        from haru.scheduler.coexistence import OverlapError

        await scheduler.ready.wait()
        try:
            await scheduler.watch_partitions(guard(client))
        except OverlapError as error:
            refusals.append(str(error))
            raise

    def shown(election: Election, lease: str) -> Mapping[str, Any]:
        from haru.scheduler.configuration import LeaderElection, configuration_document

        elected = LeaderElection(
            election.elect, election.namespace, lease, election.lease, election.renew, election.retry
        )
        kubeconfig = str(options.kubeconfig or "")
        return configuration_document(replace(configuration, leader_election=elected, kubeconfig=kubeconfig))

    leader = configuration.leader_election
    component = Component(
        lease=leader.name,
        work=work,
        metrics=lambda: b"".join([*(one.metrics.text() for one in running), *(one.text() for one in accounts)]),
        ready=lambda: bool(running) and running[0].ready.is_set(),
        modules=_MODULES,
        election=Election(leader.elect, leader.namespace, leader.lease, leader.renew, leader.retry),
        gates=given,
        prepare=check,
        labels=LABELS,
        annotations=annotations_of(configuration.profiles, configuration.partition),
        dump=lambda: running[0].dump() if running else None,
        configuration=shown,
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
    found = _profiles(options)
    return replace(found, partition=_partition(options, found.partition))


def _partition(options: argparse.Namespace, configured: Partition) -> Partition:
    """The partition of the configuration, each part of it replaced where a flag names it."""
    from haru.engine.state import partition_from

    given = {
        "nodeSelector": options.partition_node_selector,
        "nodeTaint": options.partition_node_taint,
        "pools": options.partition_pool,
        "drivers": options.partition_driver,
        "deviceClasses": options.partition_device_class,
    }
    try:
        return partition_from(
            configured.as_dict() | {name: value for name, value in given.items() if value is not None}
        )
    except ValueError as error:
        raise UsageError(f"--partition-…: {error}") from error


def _profiles(options: argparse.Namespace) -> Configuration:
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
