"""Define the flags of `haru explain serve` and of `haru explain --publish`."""

from __future__ import annotations

import argparse

from haru.cli.component_flags import add_election_arguments
from haru.cli.number_flags import count
from haru.cli.serving_flags import add_certificate_arguments, ip_address, port_number

PORT = 8443


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru explain serve`."""
    group = parser.add_argument_group(
        "haru explain serve",
        "Answers tenants over HTTPS, behind the API server's aggregation layer (explain.haru.dev/v1alpha1).",
    )
    group.add_argument(
        "--bind-address", type=ip_address, metavar="IP", default="0.0.0.0", help="IP to listen on (default 0.0.0.0)"
    )
    group.add_argument("--secure-port", type=port_number, metavar="PORT", default=PORT, help=f"port (default {PORT})")
    add_certificate_arguments(group)
    group.add_argument(
        "--service",
        metavar="NAMESPACE/NAME[:PORT]",
        default="haru-system/haru-explain",
        help="Service that leads here, for which a self-signed certificate is made (default haru-system/haru-explain)",
    )
    group.add_argument(
        "--register",
        action="store_true",
        help="write the APIService for that Service, with the serving certificate in its caBundle",
    )
    group.add_argument(
        "--max-waiting",
        type=count,
        metavar="NUMBER",
        default=32,
        help="questions that wait at once; further ones get 429 (default 32, a quarter of them per user)",
    )
    group.add_argument("-v", "--verbose", action="count", default=0, help="more log messages; repeat for more")
    group.add_argument("--log-format", choices=("text", "json"), default="text", help="log format")


def add_publish_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru explain --publish`."""
    group = parser.add_argument_group(
        "haru explain --publish",
        "Runs as a component beside another scheduler: writes why its pods wait as an annotation and an event on each.",
    )
    group.add_argument(
        "--publish",
        nargs="?",
        const="counts",
        choices=("counts", "names"),
        help="annotate waiting pods of other schedulers; work of other namespaces is counted, with names it is named",
    )
    add_election_arguments(parser)
