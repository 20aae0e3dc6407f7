"""Run Haru's controllers against an API server. Replicas elect a leader.

On a server other than Haru's, only the controllers listed by --controllers run: kube-controller-manager runs its own.
"""

from __future__ import annotations

import argparse
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from haru.cli.component_flags import add_component_arguments, parse_gates
from haru.cli.duration_flags import period
from haru.cli.main import UsageError

if TYPE_CHECKING:
    from haru.client.api import ApiClient
    from haru.controllers.manager import ControllerManager


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru controllers`."""
    add_component_arguments(parser, 10257)
    parser.add_argument(
        "--controllers",
        metavar="LIST",
        help="controllers to run: '*' all, 'name' this one, '-name' not this one (default: all on a Haru "
        "server, else none)",
    )
    parser.add_argument(
        "--use-service-account-credentials",
        nargs="?",
        const="true",
        choices=("true", "false"),
        help="run each controller with a ServiceAccount of its own in kube-system (default: on a Haru server)",
    )
    parser.add_argument(
        "--root-ca-file",
        type=Path,
        metavar="FILE",
        help="CA of the API server's certificate, published to all namespaces as kube-root-ca.crt for pods "
        "(default: that of the kubeconfig)",
    )
    parser.add_argument(
        "--service-account-private-key-file",
        type=Path,
        metavar="FILE",
        help="private key that signs the ServiceAccount tokens of Secrets (default: these Secrets stay empty)",
    )
    for name, what in (("cert", "certificate"), ("key", "key")):
        parser.add_argument(
            f"--cluster-signing-{name}-file",
            type=Path,
            metavar="FILE",
            help=f"{what} of the authority that signs CertificateSigningRequests (default: they are not signed)",
        )
    parser.add_argument(
        "--cluster-signing-duration",
        type=period,
        default="8760h",
        metavar="DURATION",
        help="how long the certificates are valid at most (default: 8760h)",
    )
    parser.add_argument(
        "--horizontal-pod-autoscaler-sync-period",
        type=period,
        default="15s",
        metavar="DURATION",
        help="time between two looks at an autoscaler (default 15s)",
    )
    add_stale_gang_arguments(parser)


def add_stale_gang_arguments(parser: argparse.ArgumentParser) -> None:
    """What becomes of gangs that stay below minCount; also for `haru up`."""
    parser.add_argument(
        "--stale-gang-after",
        metavar="DURATION",
        help="report a gang that has been below minCount for this time, for example 10m (default: never; the "
        "PodGroup annotation haru.dev/stale-gang-after overrides it)",
    )
    parser.add_argument(
        "--stale-gang-policy",
        choices=("Report", "Evict"),
        help="for a stale gang: report it (default), or also evict its remaining members (the PodGroup "
        "annotation haru.dev/stale-gang-policy overrides it)",
    )


def run(options: argparse.Namespace) -> int:
    """Runs the controllers until they are stopped or lose their Lease."""
    from haru.cli.component import Component, run_component

    gates = parse_gates(options.feature_gates)
    listed = None if options.controllers is None else options.controllers.split(",")
    _check(listed)
    authority, settings = _authority(options.root_ca_file), {"stale-gang": _stale_policy(options)}
    settings["cluster-signing"] = _cluster_signing(options)
    settings["secret-tokens"] = _secret_tokens(options.service_account_private_key_file)
    settings["horizontal-pod-autoscaler-sync-period"] = options.horizontal_pod_autoscaler_sync_period
    running: list[ControllerManager] = []

    async def prepare(client: ApiClient) -> None:
        if listed is None and not await _is_haru(client):
            raise UsageError(
                "this API server is not Haru's and has controllers of its own: none is run. "
                "Name those to run with --controllers LIST"
            )

    async def work(client: ApiClient) -> None:
        from haru.controllers.accounts import account_clients
        from haru.controllers.manager import ControllerManager

        haru = await _is_haru(client)
        names = listed if listed is not None else ["*"]
        wished = options.use_service_account_credentials
        clients = account_clients(client) if wished == "true" or (haru and wished is None) else None
        settings["root-ca"] = authority or client.authority.decode()
        manager = ControllerManager(client, gates, names, options=settings, clients=clients)
        running[:] = [manager]
        await manager.run()

    component = Component(
        lease="haru-controllers",
        work=work,
        metrics=lambda: running[0].metrics() if running else b"",
        ready=lambda: bool(running) and running[0].started,
        modules=("haru.controllers.accounts", "haru.controllers.manager"),
        gates=gates,
        prepare=prepare,
    )
    return run_component(options, component)


def _check(names: list[str] | None) -> None:
    if names is None:
        return
    from haru.controllers.manager import select_controllers

    try:
        select_controllers(names)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _authority(file: Path | None) -> str:
    """The certificates in a file, as text; empty without one."""
    from haru.embedded.errors import OptionError
    from haru.embedded.flag_files import read_authorities

    try:
        found = read_authorities(None if file is None else file.expanduser(), "--root-ca-file")
    except OptionError as error:
        raise UsageError(str(error)) from error
    return found.decode(errors="replace")


def _cluster_signing(options: argparse.Namespace) -> object:
    """The authority that signs requests; None without one."""
    certificate, key = options.cluster_signing_cert_file, options.cluster_signing_key_file
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("--cluster-signing-cert-file and --cluster-signing-key-file: give both, or none")
    from haru.controllers.certificate_authority import ClusterSigning, SigningError

    signing = ClusterSigning(certificate, key, timedelta(seconds=options.cluster_signing_duration))
    try:
        signing.authority()
    except SigningError as error:
        raise UsageError(f"--cluster-signing-cert-file, --cluster-signing-key-file: {error}") from error
    return signing


def _secret_tokens(file: Path | None) -> object:
    """What signs the tokens of Secrets; None without a key."""
    if file is None:
        return None
    from haru.apiserver.auth import KeyFileError
    from haru.embedded.account_tokens import SecretTokens

    tokens = SecretTokens(file.expanduser())
    try:
        tokens.keys()
    except (OSError, KeyFileError) as error:
        raise UsageError(f"--service-account-private-key-file: {file}: {error}") from error
    return tokens.sign


def _stale_policy(options: argparse.Namespace) -> object:
    from haru.controllers.stale_gang_rules import default_policy

    try:
        return default_policy(options.stale_gang_after, options.stale_gang_policy or "Report")
    except ValueError as error:
        raise UsageError(str(error)) from error


async def _is_haru(client: ApiClient) -> bool:
    import orjson

    status, _, body = await client.raw("GET", "/version")
    return status == 200 and "haru" in str(orjson.loads(body).get("gitVersion", ""))
