"""Define the audit flags of `haru up` and `haru apiserver`, named as kube-apiserver's."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haru.cli.duration_flags import duration
from haru.cli.number_flags import count, decimal, number
from haru.cli.token_flags import truth

if TYPE_CHECKING:
    from haru.embedded.security import SecurityOptions


def add_audit_arguments(group: Any) -> None:
    """The flags of the audit log and the audit webhook."""
    group.add_argument(
        "--audit-policy-file",
        type=Path,
        metavar="FILE",
        help="audit Policy: which requests are logged, and at which level",
    )
    group.add_argument("--audit-log-path", metavar="FILE", help="audit log file; - is stdout")
    group.add_argument(
        "--audit-log-maxsize",
        type=count,
        metavar="MB",
        help="maximum size of the log file before it is rotated (default 100)",
    )
    group.add_argument(
        "--audit-log-maxbackup", type=number, metavar="N", help="number of rotated files to keep (default 0: all)"
    )
    group.add_argument(
        "--audit-log-maxage", type=number, metavar="DAYS", help="days to keep rotated files (default 0: forever)"
    )
    _add(group, "log", _OF_BOTH)
    group.add_argument(
        "--audit-webhook-config-file",
        type=Path,
        metavar="FILE",
        help="kubeconfig of the audit webhook; works with or without the log",
    )
    _add(group, "webhook", _OF_BOTH)
    _add(group, "webhook", _OF_WEBHOOKS)


def _add(group: Any, place: str, rows: Sequence[_Row]) -> None:
    for flag, kind, metavar, text in rows:
        bare: dict[str, Any] = {"nargs": "?", "const": True} if kind is truth else {}
        group.add_argument(f"--audit-{place}-{flag}", type=kind, metavar=metavar, help=text, **bare)


def audit_of(flags: argparse.Namespace, options: SecurityOptions) -> dict[str, Any]:
    """What the flags say, as members of SecurityOptions."""
    from dataclasses import replace

    webhook = flags.audit_webhook_config_file
    return {
        "audit_policy": flags.audit_policy_file and flags.audit_policy_file.expanduser(),
        "audit_log": flags.audit_log_path,
        "audit_megabytes": flags.audit_log_maxsize,
        "audit_backups": flags.audit_log_maxbackup,
        "audit_days": flags.audit_log_maxage,
        "audit_log_delivery": replace(options.audit_log_delivery, **_given(flags, "log")),
        "audit_webhook": webhook and webhook.expanduser(),
        "audit_webhook_delivery": replace(options.audit_webhook_delivery, **_given(flags, "webhook")),
    }


def _given(flags: argparse.Namespace, place: str) -> dict[str, Any]:
    found = {member: getattr(flags, f"audit_{place}_{flag}", None) for flag, member in _MEMBERS.items()}
    return {member: value for member, value in found.items() if value is not None}


def _rate(text: str) -> float:
    return decimal(text, "write a number, for example 10 or 0.5")


def _version(text: str) -> str:
    if text != "audit.k8s.io/v1":
        raise argparse.ArgumentTypeError(f'Invalid value: "{text}": the only version is audit.k8s.io/v1')
    return text


_Row = tuple[str, Callable[[str], Any], str, str]
_OF_BOTH: tuple[_Row, ...] = (
    (
        "mode",
        str,
        "MODE",
        "batch: requests do not wait (default); blocking: requests wait until their events are delivered; "
        "blocking-strict: also fail a request whose event cannot be delivered",
    ),
    ("batch-buffer-size", number, "N", "maximum of queued events in the mode batch (default 10000)"),
    ("truncate-enabled", truth, "BOOL", "limit the size of events and batches (default false)"),
    (
        "truncate-max-event-size",
        number,
        "BYTES",
        "a larger event loses its bodies, or is dropped if it is still too large (default 102400)",
    ),
    ("version", _version, "VERSION", "the form of events: audit.k8s.io/v1"),
)
_OF_WEBHOOKS: tuple[_Row, ...] = (
    ("truncate-max-batch-size", number, "BYTES", "a larger batch is split (default 10485760)"),
    ("batch-max-size", number, "N", "maximum of events per batch (default 400)"),
    ("batch-max-wait", duration, "DURATION", "maximum wait until a partial batch is sent (default 30s)"),
    ("batch-throttle-enable", truth, "BOOL", "limit the rate of batches (default true)"),
    ("batch-throttle-qps", _rate, "N", "average batches per second (default 10)"),
    ("batch-throttle-burst", number, "N", "burst of batches (default 15)"),
    ("initial-backoff", duration, "DURATION", "delay before the second of five attempts (default 10s)"),
)
_MEMBERS = {
    "mode": "mode",
    "batch_buffer_size": "buffer",
    "batch_max_size": "batch_events",
    "batch_max_wait": "batch_seconds",
    "batch_throttle_enable": "throttles",
    "batch_throttle_qps": "batches_per_second",
    "batch_throttle_burst": "burst",
    "truncate_enabled": "truncates",
    "truncate_max_batch_size": "batch_bytes",
    "truncate_max_event_size": "event_bytes",
    "initial_backoff": "backoff",
}
