"""certificatesigningrequest-cleaner-controller: deletes signing requests that nobody needs any more.

Answered ones go after an hour, those that nobody answers or signs after a day, and those whose certificate has expired.
Source: Kubernetes `certificatesigningrequest-cleaner-controller`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import ClassVar

from cryptography import x509

from haru.controllers.base import Context, Controller
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj
from haru.kube.names import parse_time

SIGNING_REQUESTS = known_kind("certificates.k8s.io/v1", "CertificateSigningRequest")
_ANSWERED = timedelta(hours=1)
_UNANSWERED = timedelta(hours=24)


def due_times(request: Obj) -> Iterator[datetime]:
    """When a request may go, for each reason that it has."""
    status = request.get("status") or {}
    conditions, certificate = status.get("conditions") or (), status.get("certificate")
    if not conditions:
        yield parse_time(request["metadata"]["creationTimestamp"]) + _UNANSWERED
    for condition in conditions:
        if not condition.get("lastUpdateTime"):
            continue
        told = parse_time(condition["lastUpdateTime"])
        if condition["type"] == "Approved":
            yield told + (_ANSWERED if certificate else _UNANSWERED)
            if certificate and (expires := _expiry(certificate)) is not None:
                yield expires
        elif condition["type"] in ("Denied", "Failed"):
            yield told + _ANSWERED


def _expiry(certificate: str) -> datetime | None:
    try:
        return x509.load_pem_x509_certificate(base64.b64decode(certificate)).not_valid_after_utc
    except ValueError:
        return None


class SigningRequestCleanerController(Controller):
    """Deletes old CertificateSigningRequests."""

    name: ClassVar[str] = "certificatesigningrequest-cleaner-controller"
    needs: ClassVar[tuple[Kind, ...]] = (SIGNING_REQUESTS,)
    workers: ClassVar[int] = 1

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.requests = self.informer(SIGNING_REQUESTS)
        self.requests.add_handler(self.enqueue, lambda _, new: self.enqueue(new))

    async def sync(self, key: str) -> float | None:
        """Delete one request if its time is over."""
        request = self.requests.get(key)
        due = min(due_times(request), default=None) if request is not None else None
        if request is None or due is None:
            return None
        left = (due - self.now()).total_seconds()
        if left > 0:
            return left
        await self.delete(self.requests, request)
        return None
