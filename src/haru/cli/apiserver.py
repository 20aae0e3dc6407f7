"""Run an API server over etcd, alone or as one of several replicas, with kube-apiserver's flag names.

All replicas need the same etcd, the same --service-account-signing-key-file and the same authentication flags; clients
may use any of them. `haru scheduler` and `haru controllers` run as separate processes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from haru.cli.component_flags import parse_gates
from haru.cli.duration_flags import duration
from haru.cli.http2_flags import add_http2_arguments, http2_streams_of
from haru.cli.kubelet_flags import add_kubelet_arguments, kubelets_of
from haru.cli.main import UsageError
from haru.cli.number_flags import count
from haru.cli.peer_flags import add_peer_arguments, peer_files_of
from haru.cli.security_flags import add_security_arguments, security_of
from haru.cli.serving_flags import ip_address, port_number
from haru.cli.token_flags import add_token_arguments, token_files_of

if TYPE_CHECKING:
    from haru.embedded.replica import ReplicaOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru apiserver`."""
    etcd = parser.add_argument_group("etcd")
    etcd.add_argument("--etcd-servers", required=True, metavar="URL,…", help="etcd members, each https://HOST:PORT")
    etcd.add_argument(
        "--etcd-prefix", default="/registry", metavar="KEY", help="prefix of all keys (default /registry)"
    )
    etcd.add_argument("--etcd-cafile", type=Path, metavar="FILE", help="CA of etcd's certificates")
    etcd.add_argument("--etcd-certfile", type=Path, metavar="FILE", help="client certificate for etcd")
    etcd.add_argument("--etcd-keyfile", type=Path, metavar="FILE", help="private key of that certificate")
    etcd.add_argument(
        "--etcd-compaction-interval",
        type=duration,
        default="5m",
        metavar="DURATION",
        help="interval of etcd compaction; one replica compacts for all (default 5m; 0: another process compacts)",
    )
    serving = parser.add_argument_group("serving")
    serving.add_argument(
        "--bind-address", type=ip_address, default="0.0.0.0", metavar="IP", help="IP to listen on (default 0.0.0.0)"
    )
    serving.add_argument(
        "--secure-port", type=port_number, default=6443, metavar="PORT", help="port (default 6443; 0: any free port)"
    )
    serving.add_argument(
        "--advertise-address", type=ip_address, metavar="IP", help="IP at which pods reach this replica"
    )
    serving.add_argument("--tls-cert-file", type=Path, metavar="FILE", help="serving certificate")
    serving.add_argument("--tls-private-key-file", type=Path, metavar="FILE", help="private key of that certificate")
    serving.add_argument(
        "--cert-dir",
        type=Path,
        metavar="DIR",
        help="directory in which a certificate and its ca.crt are created if none is given",
    )
    serving.add_argument(
        "--max-requests-inflight",
        type=count,
        default=400,
        metavar="N",
        help="maximum of concurrent read requests (default 400)",
    )
    serving.add_argument(
        "--max-mutating-requests-inflight",
        type=count,
        default=200,
        metavar="N",
        help="maximum of concurrent write requests (default 200)",
    )
    access = parser.add_argument_group("authentication")
    access.add_argument("--client-ca-file", type=Path, metavar="FILE", help="CA of client certificates")
    access.add_argument(
        "--token-auth-file", type=Path, metavar="FILE", help='bearer tokens: lines token,user,uid,"group1,group2"'
    )
    add_http2_arguments(parser)
    add_token_arguments(parser)
    add_peer_arguments(parser)
    add_kubelet_arguments(parser)
    add_security_arguments(parser)
    parser.add_argument(
        "--feature-gates", metavar="NAME=BOOL,…", default="", help="set feature gates, as in Kubernetes"
    )
    parser.add_argument("--runtime-config", metavar="VERSION=BOOL,…", default="", help="enable or disable API versions")
    parser.add_argument(
        "--emulated-version",
        metavar="VERSION",
        default="",
        help="API version to emulate: 1.33 to 1.36 (default 1.36)",
    )
    parser.add_argument("-v", "--verbose", action="count", default=0, help="more log messages; repeat for more")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="log format")


def run(options: argparse.Namespace) -> int:
    """Serves until it is stopped."""
    from haru.cli.logs import configure_logging
    from haru.embedded.options import OptionError
    from haru.embedded.replica import run_replica
    from haru.storage import StoreError

    configure_logging(options.verbose, options.log_format)
    try:
        return run_replica(_replica_options(options))
    except (OptionError, StoreError) as error:
        raise UsageError(str(error)) from error


def _emulated_minor(text: str) -> int:
    """The minor version of `--emulated-version`: `1.35` or, with the component's name as in Kubernetes, `kube=1.35`."""
    from haru.kube.gate_table import NEWEST, OLDEST

    major, dot, minor = text.removeprefix("kube=").partition(".")
    if not text:
        return NEWEST
    if major != "1" or not dot or not minor.isdigit() or not OLDEST <= int(minor) <= NEWEST:
        remedy = f"write a version from 1.{OLDEST} to 1.{NEWEST}, without a patch number"
        raise UsageError(f'--emulated-version: Invalid value: "{text}": {remedy}')
    return int(minor)


def _replica_options(flags: argparse.Namespace) -> ReplicaOptions:
    from haru.apiserver.config import FlowControl
    from haru.embedded.data_directory import default_data_dir
    from haru.embedded.options import parse_runtime_config
    from haru.embedded.replica import CredentialFiles, EtcdOptions, ReplicaOptions, ServingOptions
    from haru.embedded.security import SecurityOptions

    if flags.client_ca_file is None and flags.token_auth_file is None:
        raise UsageError("nobody could come in: name --client-ca-file, or --token-auth-file")
    if flags.service_account_signing_key_file is None and flags.service_account_signing_endpoint is None:
        remedy = "name --service-account-signing-key-file, or --service-account-signing-endpoint"
        raise UsageError(f"no ServiceAccount would have a token: {remedy}")
    return ReplicaOptions(
        EtcdOptions(
            tuple(filter(None, (part.strip() for part in flags.etcd_servers.split(",")))),
            flags.etcd_prefix,
            flags.etcd_cafile,
            flags.etcd_certfile,
            flags.etcd_keyfile,
            flags.etcd_compaction_interval,
        ),
        ServingOptions(
            flags.bind_address,
            flags.secure_port,
            flags.advertise_address or "",
            flags.tls_cert_file,
            flags.tls_private_key_file,
            flags.cert_dir or default_data_dir().parent / "apiserver",
            http2_streams_of(flags),
        ),
        CredentialFiles(flags.client_ca_file, flags.token_auth_file, token_files_of(flags)),
        parse_gates(flags.feature_gates, _emulated_minor(flags.emulated_version)),
        parse_runtime_config(flags.runtime_config),
        FlowControl(flags.max_requests_inflight, flags.max_mutating_requests_inflight),
        security_of(flags, SecurityOptions()),
        peer_files_of(flags),
        kubelets_of(flags),
    )
