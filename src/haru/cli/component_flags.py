"""Define the flags that `haru scheduler`, `haru controllers` and other components share, and what they say."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from haru.cli.connection import add_connection_arguments
from haru.cli.duration_flags import duration
from haru.cli.main import UsageError
from haru.cli.serving_flags import add_serving_arguments, port_number

if TYPE_CHECKING:
    from haru.kube.gates import FeatureGates


def add_component_arguments(parser: argparse.ArgumentParser, port: int) -> None:
    """The flags of a component that runs against an API server."""
    add_connection_arguments(parser)
    parser.add_argument(
        "--feature-gates", metavar="NAME=BOOL,…", default="", help="set feature gates, as in Kubernetes"
    )
    parser.add_argument(
        "--health-port",
        type=port_number,
        metavar="PORT",
        help=f"port of health and metrics on 127.0.0.1, plain HTTP (default {port}, none with HTTPS; 0: any free port)",
    )
    add_serving_arguments(parser, port)
    parser.set_defaults(default_port=port)
    add_election_arguments(parser)
    parser.add_argument("-v", "--verbose", action="count", default=1, help="more log messages")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="log format")


def add_election_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of leader election, as kube-scheduler has them; they win over a configuration file."""
    parser.add_argument(
        "--leader-elect",
        nargs="?",
        const="true",
        choices=("true", "false"),
        help="whether replicas elect a leader (default true); without a Lease only a single replica may run",
    )
    parser.add_argument("--no-leader-elect", action="store_true", help="the same as --leader-elect=false")
    parser.add_argument(
        "--leader-elect-resource-name",
        type=_object_name,
        metavar="NAME",
        help="name of the Lease; with kube-scheduler's name this scheduler and kube-scheduler never run at once",
    )
    parser.add_argument(
        "--leader-elect-resource-namespace",
        "--leader-elect-namespace",
        dest="leader_elect_namespace",
        type=_namespace_name,
        metavar="NAMESPACE",
        help="namespace of the Lease (default kube-system)",
    )
    parser.add_argument(
        "--leader-elect-resource-lock", choices=("leases",), help="what is locked: always a Lease, as in kube-scheduler"
    )
    for name, default, text in (
        ("lease-duration", "15s", "after this time without renewal another replica takes the Lease over"),
        ("renew-deadline", "10s", "the leader stops after this time without renewal"),
        ("retry-period", "2s", "time between two attempts to take or renew the Lease"),
    ):
        parser.add_argument(
            f"--leader-elect-{name}", type=duration, metavar="DURATION", help=f"{text} (default {default})"
        )


def parse_gates(text: str, minor: int = 0) -> FeatureGates:
    """The gates of `--feature-gates` in version 1.`minor` (0: the newest); raises UsageError that names the gate."""
    from haru.kube.gate_table import NEWEST
    from haru.kube.gates import FeatureGates

    try:
        return FeatureGates.parse(text, minor or NEWEST)
    except ValueError as error:
        raise UsageError(f"--feature-gates: {error}") from error


def _object_name(text: str) -> str:
    """The name of an object, for argparse."""
    from haru.kube.names import is_dns1123_subdomain

    if is_dns1123_subdomain(text):
        remedy = "write the name of an object, such as haru-scheduler"
        raise argparse.ArgumentTypeError(f'Invalid value: "{text}": {remedy}')
    return text


def _namespace_name(text: str) -> str:
    """The name of a namespace, for argparse."""
    from haru.kube.names import is_dns1123_label

    if is_dns1123_label(text):
        raise argparse.ArgumentTypeError(f'Invalid value: "{text}": write the name of a namespace, such as kube-system')
    return text
