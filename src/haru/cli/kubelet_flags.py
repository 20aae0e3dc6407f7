"""Define the kubelet flags of `haru apiserver`, named as kube-apiserver's."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from haru.cli.duration_flags import period
from haru.cli.main import UsageError

if TYPE_CHECKING:
    from haru.apiserver.proxy import KubeletOptions

_TYPES = ("Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP")


def add_kubelet_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    group = parser.add_argument_group("kubelets")
    group.add_argument(
        "--kubelet-client-certificate", type=Path, metavar="FILE", help="client certificate for kubelets"
    )
    group.add_argument("--kubelet-client-key", type=Path, metavar="FILE", help="private key of that certificate")
    group.add_argument(
        "--kubelet-certificate-authority",
        type=Path,
        metavar="FILE",
        help="CA of the kubelets' serving certificates; without it they are not verified",
    )
    group.add_argument(
        "--kubelet-preferred-address-types",
        default=",".join(_TYPES),
        metavar="TYPE,…",
        help=f"preferred types of node addresses (default {','.join(_TYPES)})",
    )
    group.add_argument(
        "--kubelet-timeout",
        type=period,
        default="5s",
        metavar="DURATION",
        help="timeout of requests to kubelets (default 5s)",
    )


def kubelets_of(flags: argparse.Namespace) -> KubeletOptions:
    """The flags, read. Raises UsageError and OptionError."""
    from haru.apiserver.proxy import KubeletOptions
    from haru.embedded.flag_files import read_authorities, read_file

    if (flags.kubelet_client_certificate is None) != (flags.kubelet_client_key is None):
        raise UsageError("--kubelet-client-certificate and --kubelet-client-key go together: name both, or none")
    types = tuple(filter(None, (part.strip() for part in flags.kubelet_preferred_address_types.split(","))))
    for each in types:
        if each not in _TYPES:
            remedy = f"write some of {', '.join(_TYPES)}"
            raise UsageError(f'--kubelet-preferred-address-types: Invalid value: "{each}": {remedy}')
    return KubeletOptions(
        read_file(flags.kubelet_client_certificate, "--kubelet-client-certificate"),
        read_file(flags.kubelet_client_key, "--kubelet-client-key"),
        read_authorities(flags.kubelet_certificate_authority, "--kubelet-certificate-authority"),
        types or _TYPES,
        flags.kubelet_timeout,
    )
