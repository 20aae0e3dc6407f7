"""Asking the API server: whose a token is, and what a user may do. Retried while it may only be busy; it fails closed.

Source: `authentication.k8s.io/v1` TokenReview, `authorization.k8s.io/v1` SubjectAccessReview; five attempts, the waits
between them from 0.5 s on, as delegated authentication and authorization have them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Protocol

from haru.client.api import ApiClient
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj

TOKENS = known_kind("authentication.k8s.io/v1", "TokenReview")
ACCESS = known_kind("authorization.k8s.io/v1", "SubjectAccessReview")
ATTEMPTS = 5
FIRST_WAIT_SECONDS = 0.5
ATTEMPT_SECONDS = 10.0
_BUSY = frozenset({429, 500, 502, 503, 504})


class ReviewFailed(Exception):
    """A review failed; the request is not allowed."""


class Reviewer(Protocol):
    """Makes reviews."""

    async def review(self, kind: Kind, spec: Obj) -> Obj:
        """The status of a review of `spec`. Raises `ReviewFailed`."""


class ApiReviewer:
    """Makes reviews by an API server. `observe` gets authn or authz and the code of each attempt."""

    def __init__(
        self,
        client: ApiClient,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        attempt_seconds: float = ATTEMPT_SECONDS,
        observe: Callable[[str, str], None] = lambda kind, code: None,
    ) -> None:
        self._observe = observe
        self._client = client
        self._sleep = sleep
        self._attempt_seconds = attempt_seconds

    async def review(self, kind: Kind, spec: Obj) -> Obj:
        """The status of a review of `spec`. Raises `ReviewFailed`."""
        wait, why = FIRST_WAIT_SECONDS, ""
        told = "authn" if kind is TOKENS else "authz"
        for attempt in range(ATTEMPTS):
            if attempt:
                await self._sleep(wait * Random().uniform(1.0, 1.2))
                wait *= 1.5
            try:
                async with asyncio.timeout(self._attempt_seconds):
                    body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}
                    status = (await self._client.create(kind, body)).get("status")
            except StatusError as error:
                self._observe(told, str(error.code))
                why = str(error)
                if error.code not in _BUSY:
                    break
                continue
            except OSError as error:
                self._observe(told, "<error>")
                why = str(error) or f"no answer within {self._attempt_seconds:g} s"
                continue
            self._observe(told, "201")
            if not isinstance(status, dict):
                why = "the answer has no status"
                break
            return status
        raise ReviewFailed(f"{kind.kind}: {why}")
