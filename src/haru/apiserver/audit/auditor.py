"""From requests to audit events: one trail for each request that the policy wants to be told of.

Events carry the id that the client finds in the header Audit-Id. A request is told of when it comes in
(RequestReceived), when a stream begins (ResponseStarted) and at its end (ResponseComplete, or Panic after an error of
the server's own); one that nobody could be found to have made, at ResponseStarted alone.
Source: Event of audit.k8s.io/v1 and kube-apiserver's audit filter, as behaviour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from haru.apiserver.audit.attributes import About, about
from haru.apiserver.audit.log import AuditFile, AuditLog, Entry
from haru.apiserver.audit.policy import LEVELS, NONE, REQUEST_RESPONSE, Policy, Telling
from haru.apiserver.bodies import media_type, parse_body
from haru.apiserver.config import UserInfo, user_object
from haru.apiserver.http import JSON, Request, Response
from haru.kube.names import format_micro_time

Obj = dict[str, Any]

_PATCH_SUFFIX = "patch+json"
_STATUS_FIELDS = ("status", "message", "reason", "details", "code")


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """What is told, and where. `megabytes` of one file, how many `backups` are kept, for how many `days` (0: all)."""

    policy: Policy
    path: str
    megabytes: int = 100
    backups: int = 0
    days: int = 0


class Trail:
    """One request that is told of."""

    __slots__ = ("_auditor", "_event", "_telling", "panicked")

    def __init__(self, auditor: Auditor, telling: Telling, event: Obj) -> None:
        self._auditor = auditor
        self._telling = telling
        self._event = event
        self.panicked = False
        """The server itself failed."""

    def impersonated(self, user: UserInfo) -> None:
        """The caller speaks for another."""
        self._event["impersonatedUser"] = user_object(user)

    def received(self) -> None:
        """The request has come in."""
        self._tell("RequestReceived", {})

    def refused(self, request: Request, response: Response) -> None:
        """Nobody is known to have sent it."""
        attempted = "attempted: bearer" if b"authorization" in request.headers else "no credentials"
        message = f"Authentication failed, {attempted}"
        status = {"metadata": {}, "message": message, "code": response.status}
        self._tell("ResponseStarted", {"responseStatus": status})

    def started(self, request: Request, response: Response) -> None:
        """A stream begins."""
        self._finish("ResponseStarted", request, response)

    def complete(self, request: Request, response: Response) -> None:
        """The answer has been given."""
        self._finish("Panic" if self.panicked else "ResponseComplete", request, response)

    def _finish(self, stage: str, request: Request, response: Response) -> None:
        more: Obj = {"responseStatus": _status(response)}
        if request.annotations:
            more["annotations"] = dict(request.annotations)
        self._tell(stage, more, request, response)

    def _tell(self, stage: str, more: Obj, request: Request | None = None, response: Response | None = None) -> None:
        telling = self._telling
        if stage in telling.omitted_stages:
            return
        event = {**self._event, "stage": stage, "stageTimestamp": self._auditor.now(), **more}
        entry = Entry(event, telling.level, telling.omits_managed_fields)
        if request is not None and request.read and "objectRef" in event:
            content_type = media_type(request)
            entry.request_body = request.read
            entry.parse = lambda body: _parsed(body, content_type)
        if response is not None and telling.level >= REQUEST_RESPONSE and response.content_type.startswith(JSON):
            entry.response_body = response.whole() if "objectRef" in event else b""
        self._auditor.log.put(entry)


class Auditor:
    """Tells of requests, by a policy."""

    def __init__(self, options: AuditOptions, clock: Callable[[], datetime]) -> None:
        self._policy = options.policy
        self._clock = clock
        self.log = AuditLog(AuditFile(options.path, options.megabytes, options.backups, options.days, clock))
        self._levels: Counter[int] = Counter()

    def now(self) -> str:
        """The time as events carry it."""
        return format_micro_time(self._clock())

    def begin(self, request: Request, user: UserInfo) -> Trail | None:
        """The trail of a request; None if the policy does not want to hear of it."""
        asked = about(request)
        telling = self._policy.of(user, asked)
        self._levels[telling.level] += 1
        if telling.level == NONE:
            return None
        event: Obj = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": LEVELS[telling.level],
            "auditID": request.audit_id,
            "requestURI": _uri(request),
            "verb": asked.verb,
            "user": user_object(user) if user.name else {},
        }
        addresses = _addresses(request)
        if addresses:
            event["sourceIPs"] = addresses
        if agent := request.header(b"user-agent"):
            event["userAgent"] = agent
        if asked.is_resource:
            event["objectRef"] = _reference(asked)
        event["requestReceivedTimestamp"] = self.now()
        return Trail(self, telling, event)

    def metrics(self) -> list[str]:
        """The counters, as Kubernetes names them."""
        lines = [
            "# HELP apiserver_audit_event_total Audit events that were taken.",
            "# TYPE apiserver_audit_event_total counter",
            f"apiserver_audit_event_total {self.log.taken}",
            "# HELP apiserver_audit_error_total Audit events that are missing from the log.",
            "# TYPE apiserver_audit_error_total counter",
            f'apiserver_audit_error_total{{plugin="log"}} {self.log.lost}',
            "# HELP apiserver_audit_level_total Requests by the level at which they are told of.",
            "# TYPE apiserver_audit_level_total counter",
        ]
        return lines + [
            f'apiserver_audit_level_total{{level="{LEVELS[level]}"}} {count}'
            for level, count in sorted(self._levels.items())
        ]


def _parsed(body: bytes, content_type: str) -> Any:
    """The object of a request; a patch as it was sent."""
    if content_type.endswith(_PATCH_SUFFIX):
        return orjson.loads(body)
    if content_type.endswith("patch+yaml"):
        content_type = "application/yaml"
    return parse_body(body, content_type)


def _reference(asked: About) -> Obj:
    named = {
        "resource": asked.resource,
        "namespace": asked.namespace,
        "name": asked.name,
        "apiGroup": asked.group,
        "apiVersion": asked.version,
        "subresource": asked.subresource,
    }
    return {name: value for name, value in named.items() if value}


def _status(response: Response) -> Obj:
    """What came of it; of a Status that was the answer, what is bounded in it."""
    status: Obj = {"metadata": {}, "code": response.status}
    if response.stream is None and response.content_type == JSON and b'"kind":"Status"' in response.body[:256]:
        body = orjson.loads(response.body)
        status.update({name: body[name] for name in _STATUS_FIELDS if body.get(name)})
    return status


def _uri(request: Request) -> str:
    query = (request.scope.get("query_string") or b"").decode("latin-1")
    return f"{request.path}?{query}" if query else request.path


def _addresses(request: Request) -> list[str]:
    """Where it came from: what proxies say, then who is connected."""
    said = [part.strip() for part in request.header(b"x-forwarded-for").split(",")]
    client = request.scope.get("client")
    found = [*said, request.header(b"x-real-ip").strip(), client[0] if client else ""]
    return list(dict.fromkeys(address for address in found if address))
