"""Run Haru's scheduler against an API server, beside kube-scheduler or for `haru up --no-scheduler`.

It schedules the pods whose schedulerName is `haru` (or that of --scheduler-name). Replicas elect a leader.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from haru.cli.component_flags import add_component_arguments, parse_gates
from haru.cli.main import UsageError
from haru.cli.number_flags import whole
from haru.cli.serving_flags import scheduler_name

if TYPE_CHECKING:
    from haru.engine.state import Partition
    from haru.scheduler.configuration import Configuration
    from haru.scheduler.settings import Fairness


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru scheduler`."""
    add_component_arguments(parser, 10259)
    parser.add_argument(
        "--scheduler-name",
        type=scheduler_name,
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
    return whole(text, "write a number of MiB, at least 1", least=1)


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
    from haru.cli.component import run_component
    from haru.cli.scheduler_process import SchedulerProcess

    configuration = _configuration(options)
    process = SchedulerProcess(options, parse_gates(options.feature_gates), configuration, _fairness(options))
    if options.kubeconfig is None and configuration.kubeconfig:
        options.kubeconfig = Path(configuration.kubeconfig).expanduser()
    return run_component(options, process.component)


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

    found = configured.as_dict()
    for flag, name in _PARTITION.items():
        value = getattr(options, f"partition_{flag.replace('-', '_')}")
        if value is None:
            continue
        blank = next((text for text in value if not text.strip()), None) if isinstance(value, list) else None
        try:
            if blank is not None:
                raise ValueError(f'Invalid value: "{blank}": write a name')
            partition_from({name: value})
        except ValueError as error:
            raise UsageError(f"--partition-{flag}: {error}") from error
        found[name] = value
    return partition_from(found)


_PARTITION = {
    "node-selector": "nodeSelector",
    "node-taint": "nodeTaint",
    "pool": "pools",
    "driver": "drivers",
    "device-class": "deviceClasses",
}
"""The parts of a partition by their flags (after `--partition-`)."""


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
