"""Define the flags for peer API servers and front proxies, named as kube-apiserver's."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from haru.cli.serving_flags import port_number

if TYPE_CHECKING:
    from haru.embedded.peers import PeerFiles


def add_peer_arguments(parser: argparse.ArgumentParser) -> None:
    """Peers of other versions, and who may speak for users."""
    peers = parser.add_argument_group("peers")
    peers.add_argument(
        "--peer-ca-file",
        type=Path,
        metavar="FILE",
        help="CA of the peers' serving certificates; without it no request is forwarded to peers",
    )
    peers.add_argument("--peer-advertise-ip", default="", metavar="IP", help="IP at which peers reach this replica")
    peers.add_argument(
        "--peer-advertise-port",
        type=port_number,
        default=0,
        metavar="PORT",
        help="port at which peers reach this replica",
    )
    peers.add_argument(
        "--proxy-client-cert-file",
        type=Path,
        metavar="FILE",
        help="client certificate for peers and extension API servers",
    )
    peers.add_argument("--proxy-client-key-file", type=Path, metavar="FILE", help="private key of that certificate")
    peers.add_argument(
        "--hostname-override",
        default="",
        metavar="NAME",
        help="host name of this server, unique among its peers (default: the machine's)",
    )
    front = parser.add_argument_group("front proxies")
    front.add_argument(
        "--requestheader-client-ca-file",
        type=Path,
        metavar="FILE",
        help="CA of front proxies' certificates; must differ from --client-ca-file",
    )
    for flag, default, text in (
        ("allowed-names", "", "accepted common names (default: any)"),
        ("username-headers", "X-Remote-User", "headers with the user name"),
        ("uid-headers", "X-Remote-Uid", "headers with the UID"),
        ("group-headers", "X-Remote-Group", "headers with one group each"),
        ("extra-headers-prefix", "X-Remote-Extra-", "prefix of headers with extra fields of the user"),
    ):
        shown = f"{text} (default {default})" if default else text
        front.add_argument(f"--requestheader-{flag}", default=default, metavar="NAME,…", help=shown)


def peer_files_of(flags: argparse.Namespace) -> PeerFiles:
    """What the flags say."""
    from haru.embedded.peers import PeerFiles

    return PeerFiles(
        flags.hostname_override,
        flags.peer_ca_file,
        flags.peer_advertise_ip,
        flags.peer_advertise_port,
        flags.proxy_client_cert_file,
        flags.proxy_client_key_file,
        flags.requestheader_client_ca_file,
        _names(flags.requestheader_allowed_names),
        _names(flags.requestheader_username_headers),
        _names(flags.requestheader_uid_headers),
        _names(flags.requestheader_group_headers),
        _names(flags.requestheader_extra_headers_prefix),
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip()))
