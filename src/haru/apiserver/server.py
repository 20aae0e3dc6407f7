"""The API server: an ASGI application over a store.

A request is authenticated, its path resolved to a resource, the caller authorized, and the verb's handler run; every
failure becomes a Status object. The application does not care who calls it: an HTTP server with TLS, or a client in
the same process with the same method, path, headers and bytes.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Sequence

import orjson

from haru.apiserver.admission.dynamic.registry import Registry
from haru.apiserver.admission.quota_index import LimitsOfNamespaces
from haru.apiserver.aggregation.server import Aggregator
from haru.apiserver.apiextensions.definitions import Definitions
from haru.apiserver.audit.auditor import Auditor
from haru.apiserver.auth.authentication import Authenticator, is_open
from haru.apiserver.auth.authorization import MASTERS, Authorizer, refusal
from haru.apiserver.auth.node_authorizer import Attributes
from haru.apiserver.auth.user import UserInfo
from haru.apiserver.background import run_background
from haru.apiserver.bootstrap import objects
from haru.apiserver.bootstrap.kubernetes_service import withdraw
from haru.apiserver.config import ServerConfig
from haru.apiserver.core import Core, Obj
from haru.apiserver.encoding.negotiation import check_form
from haru.apiserver.encoding.response_writer import abort, head_of, in_wanted_form, send_whole
from haru.apiserver.encryption.reload import Reloader
from haru.apiserver.observability.endpoints import Endpoints
from haru.apiserver.observability.metrics import Metrics
from haru.apiserver.peers.proxy import PeerGone
from haru.apiserver.peers.routes import Asked, asked_of
from haru.apiserver.peers.server import Peers
from haru.apiserver.proxy.forward import Proxy
from haru.apiserver.proxy.kubelets.connections import asked_rights, connect, connection_of
from haru.apiserver.proxy.targets import asked_right, wanted_of
from haru.apiserver.registry.resources import Target, no_such_path
from haru.apiserver.registry.reviews import VIRTUAL
from haru.apiserver.registry.subresources import SUBRESOURCES
from haru.apiserver.registry.verbs import HANDLERS, Handler
from haru.apiserver.request.call import Call
from haru.apiserver.request.http import JSON, TRUE, ClientGone, Receive, Request, Response, Scope, Send, error_response
from haru.apiserver.request.limits import InFlight, RequestTimeout, is_heartbeat
from haru.kube.errors import StatusError, internal_error, method_not_allowed_error
from haru.kube.lifecycle import deprecation_warning
from haru.kube.selectors import parse_field_selector
from haru.storage import StoreError
from haru.upgrade_proxy import wants_upgrade

__all__ = ["ApiServer", "ServerConfig", "UserInfo"]

_LOG = logging.getLogger("haru.apiserver")

REQUEST_SECONDS = 60.0
WARNING_RUNES = 4096
WARNING_RUNES_EACH = 256
WARNINGS_LIMIT = 50
"""Many HTTP clients, Python's among them, take at most 100 headers."""
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


class ApiServer:
    """One API server over one store; `start` before the first request."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.core = Core(config, objects.ensure_object)
        self.metrics = Metrics(self.core)
        self._authenticator = Authenticator(self.core)
        self._taken_in = -1
        """The revision up to which roles and definitions were taken in."""
        self._definitions = Definitions(self.core)
        self._aggregator = Aggregator(self.core, config.aggregation)
        self._registry = Registry(self.core)
        self.metrics.more.append(self._registry.counts.lines)
        self.metrics.more.append(self.core.pod_security.lines)
        self.metrics.more.append(self.core.account_tokens.metrics.lines)
        if config.kubelets is not None:
            from haru.apiserver.proxy.kubelets.client import Kubelets

            self.core.kubelets = Kubelets(self.core, config.kubelets)
        self.peers: Peers | None = None
        """The other API servers on the same store; None: this server looks for none."""
        if config.peers is not None and config.gates.enabled("APIServerIdentity"):
            self.peers = Peers(self.core, config.peers)
            self.metrics.more.append(self.peers.counts.lines)
        if config.sealing is not None:
            config.sealing.server = self.peers.identity.name if self.peers is not None else ""
            self.metrics.more.append(config.sealing.lines)
        self._reloader: Reloader | None = None
        if config.sealing is not None and config.encryption_file is not None:
            self._reloader = Reloader(config.encryption_file, config.sealing)
            self.metrics.more.append(self._reloader.lines)
        self._proxy = Proxy(self.core)
        self._endpoints = Endpoints(self.core, self.metrics, self._aggregator, self.peers)
        self._in_flight = InFlight(config.max_reads_in_flight, config.max_writes_in_flight)
        self._patience = RequestTimeout(REQUEST_SECONDS)
        self._janitor: asyncio.Task[None] | None = None
        self._auditor = Auditor(config.audit, config.clock) if config.audit is not None else None

    async def start(self) -> None:
        """Write what every cluster starts with, and begin to serve."""
        await self.core.account_tokens.start()
        if self._auditor is not None:
            await self._auditor.start()
            self.metrics.more.append(self._auditor.metrics)
        await objects.ensure(self.core)
        authorizer = Authorizer(self.core)
        await authorizer.start()
        await self._definitions.start()
        await self._registry.start()
        self.core.limits = LimitsOfNamespaces(self.core)
        await self.core.limits.start()
        await self._aggregator.start()
        self.core.authorizer = authorizer
        if self._reloader is not None:
            self._reloader.start()
        self._janitor = asyncio.create_task(run_background(self.core), name="haru apiserver: janitor")

    def admit(self, token: str, user: UserInfo) -> None:
        """Let one more static token in, beside those of the configuration."""
        self.core.tokens.add(token, user)

    async def stop(self) -> None:
        """End all streams and stop the server's own work. The store stays open: it is the caller's."""
        self.core.stop_streams()
        if self._reloader is not None:
            await self._reloader.stop()
        await self._aggregator.stop()
        await self._definitions.stop()
        await self._registry.stop()
        if self._janitor is not None:
            self._janitor.cancel()
            await asyncio.wait([self._janitor])
        await withdraw(self.core)
        if self.core.kubelets is not None:
            await self.core.kubelets.close()
        await self._proxy.close()
        await self.core.account_tokens.stop()
        if self._auditor is not None:
            await self._auditor.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "lifespan":
            return
        if scope["type"] != "http":
            raise RuntimeError(f"scope type {scope['type']} is not served")
        request = Request(scope, receive, send)
        started = time.perf_counter()
        try:
            response = await self._respond(request)
        except ClientGone:
            return
        if response.stream is not None:
            await self._stream(request, response)
            return
        if response.tunnel is not None:
            self.metrics.observe(request, response.status, time.perf_counter() - started)
            await self._tunnel(request, response)
            return
        self.metrics.observe(request, response.status, time.perf_counter() - started)
        if request.trail is not None:
            await request.trail.complete(request, response)
        await send_whole(request, in_wanted_form(request, response))

    async def _respond(self, request: Request) -> Response:
        try:
            response = await self._dispatch(request)
        except StatusError as error:
            response = error_response(error)
        except ClientGone:
            raise
        except TimeoutError:
            message = "Timeout: request did not complete within the allotted timeout"
            response = error_response(StatusError(504, "Timeout", message))
        except StoreError as error:
            _LOG.error("%s %s: %s", request.method, request.path, error)
            response = error_response(internal_error(str(error)))
        except Exception as error:
            _LOG.exception("%s %s failed", request.method, request.path)
            if request.trail is not None:
                request.trail.panicked = True
            response = error_response(internal_error(f"{type(error).__name__}: {error}"))
        has_body = response.body or response.pieces
        if has_body and response.content_type == JSON and not response.passed_on and wants_pretty(request):
            response.body = orjson.dumps(orjson.loads(response.whole()), option=orjson.OPT_INDENT_2) + b"\n"
            response.pieces, response.gzipped = (), None
        if request.warnings:
            response.headers += warning_headers(request.warnings)
        return response

    async def _dispatch(self, request: Request) -> Response:
        path = request.path
        authorizer = self.core.authorizer
        if authorizer is None:
            raise StatusError(503, "ServiceUnavailable", "the server has not been started")
        if not is_open(path):
            # What was acknowledged before by another server counts here: bindings, definitions, and all that is read.
            await self.core.store.progress()
        revision = self.core.store.revision
        if revision != self._taken_in:
            await authorizer.refresh()
            await self._definitions.refresh()
            await self._aggregator.refresh()
            self._taken_in = revision
        await self._identify(request)
        if (service := self._aggregator.at(path)) is not None:
            return await self._pass_on(request, service)
        if not path.startswith(("/api/", "/apis/")) or self._endpoints.is_discovery(path):
            return await self._endpoints.handle(request)
        if (wanted := connection_of(path)) is not None:
            for asked in asked_rights(request, wanted):
                await _permit(authorizer, request, asked, self.metrics, wanted.name)
            return await connect(self.core, self.core.kubelets, request, wanted)
        if (proxied := wanted_of(path)) is not None:
            await _permit(authorizer, request, asked_right(request, proxied), self.metrics, proxied.name)
            return await self._proxy.connect(request, proxied)
        try:
            call, handler = self._route(request)
        except StatusError as error:
            # Not on the way of what is served here: only who would get 404 is looked for elsewhere.
            elsewhere = await self.peers.elsewhere(request) if error.code == 404 and self.peers else None
            if elsewhere is None:
                raise
            return await self._forward(request, *elsewhere)
        await _authorize(authorizer, call, self.metrics)
        check_form(request.header(b"accept"), call.resource.kind)
        deprecated = deprecation_warning(call.resource.kind)
        if deprecated:
            request.warnings.append(deprecated)
        if call.verb == "watch":
            return await handler(call)
        with self._in_flight.slot(request.method, is_heartbeat=is_heartbeat(request.user.groups, call.resource.kind)):
            return await self._patience.wait_for(self._registry.handle(call, handler))

    @property
    def in_flight(self) -> int:
        """How many requests are worked on; watches are not counted."""
        return self._in_flight.count

    async def _identify(self, request: Request) -> None:
        """Find out who asks, begin to tell the audit log of it, and let one speak for another who may."""
        auditor = self._auditor
        try:
            await self._authenticator.authenticate(request)
        except StatusError as error:
            trail = auditor.begin(request, UserInfo("")) if auditor is not None else None
            if trail is not None:
                await trail.refused(request, error_response(error))
            raise
        if auditor is not None:
            request.trail = auditor.begin(request, request.user)
        if request.trail is None:
            self._authenticator.impersonate(request)
            return
        if not await request.trail.received():
            request.trail = None
            assert auditor is not None
            auditor.rejected()
            raise internal_error("failed to store audit event")
        own = request.user
        self._authenticator.impersonate(request)
        if request.user is not own:
            request.trail.impersonated(request.user)

    async def _pass_on(self, request: Request, service: Obj) -> Response:
        """The answer of the extension API server that serves what is asked for; the user must be allowed it here."""
        if self._endpoints.is_discovery(request.path):
            self._endpoints.authorize(request, "/" + request.path.strip("/"))
            return await self._aggregator.pass_on(request, service, endless=False)
        asked = asked_of(request.path)
        if asked is None:
            raise no_such_path()
        verb = await self._permit_asked(request, asked)
        if verb == "watch" or wants_upgrade(request.scope["headers"]):
            return await self._aggregator.pass_on(request, service, endless=True)
        with self._in_flight.slot(request.method):
            return await self._patience.wait_for(self._aggregator.pass_on(request, service, endless=False))

    async def _forward(self, request: Request, asked: Asked, peers: list[str]) -> Response:
        """The answer of a peer that serves what this server does not; the user must be allowed it here as well."""
        assert self.peers is not None
        verb = await self._permit_asked(request, asked)
        if verb == "watch":
            return await self.peers.forward(request, asked, peers, watches=True)
        with self._in_flight.slot(request.method):
            return await self._patience.wait_for(self.peers.forward(request, asked, peers, watches=False))

    async def _permit_asked(self, request: Request, asked: Asked) -> str:
        """The verb of a request that is answered elsewhere; 403 for what the user may not do."""
        assert self.core.authorizer is not None
        verb = "watch" if asked.watch else _verb(request, bool(asked.name))
        if asked.watch and request.method not in ("GET", "HEAD"):
            raise method_not_allowed_error("the server does not allow this method on the requested resource")
        if not _may_do_all(request, self.metrics):
            name, node = _name_and_node(request, verb, asked.name)
            group, _, plural = asked.gvr
            wanted = Attributes(verb, group, plural, asked.subresource, asked.namespace, name, node)
            await _permit(self.core.authorizer, request, wanted, self.metrics)
        return verb

    def _route(self, request: Request) -> tuple[Call, Handler]:
        """The call that a path and method make, and who handles it. 404 or 405 when nobody does."""
        target = self.core.served.target(request.path)
        resource = target.resource
        verb = "watch" if target.watch else _verb(request, bool(target.name))
        if target.watch and request.method not in ("GET", "HEAD"):
            raise method_not_allowed_error("the server does not allow this method on the requested resource")
        call = Call(self.core, request, resource, target.namespace, target.name, target.subresource, verb)
        if target.subresource:
            if verb in resource.subresource_verbs[target.subresource]:
                return call, SUBRESOURCES[target.subresource][verb]
        elif verb in resource.kind.verbs and _has_path(target, verb):
            if resource.kind.virtual:
                return call, VIRTUAL[resource.kind.plural]
            return call, HANDLERS[verb]
        raise method_not_allowed_error("the server does not allow this method on the requested resource")

    async def _tunnel(self, request: Request, response: Response) -> None:
        assert response.tunnel is not None
        if request.trail is not None:
            await request.trail.started(request, response)
        try:
            await response.tunnel(request)
        finally:
            if request.trail is not None:
                await request.trail.complete(request, response)

    async def _stream(self, request: Request, response: Response) -> None:
        assert response.stream is not None
        if request.trail is not None:
            await request.trail.started(request, response)
        await request.send(head_of(response, request.audit_id, None))
        # An empty chunk makes the server flush the head: clients wait for it before they wait for events.
        await request.send({"type": "http.response.body", "body": b"", "more_body": True})
        self.metrics.watches += 1
        started = time.perf_counter()
        try:
            await response.stream(request)
            await request.send({"type": "http.response.body", "body": b"", "more_body": False})
        except (TimeoutError, PeerGone):
            abort(request)
        except OSError:
            pass  # the client went away while something was sent to it
        finally:
            self.metrics.watches -= 1
            self.metrics.observe(request, response.status, time.perf_counter() - started)
            if request.trail is not None:
                await request.trail.complete(request, response)


def _may_do_all(request: Request, metrics: Metrics) -> bool:
    """Whether the user is one of those whom nobody asks for rights."""
    if MASTERS not in request.user.groups:
        return False
    request.judged(True, "")
    metrics.judged(True)
    return True


async def _authorize(authorizer: Authorizer, call: Call, metrics: Metrics) -> None:
    kind = call.resource.kind
    if _may_do_all(call.request, metrics):
        return
    # A request for a namespace is one in it: who may read everything in a namespace may read the namespace.
    namespace = call.name if (kind.group, kind.plural) == ("", "namespaces") else call.namespace
    name, node = _name_and_node(call.request, call.verb, call.name)
    asked = Attributes(call.verb, kind.group, kind.plural, call.subresource, namespace, name, node)
    await _permit(authorizer, call.request, asked, metrics, call.name)


async def _permit(
    authorizer: Authorizer, request: Request, asked: Attributes, metrics: Metrics, named: str | None = None
) -> None:
    """403 for what the user may not do; `named` is the name that the answer tells, where it is another one."""
    user = request.user
    await authorizer.prepare(user, asked)
    decision = authorizer.decide(user, asked)
    request.judged(decision.allowed, decision.reason)
    metrics.judged(decision.allowed)
    if decision:
        return
    error = refusal(user, asked, decision, named)
    _LOG.info("forbidden: %s", error.message)
    raise error


def _name_and_node(request: Request, verb: str, name: str) -> tuple[str, str]:
    """The one name that a request is for, by its path or its selector, and the one node."""
    if name or verb not in ("list", "watch", "deletecollection"):
        return name, ""
    selected_name, node = selected(request)
    return (selected_name if verb != "deletecollection" else ""), node


def selected(request: Request) -> tuple[str, str]:
    """The one name that a list or watch selects, which rules with resourceNames cover, and the one `spec.nodeName`."""
    text = request.param("fieldSelector") if request.query else ""
    if not text:
        return "", ""
    fields = parse_field_selector(text)
    return fields.exact("metadata.name") or "", fields.exact("spec.nodeName") or ""


def _has_path(target: Target, verb: str) -> bool:
    """Whether 1.36 has a path like this for the verb: changes name an object, or the namespace that it is to lie in."""
    if verb in ("list", "watch", "get"):
        return True
    if not target.namespace and target.resource.kind.namespaced:
        return False
    return bool(target.name) is (verb not in ("create", "deletecollection"))


def _verb(request: Request, named: bool) -> str:
    method = request.method
    if method in ("GET", "HEAD"):
        if named:
            return "get"
        return "watch" if request.query and request.flag("watch") else "list"
    if method == "DELETE":
        return "delete" if named else "deletecollection"
    verb = _VERBS.get(method)
    if verb is None:
        raise method_not_allowed_error("the server does not allow this method on the requested resource")
    return verb


def wants_pretty(request: Request) -> bool:
    """Whether the answer is read by people: they say so, or use a browser or a tool for the command line."""
    wanted = request.param("pretty") if request.query else ""
    return wanted in TRUE if wanted else request.header(b"user-agent").startswith(("curl", "Wget", "Mozilla/5.0"))


def warning_headers(warnings: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """One header for each warning, in what a header may hold; many or long ones are cut short."""
    texts = [_CONTROLS.sub(" ", text) for text in dict.fromkeys(warnings)]
    if sum(map(len, texts)) > WARNING_RUNES:
        texts = [text[:WARNING_RUNES_EACH] for text in texts][: WARNING_RUNES // WARNING_RUNES_EACH]
    if len(texts) > WARNINGS_LIMIT:
        texts = [*texts[: WARNINGS_LIMIT - 1], f"and {len(texts) - WARNINGS_LIMIT + 1} more warnings"]
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in texts]
    return [(b"warning", f'299 - "{text}"'.encode()) for text in quoted]
