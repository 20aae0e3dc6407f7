"""The options of the audit log: policy, backends, and how events are delivered.

Source: kube-apiserver's flags `--audit-log-*` and `--audit-webhook-*`, with their defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import ssl

    from haru.apiserver.audit.policy import Policy

BATCH, BLOCKING, STRICT = "batch", "blocking", "blocking-strict"
MODES = (BATCH, BLOCKING, STRICT)


class TokenSource(Protocol):
    """Where the token comes from that a webhook is shown."""

    number: int
    """How many tokens there have been, the present one included."""

    async def value(self) -> str:
        """The token to send now; an empty text sends none. Raises OSError."""

    def refused(self, number: int) -> bool:
        """The webhook did not take the token of this number: forget it."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """How events get to one place.

    In the mode `batch` nobody waits for them, and what finds no room is left out; in `blocking` a request waits until
    its event has been delivered, or could not be; in `blocking-strict` one that can not be told of when it comes in is
    refused. `buffer` and `batch_events` count events, `batch_seconds` is how long a batch waits to be filled;
    `batches_per_second` and `burst` bound the rate of batches, which nothing does while `throttles` is false. With
    `truncates`, events above `event_bytes` lose their bodies, and batches are kept below `batch_bytes`.
    """

    mode: str = BATCH
    buffer: int = 10_000
    batch_events: int = 400
    batch_seconds: float = 30.0
    throttles: bool = True
    batches_per_second: float = 10.0
    burst: int = 15
    truncates: bool = False
    batch_bytes: int = 10 * 1024 * 1024
    event_bytes: int = 100 * 1024
    backoff: float = 10.0
    """Seconds before a delivery that failed is tried again for the first time."""

    @property
    def waits(self) -> bool:
        """Whether requests wait for the delivery."""
        return self.mode != BATCH

    @property
    def most_bytes(self) -> int:
        """How large an event may be; 0: there is no bound."""
        return self.event_bytes if self.truncates else 0

    def problem(self) -> tuple[str, str]:
        """The suffix of the wrong flag, after `--audit-PLACE-`, and why it is wrong; two empty texts if none is."""
        positive = "must be a positive number"
        if self.mode not in MODES:
            return "mode", f'"{self.mode}": allowed modes are {", ".join(MODES)}'
        if self.mode == BATCH:
            for name, value in (("batch-buffer-size", self.buffer), ("batch-max-size", self.batch_events)):
                if value <= 0:
                    return name, f"{value}: {positive}"
            if self.throttles and self.batches_per_second <= 0:
                return "batch-throttle-qps", f"{self.batches_per_second:g}: {positive}"
            if self.throttles and self.burst <= 0:
                return "batch-throttle-burst", f"{self.burst}: {positive}"
        if self.event_bytes <= 0:
            return "truncate-max-event-size", f"{self.event_bytes}: {positive}"
        if self.batch_bytes < self.event_bytes:
            why = f"must be at least the largest event ({self.event_bytes})"
            return "truncate-max-batch-size", f"{self.batch_bytes}: {why}"
        return "", ""


@dataclass(slots=True)
class WebhookTarget:
    """Where events are posted: what a kubeconfig says of a server and of the user to be there."""

    url: str
    tls: ssl.SSLContext | None = None
    """Another one as soon as there is another client certificate to present."""
    server_name: str = ""
    """The name that the certificate is for; empty: the URL's."""
    proxy: str | None = None
    """The URL of the proxy that leads there."""
    token: TokenSource | None = None


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The audit policy and its backends; without a `path` there is no log file.

    `megabytes` of one file, how many `backups` are kept, for how many `days` (0: all).
    """

    policy: Policy
    path: str = ""
    megabytes: int = 100
    backups: int = 0
    days: int = 0
    log: Delivery = field(default_factory=Delivery)
    webhook: WebhookTarget | None = None
    webhook_delivery: Delivery = field(default_factory=Delivery)
