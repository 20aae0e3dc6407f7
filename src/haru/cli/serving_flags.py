"""Define the flags of the HTTPS port of `haru scheduler` and `haru controllers`, named as kube-scheduler's.

Without any of them health and metrics are plain HTTP on loopback, at --health-port.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haru.cli.duration_flags import duration
from haru.cli.main import UsageError
from haru.cli.number_flags import whole

if TYPE_CHECKING:
    from haru.secure_serving.options import ServingOptions

_DURATIONS = (
    "authentication_token_webhook_cache_ttl",
    "authorization_webhook_cache_authorized_ttl",
    "authorization_webhook_cache_unauthorized_ttl",
)
_FLAGS = (
    *("bind_address", "secure_port", "tls_cert_file", "tls_private_key_file", "cert_dir", "client_ca_file"),
    *("authentication_kubeconfig", "authentication_skip_lookup", "authentication_tolerate_lookup_failure"),
    *("authorization_kubeconfig", "authorization_always_allow_paths"),
    *_DURATIONS,
)


def add_certificate_arguments(
    group: Any, directory: str = "directory of a self-signed certificate, made if there is none (default: in memory)"
) -> None:
    """The flags of the certificate that a command serves with; `directory` says what --cert-dir is for."""
    group.add_argument("--tls-cert-file", type=Path, metavar="FILE", help="serving certificate")
    group.add_argument("--tls-private-key-file", type=Path, metavar="FILE", help="private key of that certificate")
    group.add_argument("--cert-dir", type=Path, metavar="DIR", help=directory)


def add_serving_arguments(parser: argparse.ArgumentParser, port: int) -> None:
    """The flags; `port` is the default of --secure-port."""
    group = parser.add_argument_group(
        "health and metrics over HTTPS",
        f"Any of these flags serves them on --bind-address at --secure-port {port}, for those whom the API server "
        "authenticates and authorizes.",
    )
    group.add_argument("--bind-address", type=ip_address, metavar="IP", help="IP to listen on (default 0.0.0.0)")
    group.add_argument("--secure-port", type=port_number, metavar="PORT", help=f"port (default {port}; 0: no HTTPS)")
    add_certificate_arguments(group)
    files = {
        "--client-ca-file": "CA of client certificates (default: of kube-system/extension-apiserver-authentication)",
        "--authentication-kubeconfig": "kubeconfig for TokenReviews (default: that of --kubeconfig)",
        "--authorization-kubeconfig": "kubeconfig for SubjectAccessReviews (default: that of --kubeconfig)",
    }
    for flag, text in files.items():
        group.add_argument(flag, type=Path, metavar="FILE", help=text)
    _add_switch(group, "--authentication-skip-lookup", "do not read that ConfigMap (default false)")
    _add_switch(
        group,
        "--authentication-tolerate-lookup-failure",
        "start without that ConfigMap if it is not readable (default true)",
    )
    group.add_argument(
        "--authorization-always-allow-paths",
        metavar="PATH,…",
        help="paths for everybody (default /healthz,/readyz,/livez; PREFIX* is allowed)",
    )
    texts = ("TokenReviews", 'an "allowed" answer', 'a "denied" answer')
    for name, text in zip(_DURATIONS, texts, strict=True):
        flag = f"--{name.replace('_', '-')}"
        group.add_argument(flag, type=duration, metavar="DURATION", help=f"how long {text} is cached (default 10s)")


def _add_switch(group: Any, flag: str, text: str) -> None:
    group.add_argument(flag, nargs="?", const="true", choices=("true", "false"), help=text)


def serving_options(flags: argparse.Namespace, port: int) -> ServingOptions | None:
    """The flags, checked; None where no HTTPS is wanted. Raises UsageError."""
    given = [name for name in _FLAGS if getattr(flags, name) is not None]
    if not given or flags.secure_port == 0:
        return None
    from haru.secure_serving.authorization import ALWAYS_ALLOWED_PATHS
    from haru.secure_serving.options import ServingOptions

    check_certificate_files(flags, "client_ca_file")
    paths = flags.authorization_always_allow_paths
    token, allowed, denied = (getattr(flags, name) if name in given else 10.0 for name in _DURATIONS)
    return ServingOptions(
        address=flags.bind_address or "0.0.0.0",
        port=flags.secure_port or port,
        cert_file=flags.tls_cert_file,
        key_file=flags.tls_private_key_file,
        cert_dir=flags.cert_dir,
        client_ca_file=flags.client_ca_file,
        skip_lookup=flags.authentication_skip_lookup == "true",
        tolerate_lookup_failure=flags.authentication_tolerate_lookup_failure != "false",
        token_seconds=token,
        allowed_seconds=allowed,
        denied_seconds=denied,
        always_allowed=ALWAYS_ALLOWED_PATHS if paths is None else [path for path in paths.split(",") if path],
    )


def check_certificate_files(flags: argparse.Namespace, *authorities: str) -> None:
    """Look at the files of certificates that flags name, `authorities` among them. Raises UsageError."""
    import ssl

    from haru.tls import no_passphrase

    if bool(flags.tls_cert_file) != bool(flags.tls_private_key_file):
        raise UsageError("--tls-cert-file and --tls-private-key-file go together: name both, or none")
    for name in ("tls_cert_file", "tls_private_key_file", *authorities):
        file, flag = getattr(flags, name), f"--{name.replace('_', '-')}"
        if file is not None and not file.is_file():
            raise UsageError(f'{flag}: Invalid value: "{file}": there is no such file')
        try:
            if file is not None and name in authorities:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cafile=file)
        except (OSError, ssl.SSLError) as error:
            why = "it holds no certificate in PEM; name the file of an authority"
            raise UsageError(f'{flag}: Invalid value: "{file}": {why}') from error
    try:
        if flags.tls_cert_file:
            pair = flags.tls_cert_file, flags.tls_private_key_file
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*pair, password=no_passphrase)
    except (OSError, ssl.SSLError) as error:
        values = f'"{flags.tls_cert_file}" and "{flags.tls_private_key_file}"'
        why = "no certificate with its key, in PEM and without a passphrase, can be read"
        raise UsageError(f"--tls-cert-file and --tls-private-key-file: Invalid values: {values}: {why}") from error
    if flags.cert_dir is not None and flags.cert_dir.exists() and not flags.cert_dir.is_dir():
        raise UsageError(f'--cert-dir: Invalid value: "{flags.cert_dir}": name a directory')


def port_number(text: str) -> int:
    """A TCP port, for argparse."""
    return whole(text, "write a port from 0 to 65535", most=65535)


def scheduler_name(text: str) -> str:
    """A schedulerName to serve, for argparse: an empty one is that of no pod."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f'Invalid value: "{text}": write the schedulerName of pods')
    return text


def ip_address(text: str) -> str:
    """An address to listen on, for argparse; a host name may be several."""
    import ipaddress

    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f'Invalid value: "{text}": write an IP address') from None
