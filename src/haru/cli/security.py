"""The flags of an API server's security, with kube-apiserver's names; for `haru up` and `haru apiserver`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from haru.embedded.security import SecurityOptions


def add_security_arguments(parser: argparse.ArgumentParser) -> None:
    """Encryption at rest, admission plugins, and the audit log."""
    group = parser.add_argument_group("security")
    group.add_argument(
        "--encryption-provider-config",
        type=Path,
        metavar="FILE",
        help="an EncryptionConfiguration: which resources are encrypted at rest, and with which keys",
    )
    group.add_argument(
        "--admission-control-config-file",
        type=Path,
        metavar="FILE",
        help="an AdmissionConfiguration: Pod Security's defaults and exemptions, what needs a quota",
    )
    group.add_argument(
        "--audit-policy-file", type=Path, metavar="FILE", help="an audit Policy: which requests are logged, how fully"
    )
    group.add_argument("--audit-log-path", metavar="FILE", help="where the audit log goes; - is the standard output")
    group.add_argument(
        "--audit-log-maxsize", type=_count, metavar="MB", help="begin a new file at this size (default 100)"
    )
    group.add_argument(
        "--audit-log-maxbackup", type=_number, metavar="N", help="how many older files are kept (default 0: all)"
    )
    group.add_argument(
        "--audit-log-maxage", type=_number, metavar="DAYS", help="how long older files are kept (default 0: for ever)"
    )


def security_of(flags: argparse.Namespace, options: SecurityOptions) -> SecurityOptions:
    """The options with what the flags say."""
    from dataclasses import replace

    given: dict[str, Any] = {
        "encryption_config": flags.encryption_provider_config and flags.encryption_provider_config.expanduser(),
        "admission_config": flags.admission_control_config_file and flags.admission_control_config_file.expanduser(),
        "audit_policy": flags.audit_policy_file and flags.audit_policy_file.expanduser(),
        "audit_log": flags.audit_log_path,
        "audit_megabytes": flags.audit_log_maxsize,
        "audit_backups": flags.audit_log_maxbackup,
        "audit_days": flags.audit_log_maxage,
    }
    return replace(options, **{name: value for name, value in given.items() if value is not None})


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f'Invalid value: "{text}": write a number, 0 or more')
    return int(text)


def _count(text: str) -> int:
    if not _number(text):
        raise argparse.ArgumentTypeError(f'Invalid value: "{text}": write a number, at least 1')
    return int(text)
