"""Run a whole cluster in this process: API server, controllers, scheduler and simulated GPU nodes.

When the cluster is ready, the command prints one line: the time taken, the address and the path of the kubeconfig.
Ctrl-C or SIGTERM stops it. The data directory keeps the state for the next start, except with --ephemeral.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from haru.cli.controllers import add_stale_gang_arguments
from haru.cli.http2_flags import add_http2_arguments, http2_streams_of
from haru.cli.main import UsageError
from haru.cli.scheduler import add_log_arguments, add_protection_arguments
from haru.cli.security_flags import add_security_arguments, security_of
from haru.cli.token_flags import add_token_arguments, token_files_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru up`."""
    from haru.embedded.options import DEFAULT_PROFILES

    parser.add_argument(
        "--profile",
        metavar="NAME:COUNT,…",
        help="simulated nodes: profile names or profile files, each with a count; at a restart they replace "
        "the nodes of the last start (default: those of the last start; at the first start "
        f"{DEFAULT_PROFILES})",
    )
    parser.add_argument(
        "--no-simulated-nodes",
        action="store_true",
        help="create no simulated nodes: nodes register themselves, for example by haru node",
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help="address of the API (default 127.0.0.1:6443; port 0: any free port)"
    )
    page = parser.add_mutually_exclusive_group()
    page.add_argument(
        "--dashboard",
        metavar="HOST:PORT",
        help="address of the web page, on loopback only (default 127.0.0.1:0: any free port)",
    )
    page.add_argument("--no-dashboard", action="store_true", help="serve no web page")
    parser.add_argument("--no-usage-history", action="store_true", help="write no usage history for haru top --since")
    parser.add_argument(
        "--usage-metrics",
        metavar="HOST:PORT",
        help="address for the metrics of device usage, on loopback only (default: none)",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--data-dir", type=Path, metavar="DIR", help="directory for the state")
    where.add_argument("--ephemeral", action="store_true", help="keep no state: everything is removed at exit")
    parser.add_argument("--write-kubeconfig", type=Path, metavar="FILE", help="also write the kubeconfig to this file")
    parser.add_argument("--config", type=Path, metavar="FILE", help="UpConfiguration; flags override it")
    parser.add_argument("--feature-gates", metavar="NAME=BOOL,…", help="set feature gates, as in Kubernetes")
    parser.add_argument(
        "--runtime-config", metavar="VERSION=BOOL,…", help="enable or disable API versions, as in Kubernetes"
    )
    parser.add_argument(
        "--controllers",
        metavar="LIST",
        help="controllers to run: '*' all (the default), 'name' this one, '-name' not this one, '' none",
    )
    scheduler = parser.add_mutually_exclusive_group()
    scheduler.add_argument(
        "--scheduler-name",
        action="append",
        metavar="NAME",
        help="schedulerName to serve (default default-scheduler); may be repeated",
    )
    scheduler.add_argument(
        "--scheduler-config",
        type=Path,
        metavar="FILE",
        help="KubeSchedulerConfiguration: profiles by schedulerName, with plugins, weights and arguments",
    )
    scheduler.add_argument("--no-scheduler", action="store_true", help="run no scheduler")
    parser.add_argument(
        "--scheduler-profile",
        choices=("Default", "HaruPacking", "HaruExpected"),
        help="how nodes are chosen: as by kube-scheduler (default), fullest nodes and cards first, or by the "
        "work that nodes can still take",
    )
    parser.add_argument(
        "--no-backfill",
        action="store_true",
        help="reserve nothing for the head of the queue: whatever fits goes first, as in Kubernetes",
    )
    add_protection_arguments(parser)
    add_log_arguments(parser)
    add_stale_gang_arguments(parser)
    add_http2_arguments(parser)
    add_token_arguments(parser)
    add_security_arguments(parser)
    parser.add_argument("-v", "--verbose", action="count", default=0, help="more log messages; repeat for more")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="log format")


def serves(options: argparse.Namespace) -> bool:
    """Whether it runs until it is stopped."""
    return True


def run(options: argparse.Namespace) -> int:
    """Runs the cluster until it is stopped."""
    from haru.cli.logs import configure_logging
    from haru.embedded.lock import AlreadyRunningError
    from haru.embedded.options import OptionError
    from haru.embedded.run import run_cluster
    from haru.storage import StoreError

    configure_logging(options.verbose, options.log_format)
    try:
        return run_cluster(_up_options(options))
    except (OptionError, AlreadyRunningError, StoreError) as error:
        raise UsageError(str(error)) from error


def _up_options(flags: argparse.Namespace):  # type: ignore[no-untyped-def]
    from haru.embedded.options import (
        UpOptions,
        parse_dashboard,
        parse_listen,
        parse_loopback,
        parse_profiles,
        parse_runtime_config,
        read_config,
    )

    options = UpOptions()
    if flags.config is not None:
        from haru.kube.yaml import load

        options = read_config(flags.config, load)
    if flags.profile is not None:
        options = replace(options, profiles=parse_profiles(flags.profile))
    if flags.no_simulated_nodes:
        options = replace(options, simulated_nodes=False)
    if flags.listen is not None:
        host, port = parse_listen(flags.listen)
        options = replace(options, host=host, port=port)
    if flags.dashboard is not None:
        options = replace(options, dashboard=parse_dashboard(flags.dashboard))
    if flags.no_dashboard:
        options = replace(options, dashboard=None)
    if flags.no_usage_history:
        options = replace(options, usage_history=False)
    if flags.usage_metrics is not None:
        options = replace(options, usage_metrics=parse_loopback(flags.usage_metrics, "--usage-metrics"))
    if flags.data_dir is not None:
        options = replace(options, data_dir=flags.data_dir.expanduser().resolve(), ephemeral=False)
    if flags.ephemeral:
        options = replace(options, ephemeral=True, data_dir=None)
    if flags.write_kubeconfig is not None:
        options = replace(options, write_kubeconfig=flags.write_kubeconfig.expanduser())
    if flags.feature_gates is not None:
        joined = ",".join(filter(None, (options.feature_gates, flags.feature_gates)))
        options = replace(options, feature_gates=joined)
    if flags.runtime_config is not None:
        merged = {**options.runtime_config, **parse_runtime_config(flags.runtime_config)}
        options = replace(options, runtime_config=merged)
    if flags.controllers is not None:
        options = replace(options, controllers=tuple(flags.controllers.split(",")))
    if flags.scheduler_name is not None:
        options = replace(options, scheduler_names=tuple(flags.scheduler_name))
    if flags.scheduler_config is not None:
        options = replace(options, scheduler_config=flags.scheduler_config.expanduser())
    if flags.scheduler_profile is not None:
        options = replace(options, scheduler_profile=flags.scheduler_profile)
    if flags.no_scheduler:
        options = replace(options, scheduler_names=())
    if flags.no_backfill:
        options = replace(options, backfill=False)
    if flags.minimum_run_time is not None:
        options = replace(options, minimum_run_time=flags.minimum_run_time)
    if flags.decision_log is not None:
        options = replace(options, decision_log=flags.decision_log.expanduser())
    if flags.decision_log_size is not None:
        options = replace(options, decision_log_mebibytes=flags.decision_log_size)
    if flags.preemption_delay is not None:
        options = replace(options, preemption_delay=flags.preemption_delay)
    if flags.stale_gang_after is not None:
        options = replace(options, stale_gang_after=flags.stale_gang_after)
    if flags.stale_gang_policy is not None:
        options = replace(options, stale_gang_policy=flags.stale_gang_policy)
    options = replace(options, http2_streams=http2_streams_of(flags))
    return replace(options, security=security_of(flags, options.security), account_tokens=token_files_of(flags))
