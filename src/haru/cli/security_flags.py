"""Define the security flags of `haru up` and `haru apiserver`, named as kube-apiserver's."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haru.cli.audit_flags import add_audit_arguments, audit_of
from haru.cli.token_flags import truth

if TYPE_CHECKING:
    from haru.embedded.security import SecurityOptions


def add_security_arguments(parser: argparse.ArgumentParser) -> None:
    """Encryption at rest, admission plugins, the audit log and the audit webhook."""
    group = parser.add_argument_group("security")
    group.add_argument(
        "--encryption-provider-config",
        type=Path,
        metavar="FILE",
        help="EncryptionConfiguration: which resources are encrypted at rest, and with which keys",
    )
    group.add_argument(
        "--encryption-provider-config-automatic-reload",
        type=truth,
        nargs="?",
        const=True,
        metavar="BOOL",
        help="reload that file when it changes (default false)",
    )
    group.add_argument(
        "--admission-control-config-file",
        type=Path,
        metavar="FILE",
        help="AdmissionConfiguration: defaults and exemptions of PodSecurity, resources that need a quota",
    )
    add_audit_arguments(group)


def security_of(flags: argparse.Namespace, options: SecurityOptions) -> SecurityOptions:
    """The options with what the flags say."""
    from dataclasses import replace

    given: dict[str, Any] = {
        "encryption_config": flags.encryption_provider_config and flags.encryption_provider_config.expanduser(),
        "encryption_reload": flags.encryption_provider_config_automatic_reload,
        "admission_config": flags.admission_control_config_file and flags.admission_control_config_file.expanduser(),
        **audit_of(flags, options),
    }
    return replace(options, **{name: value for name, value in given.items() if value is not None})
