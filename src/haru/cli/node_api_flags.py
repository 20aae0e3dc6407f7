"""Define the API flags of `haru node`, named as the kubelet's."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from haru.cli.duration_flags import duration
from haru.cli.serving_flags import add_certificate_arguments, check_certificate_files, ip_address, port_number

if TYPE_CHECKING:
    from haru.node.api import ServerOptions

_SWITCH = argparse.BooleanOptionalAction


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the kubelet API."""
    group = parser.add_argument_group("API of the node")
    group.add_argument(
        "--address", type=ip_address, metavar="IP", default="0.0.0.0", help="IP to listen on (default 0.0.0.0)"
    )
    group.add_argument(
        "--port", type=port_number, metavar="PORT", default=10250, help="port (default 10250; 0: any free port)"
    )
    group.add_argument(
        "--healthz-bind-address",
        type=ip_address,
        metavar="IP",
        default="127.0.0.1",
        help="IP to listen on for /healthz without TLS (default 127.0.0.1)",
    )
    group.add_argument(
        "--healthz-port",
        type=port_number,
        metavar="PORT",
        default=10248,
        help="port of /healthz without TLS (default 10248; 0: none)",
    )
    add_certificate_arguments(
        group, "directory in which a certificate is created if none is given (default ROOT-DIR/pki)"
    )
    group.add_argument("--client-ca-file", type=Path, metavar="FILE", help="CA of client certificates")
    group.add_argument(
        "--anonymous-auth", action=_SWITCH, default=False, help="accept requests without credentials (default no)"
    )
    group.add_argument(
        "--authentication-token-webhook",
        action=_SWITCH,
        default=True,
        help="verify bearer tokens by TokenReview (default yes)",
    )
    group.add_argument(
        "--authentication-token-webhook-cache-ttl",
        type=duration,
        metavar="DURATION",
        default="2m",
        help="how long TokenReview answers are cached (default 2m)",
    )
    group.add_argument(
        "--authorization-mode",
        choices=("Webhook", "AlwaysAllow"),
        default="Webhook",
        help="authorization mode (default Webhook)",
    )
    group.add_argument(
        "--authorization-webhook-cache-authorized-ttl",
        type=duration,
        metavar="DURATION",
        default="5m",
        help='how long an "allowed" answer is cached (default 5m)',
    )
    group.add_argument(
        "--authorization-webhook-cache-unauthorized-ttl",
        type=duration,
        metavar="DURATION",
        default="30s",
        help='how long a "denied" answer is cached (default 30s)',
    )
    group.add_argument(
        "--enable-debugging-handlers",
        action=_SWITCH,
        default=True,
        help="serve container logs, exec, attach and port-forward (default yes)",
    )
    group.add_argument(
        "--require-create-for-streams",
        action="store_true",
        help="require the verb create for exec, attach and port-forward over WebSocket too (1.36: get)",
    )


def server_options(flags: argparse.Namespace) -> ServerOptions:
    """The flags, checked. Raises UsageError."""
    from haru.node.api import AuthenticationOptions, AuthorizationOptions, ServerOptions

    check_certificate_files(flags, "client_ca_file")
    return ServerOptions(
        address=flags.address,
        port=flags.port,
        healthz_address=flags.healthz_bind_address,
        healthz_port=flags.healthz_port or -1,
        cert_file=flags.tls_cert_file,
        key_file=flags.tls_private_key_file,
        cert_dir=flags.cert_dir or flags.root_dir.absolute() / "pki",
        authentication=AuthenticationOptions(
            client_ca_file=flags.client_ca_file,
            anonymous=flags.anonymous_auth,
            webhook=flags.authentication_token_webhook,
            cache_seconds=flags.authentication_token_webhook_cache_ttl,
        ),
        authorization=AuthorizationOptions(
            mode=flags.authorization_mode,
            allowed_seconds=flags.authorization_webhook_cache_authorized_ttl,
            denied_seconds=flags.authorization_webhook_cache_unauthorized_ttl,
            require_create_for_streams=flags.require_create_for_streams,
        ),
        debugging_handlers=flags.enable_debugging_handlers,
    )
