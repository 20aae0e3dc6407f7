"""From requests to audit events: one trail for each request that the policy wants to be told of.

Events carry the id that the client finds in the header Audit-Id. A request is told of when it comes in
(RequestReceived), when a stream begins (ResponseStarted) and at its end (ResponseComplete, or Panic after an error of
the server's own); one that nobody could be found to have made, at ResponseStarted alone.
Source: Event of audit.k8s.io/v1 and kube-apiserver's audit filter, as behaviour.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

import orjson

from haru.apiserver.audit.attributes import AuditAttributes, audit_attributes
from haru.apiserver.audit.entries import Entry
from haru.apiserver.audit.log import PLUGIN as LOG
from haru.apiserver.audit.log import TRUNCATE, AuditFile, AuditLog
from haru.apiserver.audit.policy import LEVELS, NONE, REQUEST_RESPONSE, AuditDecision
from haru.apiserver.audit.webhook import AuditWebhook
from haru.apiserver.audit_options import STRICT, AuditOptions
from haru.apiserver.auth.user import UserInfo, user_object
from haru.apiserver.request.bodies import media_type, parse_body
from haru.apiserver.request.http import JSON, Request, Response
from haru.kube.meta import Obj
from haru.kube.names import format_micro_time

_PATCH_SUFFIX = "patch+json"
_STATUS_FIELDS = ("status", "message", "reason", "details", "code")


class Trail:
    """One request that is told of."""

    __slots__ = ("_auditor", "_event", "_telling", "panicked")

    def __init__(self, auditor: Auditor, telling: AuditDecision, event: Obj) -> None:
        self._auditor = auditor
        self._telling = telling
        self._event = event
        self.panicked = False
        """The server itself failed."""

    def impersonated(self, user: UserInfo, constraint: str) -> None:
        """The caller speaks for another; `constraint`: the verb that allows it for some requests alone."""
        self._event["impersonatedUser"] = user_object(user)
        if constraint:
            self._event["authenticationMetadata"] = {"impersonationConstraint": constraint}

    async def received(self) -> bool:
        """The request has come in. False where it can not be told of, and has to be refused for that."""
        return await self._tell("RequestReceived", {})

    async def refused(self, request: Request, response: Response) -> None:
        """Nobody is known to have sent it."""
        attempted = "attempted: bearer" if b"authorization" in request.headers else "no credentials"
        message = f"Authentication failed, {attempted}"
        status = {"metadata": {}, "message": message, "code": response.status}
        await self._tell("ResponseStarted", {"responseStatus": status})

    async def started(self, request: Request, response: Response) -> None:
        """A stream begins."""
        await self._finish("ResponseStarted", request, response)

    async def complete(self, request: Request, response: Response) -> None:
        """The answer has been given."""
        await self._finish("Panic" if self.panicked else "ResponseComplete", request, response)

    async def _finish(self, stage: str, request: Request, response: Response) -> None:
        more: Obj = {"responseStatus": _status(response)}
        if request.annotations:
            more["annotations"] = dict(request.annotations)
        await self._tell(stage, more, request, response)

    async def _tell(
        self, stage: str, more: Obj, request: Request | None = None, response: Response | None = None
    ) -> bool:
        telling = self._telling
        if stage in telling.omitted_stages:
            return True
        event = {**self._event, "stage": stage, "stageTimestamp": self._auditor.now(), **more}
        return await self._auditor.tell(_entry(event, telling, request, response))


def _entry(event: Obj, telling: AuditDecision, request: Request | None, response: Response | None) -> Entry:
    """The event with the bodies that are to be put into it."""
    sent, came_back = b"", b""
    content_type = ""
    if request is not None and request.read and "objectRef" in event:
        sent, content_type = request.read, media_type(request)
    if response is not None and telling.level >= REQUEST_RESPONSE and response.content_type.startswith(JSON):
        came_back = response.whole() if "objectRef" in event else b""
    bare = telling.omits_managed_fields
    return Entry(event, telling.level, bare, sent, lambda body: _parsed(body, content_type), came_back)


class Auditor:
    """Tells of requests, by a policy, to a file, a webhook or both."""

    def __init__(self, options: AuditOptions, clock: Callable[[], datetime]) -> None:
        self._options, self._policy = options, options.policy
        self._clock = clock
        self._log: AuditLog | None = None
        self._webhook: AuditWebhook | None = None
        if options.path:
            file = AuditFile(options.path, options.megabytes, options.backups, options.days, clock)
            self._log = AuditLog(file, options.log)
        if options.webhook is not None:
            from haru.apiserver.audit.webhook import AuditWebhook

            self._webhook = AuditWebhook(options.webhook, options.webhook_delivery)
        self._levels: Counter[int] = Counter()
        self._told = 0
        self._rejected = 0

    async def start(self) -> None:
        """Open the file and begin. OSError when it can not be written."""
        if self._log is not None:
            self._log.start()
        if self._webhook is not None:
            await self._webhook.start()

    async def stop(self) -> None:
        """Tell what waits to be told, and end."""
        if self._log is not None:
            await asyncio.to_thread(self._log.stop)
        if self._webhook is not None:
            await self._webhook.stop()

    async def tell(self, entry: Entry) -> bool:
        """Hand an event to all places. False where one of them that must have it could not take it."""
        self._told += 1
        waiting = []
        if self._log is not None and (written := self._log.put(entry)) is not None:
            waiting.append((written, self._options.log.mode))
        if self._webhook is not None and (posted := self._webhook.put(entry)) is not None:
            waiting.append((posted, self._options.webhook_delivery.mode))
        taken = True
        for done, mode in waiting:
            # Shielded: a client that goes away takes no event with it.
            taken = (await asyncio.shield(done) or mode != STRICT) and taken
        return taken

    def rejected(self) -> None:
        """A request was refused because it could not be told of."""
        self._rejected += 1

    def now(self) -> str:
        """The time as events carry it."""
        return format_micro_time(self._clock())

    def begin(self, request: Request, user: UserInfo) -> Trail | None:
        """The trail of a request; None if the policy does not want to hear of it."""
        asked = audit_attributes(request)
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
            "# HELP apiserver_audit_event_total Audit events that were made and handed on.",
            "# TYPE apiserver_audit_event_total counter",
            f"apiserver_audit_event_total {self._told}",
            "# HELP apiserver_audit_error_total Audit events that did not get to where they are told.",
            "# TYPE apiserver_audit_error_total counter",
            *(f'apiserver_audit_error_total{{plugin="{plugin}"}} {count}' for plugin, count in self._errors()),
            "# HELP apiserver_audit_requests_rejected_total Requests that were refused as they could not be told of.",
            "# TYPE apiserver_audit_requests_rejected_total counter",
            f"apiserver_audit_requests_rejected_total {self._rejected}",
            "# HELP apiserver_audit_level_total Requests by the level at which they are told of.",
            "# TYPE apiserver_audit_level_total counter",
        ]
        return lines + [
            f'apiserver_audit_level_total{{level="{LEVELS[level]}"}} {count}'
            for level, count in sorted(self._levels.items())
        ]

    def _errors(self) -> list[tuple[str, int]]:
        counts: Counter[str] = Counter()
        plugins = set()
        if self._log is not None:
            counts += self._log.losses.counts
            plugins |= {LOG, *([TRUNCATE] if self._options.log.truncates else [])}
        if self._webhook is not None:
            from haru.apiserver.audit.webhook import BUFFERED, PLUGIN

            counts += self._webhook.losses.counts
            plugins |= {PLUGIN, BUFFERED, *([TRUNCATE] if self._options.webhook_delivery.truncates else [])}
        return [(plugin, counts[plugin]) for plugin in sorted(plugins)]


def _parsed(body: bytes, content_type: str) -> Any:
    """The object of a request; a patch as it was sent."""
    if content_type.endswith(_PATCH_SUFFIX):
        return orjson.loads(body)
    if content_type.endswith("patch+yaml"):
        content_type = "application/yaml"
    return parse_body(body, content_type)


def _reference(asked: AuditAttributes) -> Obj:
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
    """The `responseStatus` of an event: the code, and the bounded fields of a Status in the answer."""
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
