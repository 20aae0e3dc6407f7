"""Run a whole cluster by one command: API server, controllers, scheduler and simulated GPU nodes.

When the cluster is ready, the command prints one line: the time taken, the address and the path of the kubeconfig.
Ctrl-C or SIGTERM stops it. The data directory keeps the state for the next start, except with --ephemeral.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haru.cli.controllers import add_stale_gang_arguments
from haru.cli.http2_flags import add_http2_arguments, http2_streams_of
from haru.cli.main import UsageError
from haru.cli.scheduler import (
    add_log_arguments,
    add_profile_argument,
    add_protection_arguments,
    add_publishing_arguments,
)
from haru.cli.security_flags import add_security_arguments, security_of
from haru.cli.serving_flags import scheduler_name
from haru.cli.token_flags import add_token_arguments, token_files_of

if TYPE_CHECKING:
    from haru.embedded.options import UpOptions


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
    parser.add_argument(
        "--processes",
        choices=("auto", "one", "split"),
        help="one: everything in one process; split: the scheduler, the controllers with the simulated nodes, and the "
        "web page with the usage history have processes of their own; auto (default): split if there are four cores",
    )
    page = parser.add_mutually_exclusive_group()
    page.add_argument(
        "--dashboard",
        metavar="HOST:PORT",
        help="address of the web page, on loopback only (default 127.0.0.1:0: any free port)",
    )
    page.add_argument("--no-dashboard", action="store_true", help="serve no web page")
    parser.add_argument(
        "--no-explain-api", action="store_true", help="do not serve explain.haru.dev, which answers tenants"
    )
    parser.add_argument(
        "--no-metrics-api",
        action="store_true",
        help="do not serve metrics.k8s.io, which tells what simulated pods use",
    )
    parser.add_argument("--no-usage-history", action="store_true", help="write no usage history for haru top --since")
    parser.add_argument(
        "--usage-metrics",
        metavar="HOST:PORT",
        help="address for the metrics of device usage, on loopback only (default: none)",
    )
    parser.add_argument("--card-prices", type=Path, metavar="FILE", help="price list of cards, for what idle ones cost")
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
        type=scheduler_name,
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
    add_profile_argument(parser)
    parser.add_argument(
        "--no-backfill",
        action="store_true",
        help="reserve nothing for the head of the queue: whatever fits goes first, as in Kubernetes",
    )
    add_protection_arguments(parser)
    add_publishing_arguments(parser)
    add_log_arguments(parser)
    add_stale_gang_arguments(parser)
    add_http2_arguments(parser)
    add_token_arguments(parser)
    add_security_arguments(parser)
    parser.add_argument("-v", "--verbose", action="count", default=0, help="more log messages; repeat for more")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="log format")


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


def _up_options(flags: argparse.Namespace) -> UpOptions:
    from haru.embedded.options import UpOptions, parse_runtime_config, read_config

    options = UpOptions()
    if flags.config is not None:
        from haru.kube.yaml import load

        options = read_config(flags.config, load)
    for option, value in _given(flags).items():
        options = options.with_option(option, value)
    if flags.data_dir is not None:
        options = options.with_option("state.data_dir", flags.data_dir.expanduser().resolve())
        options = options.with_option("state.ephemeral", False)
    if flags.ephemeral:
        options = options.with_option("state.ephemeral", True).with_option("state.data_dir", None)
    if options.explain_api is None or flags.no_explain_api:
        options = options.with_option("explain_api", not flags.no_explain_api)
    if options.metrics_api is None or flags.no_metrics_api:
        options = options.with_option("metrics_api", not flags.no_metrics_api)
    if flags.feature_gates is not None:
        joined = ",".join(filter(None, (options.feature_gates, flags.feature_gates)))
        options = options.with_option("feature_gates", joined)
    if flags.runtime_config is not None:
        merged = {**options.runtime_config, **parse_runtime_config(flags.runtime_config)}
        options = options.with_option("runtime_config", merged)
    options = options.with_option("http2_streams", http2_streams_of(flags))
    options = options.with_option("security", security_of(flags, options.security))
    return options.with_option("account_tokens", token_files_of(flags))


def _given(flags: argparse.Namespace) -> dict[str, Any]:
    """The options that single flags set, in the order in which their errors are reported."""
    from haru.embedded.options import parse_dashboard, parse_listen, parse_loopback, parse_profiles

    given: dict[str, Any] = {}

    def take(flag: str, option: str, read: Callable[[Any], Any] = lambda value: value) -> None:
        if (value := getattr(flags, flag)) is not None:
            given[option] = read(value)

    take("profile", "profiles", parse_profiles)
    if flags.no_simulated_nodes:
        given["simulated_nodes"] = False
    take("listen", "listen", parse_listen)
    take("processes", "processes")
    take("dashboard", "dashboard", parse_dashboard)
    if flags.no_dashboard:
        given["dashboard"] = None
    if flags.no_usage_history:
        given["usage.history"] = False
    take("usage_metrics", "usage.metrics", lambda text: parse_loopback(text, "--usage-metrics"))
    take("card_prices", "usage.card_prices", Path.expanduser)
    take("write_kubeconfig", "state.write_kubeconfig", Path.expanduser)
    take("controllers", "controllers.names", lambda text: tuple(text.split(",")))
    take("scheduler_name", "scheduler.names", tuple)
    take("scheduler_config", "scheduler.config", Path.expanduser)
    take("scheduler_profile", "scheduler.profile")
    if flags.no_scheduler:
        given["scheduler.names"] = ()
    if flags.no_backfill:
        given["scheduler.backfill"] = False
    take("minimum_run_time", "scheduler.minimum_run_time")
    take("preemption_delay", "scheduler.preemption_delay")
    take("publish_explanations", "scheduler.publish_explanations")
    take("decision_log", "scheduler.decision_log", Path.expanduser)
    take("decision_log_size", "scheduler.decision_log_mebibytes")
    take("stale_gang_after", "controllers.stale_gang_after")
    take("stale_gang_policy", "controllers.stale_gang_policy")
    return given
