"""The flags of an API server among others, with kube-apiserver's names."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from haru.cli.component import port_number

if TYPE_CHECKING:
    from haru.embedded.peering import PeerFiles


def add_peer_arguments(parser: argparse.ArgumentParser) -> None:
    """Peers of other versions, and who may speak for users."""
    peers = parser.add_argument_group("peers")
    peers.add_argument(
        "--peer-ca-file",
        type=Path,
        metavar="FILE",
        help="the authority of the peers' serving certificates; without it nothing is forwarded to them",
    )
    peers.add_argument("--peer-advertise-ip", default="", metavar="IP", help="where peers reach this replica")
    peers.add_argument("--peer-advertise-port", type=port_number, default=0, metavar="PORT", help="at which port")
    peers.add_argument(
        "--proxy-client-cert-file",
        type=Path,
        metavar="FILE",
        help="the certificate to show to peers and to extension API servers",
    )
    peers.add_argument("--proxy-client-key-file", type=Path, metavar="FILE", help="its key")
    peers.add_argument(
        "--hostname-override",
        default="",
        metavar="NAME",
        help="the host's name among the peers, which has to differ for each (default: the machine's)",
    )
    front = parser.add_argument_group("front proxies, which speak for users")
    front.add_argument(
        "--requestheader-client-ca-file",
        type=Path,
        metavar="FILE",
        help="the authority of their certificates; not that of --client-ca-file",
    )
    for flag, default, text in (
        ("allowed-names", "", "the common names that are taken (default: any)"),
        ("username-headers", "X-Remote-User", "say who the user is"),
        ("uid-headers", "X-Remote-Uid", "say the user's UID"),
        ("group-headers", "X-Remote-Group", "say a group each"),
        ("extra-headers-prefix", "X-Remote-Extra-", "begin headers that say more of the user"),
    ):
        shown = f"{text} (default {default})" if default else text
        front.add_argument(f"--requestheader-{flag}", default=default, metavar="NAME,…", help=shown)


def peer_files_of(flags: argparse.Namespace) -> PeerFiles:
    """What the flags say."""
    from haru.embedded.peering import PeerFiles

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
