"""Define the flags of `haru dashboard` that serve it to the people of a cluster, named as kube-apiserver's."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from haru.cli.duration_flags import nanoseconds
from haru.cli.main import UsageError
from haru.cli.serving_flags import add_certificate_arguments, check_certificate_files, ip_address, port_number

if TYPE_CHECKING:
    from haru.dashboard.team_server import TeamOptions
    from haru.dashboard.views.prices import Prices
    from haru.dashboard.views.usage_history import UsageHistory
    from haru.secure_serving.request_header import FrontProxy

_REQUEST_HEADER = {  # how the value is called, what it is, and its default
    "allowed_names": ("NAME,…", "common names of its certificate (default: any)", ""),
    "username_headers": ("NAME,…", "headers with the user's name (default X-Remote-User)", "X-Remote-User"),
    "uid_headers": ("NAME,…", "headers with the user's UID (default none)", ""),
    "group_headers": ("NAME,…", "headers with the user's groups (default X-Remote-Group)", "X-Remote-Group"),
    "extra_headers_prefix": ("PREFIX,…", "prefixes of headers with more (default X-Remote-Extra-)", "X-Remote-Extra-"),
}
_NEED_PORT = (
    *("bind_address", "tls_cert_file", "tls_private_key_file", "cert_dir", "host", "session_duration"),
    *("requestheader_client_ca_file", *(f"requestheader_{name}" for name in _REQUEST_HEADER)),
)
_SESSION_SECONDS = 12 * 3600.0


def add_team_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags; --secure-port alone turns them on."""
    group = parser.add_argument_group(
        "for the people of a cluster",
        "With --secure-port it serves HTTPS to who signs in with a bearer token of the cluster or comes through an "
        "authenticating proxy; each sees what they may read.",
    )
    group.add_argument("--secure-port", type=port_number, metavar="PORT", help="port of HTTPS (default: none)")
    group.add_argument("--bind-address", type=ip_address, metavar="IP", help="IP to listen on (default 0.0.0.0)")
    add_certificate_arguments(group)
    group.add_argument(
        "--host",
        metavar="NAME,…",
        action="append",
        help="names under which browsers reach it, beside localhost; repeat for more",
    )
    group.add_argument(
        "--session-duration",
        type=_session,
        metavar="DURATION",
        help="how long a token need not be shown again (default 12h)",
    )
    group.add_argument(
        "--requestheader-client-ca-file",
        type=Path,
        metavar="FILE",
        help="CA of the certificate of an authenticating proxy; without it no header says who somebody is",
    )
    for name, (shown, text, _) in _REQUEST_HEADER.items():
        group.add_argument(f"--requestheader-{name.replace('_', '-')}", metavar=shown, help=text)


def team_options(flags: argparse.Namespace, history: UsageHistory | None, prices: Prices | None) -> TeamOptions | None:
    """The flags, checked; None without --secure-port, and then none of them may be given. Raises UsageError."""
    if flags.secure_port is None:
        given = next((name for name in _NEED_PORT if getattr(flags, name) is not None), None)
        if given is not None:
            why = "Forbidden without --secure-port, the port of HTTPS for the people of a cluster"
            raise UsageError(f"--{given.replace('_', '-')}: {why}")
        return None
    from haru.dashboard.team_server import TeamOptions
    from haru.secure_serving.options import ServingOptions

    check_certificate_files(flags, "requestheader_client_ca_file")
    hosts = _listed(",".join(flags.host or ()))
    serving = ServingOptions(
        address=flags.bind_address or "0.0.0.0",
        port=flags.secure_port,
        cert_file=flags.tls_cert_file,
        key_file=flags.tls_private_key_file,
        cert_dir=flags.cert_dir,
        names=hosts,
        client_ca_file=flags.requestheader_client_ca_file,
    )
    session = flags.session_duration or _SESSION_SECONDS
    return TeamOptions(serving, hosts, session, _front_proxy(flags), history, prices)


def _front_proxy(flags: argparse.Namespace) -> FrontProxy | None:
    given = {name: getattr(flags, f"requestheader_{name}") for name in _REQUEST_HEADER}
    if flags.requestheader_client_ca_file is None:
        flag = next((name.replace("_", "-") for name, text in given.items() if text is not None), "")
        if flag:
            why = "Forbidden without --requestheader-client-ca-file, by which an authenticating proxy is known"
            raise UsageError(f"--requestheader-{flag}: {why}")
        return None
    from haru.secure_serving.request_header import FrontProxy

    names = {name: _listed(_REQUEST_HEADER[name][2] if text is None else text) for name, text in given.items()}
    headers = {name: tuple(each.lower() for each in listed) for name, listed in names.items()}
    if not headers["username_headers"]:
        raise UsageError('--requestheader-username-headers: Invalid value: "": name the header with the user')
    return FrontProxy(
        flags.requestheader_client_ca_file.read_text(),
        names["allowed_names"],
        headers["username_headers"],
        headers["uid_headers"],
        headers["group_headers"],
        headers["extra_headers_prefix"],
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _session(text: str) -> float:
    return nanoseconds(text, 10**9, "write a duration of a second or more, such as 12h") / 1e9
