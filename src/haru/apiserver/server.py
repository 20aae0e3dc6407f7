"""The API server: an ASGI application over a store.

A request is authenticated, its path resolved to a resource, the caller authorized, and the verb's handler run; every
failure becomes a Status object. The application does not care who calls it: an HTTP server with TLS, or a client in
the same process with the same method, path, headers and bytes.
"""

from __future__ import annotations

import logging
import re
import time

from haru.apiserver.auth.authentication import is_open
from haru.apiserver.auth.authorization import Authorizer, RequestAuthorizer
from haru.apiserver.auth.impersonation import Impersonation
from haru.apiserver.auth.user import UserInfo
from haru.apiserver.bootstrap.kubernetes_service import publish
from haru.apiserver.components import Components
from haru.apiserver.config import ServerConfig
from haru.apiserver.encoding.negotiation import check_form, names_what_is_served
from haru.apiserver.encoding.response_writer import (
    abort,
    head_of,
    in_error_form,
    in_wanted_form,
    pretty_printed,
    send_whole,
    wants_pretty,
    warning_headers,
)
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.observability.documents import Documents
from haru.apiserver.observability.endpoints import Endpoints
from haru.apiserver.observability.health import Health
from haru.apiserver.observability.metrics import Metrics
from haru.apiserver.peers.proxy import PeerGone
from haru.apiserver.peers.routes import ResourceRequest, resource_request_of
from haru.apiserver.peers.server import Peers
from haru.apiserver.proxy.admission import Connection, admitted_connection
from haru.apiserver.proxy.kubelets.connections import connect_request_of, required_rights
from haru.apiserver.proxy.targets import proxy_request_of, required_right
from haru.apiserver.registry.handlers import Handler, method_not_allowed, verb_of
from haru.apiserver.registry.patch import kind_of_patch
from haru.apiserver.registry.resources import is_discovery_path
from haru.apiserver.request.call import Call
from haru.apiserver.request.http import (
    JSON,
    NO_SNIFFING,
    ClientGone,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    error_response,
)
from haru.apiserver.request.limits import RequestLimits, is_heartbeat
from haru.apiserver.serving_address import ServingAddress
from haru.apiserver.start_retry import until_store_answers
from haru.apiserver.streams import OpenStreams
from haru.event_loop import SharedTimeout, is_for_a_client
from haru.kube.durations import nanoseconds_of
from haru.kube.errors import StatusError, bad_request_error, internal_error, no_such_path, suppress_status
from haru.kube.lifecycle import deprecation_warning
from haru.kube.meta import Obj
from haru.kube.names import is_path_segment_name
from haru.storage import StoreClosed, StoreError
from haru.upgrade_proxy import wants_upgrade

__all__ = ["ApiServer", "ServerConfig", "UserInfo"]

_LOG = logging.getLogger("haru.apiserver")

REQUEST_SECONDS = 60.0
_IS_HEALTH = re.compile(r"/(?:healthz|livez|readyz|version)(?:/|$)").match
_CONNECTS = re.compile(r"/(?:exec|attach|portforward|proxy)(?:/|$)").search


class ApiServer:
    """One API server over one store; `start` before the first request."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.components = parts = Components(config)
        self._configuration = parts.configuration
        self._requests = RequestAuthorizer(parts.authorizer, parts.metrics.judged)
        constrained = config.gates.enabled("ConstrainedImpersonation")
        self._impersonation = Impersonation(parts.authorizer, constrained=constrained)
        if self._impersonation.metrics is not None:
            parts.metrics.more.append(self._impersonation.metrics.lines)
        documents = Documents(parts.objects, parts.configuration.aggregator, parts.peers, parts.address)
        health = Health(parts.objects.store, parts.streams, config.encryption, parts.peers)
        self._endpoints = Endpoints(
            self._requests, documents, health, parts.metrics, parts.authenticator.account_tokens
        )
        self._limits = RequestLimits(config.flow_control, SharedTimeout(REQUEST_SECONDS))
        self._started = False

    async def start(self) -> None:
        """Write what every cluster starts with, and begin to serve."""
        await self.components.start()
        self._started = True

    async def stop(self) -> None:
        """End all streams and stop the server's own work. The store stays open: it is the caller's."""
        await self.components.stop()

    def admit(self, token: str, user: UserInfo) -> None:
        """Accept one more static token, beside those of the configuration."""
        self.components.authenticator.static_tokens.add(token, user)

    @property
    def objects(self) -> ObjectStore:
        """The objects that the server serves."""
        return self.components.objects

    @property
    def streams(self) -> OpenStreams:
        """The open streams of clients."""
        return self.components.streams

    @property
    def address(self) -> ServingAddress:
        """The address of the server; the listener sets it."""
        return self.components.address

    @property
    def authorizer(self) -> Authorizer:
        """Decides what users may do."""
        return self.components.authorizer

    @property
    def metrics(self) -> Metrics:
        """The counters of the server."""
        return self.components.metrics

    @property
    def peers(self) -> Peers | None:
        """The other API servers on the same store; None: this server looks for none."""
        return self.components.peers

    @property
    def in_flight(self) -> int:
        """How many requests are being handled; watches are not counted."""
        return self._limits.count

    async def serve_on(self, address: tuple[str, int]) -> None:
        """Publish the address that a listener now serves, in the Service `kubernetes` and to peers."""
        self.address.listening = address
        await until_store_answers("the Service kubernetes", lambda: publish(self.components.loopback, self.address))
        if self.peers is not None:
            await self.peers.start()

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
            response = in_error_form(request, error_response(error))
            if request.is_turned_away:
                response.headers.append(NO_SNIFFING)
        except ClientGone:
            raise
        except TimeoutError:
            message = "Timeout: request did not complete within the allotted timeout"
            response = error_response(StatusError(504, "Timeout", message))
        except StoreClosed as error:
            # The server ends: whoever asks gets that for an answer, and nobody has to look into it.
            response = error_response(StatusError(503, "ServiceUnavailable", str(error)))
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
            pretty_printed(response)
        if request.warnings:
            response.headers += warning_headers(request.warnings)
        return response

    async def _dispatch(self, request: Request) -> Response:
        path, parts = request.path, self.components
        if not self._started:
            raise StatusError(503, "ServiceUnavailable", "the server has not been started")
        _check_timeout(request)
        if not _IS_HEALTH(path):
            # What was acknowledged before by another server counts here: bindings, definitions, and all that is read.
            await parts.objects.store.progress()
        if not self._configuration.is_current:
            await self._configuration.refresh()
        await self._identify(request)
        if (service := self._configuration.aggregator.at(path)) is not None:
            return await self._pass_on(request, service)
        if not path.startswith(("/api/", "/apis/")) or is_discovery_path(path):
            return await self._endpoints.handle(request)
        if _CONNECTS(path) and (connected := await self._connect(request)) is not None:
            return connected
        try:
            call, handler = self._route(request)
        except StatusError as error:
            # Not on the way of what is served here: only who would get 404 is looked for elsewhere.
            elsewhere = await self.peers.elsewhere(request) if error.code == 404 and self.peers else None
            if elsewhere is None:
                if (asked := resource_request_of(path)) is not None:
                    with suppress_status(405):  # what is not there takes no method: the first answer says which it is
                        await self._authorize_asked(request, asked)
                raise
            return await self._forward(request, *elsewhere)
        await self._requests.authorize(call)
        kind = call.resource.kind
        if (deprecated := deprecation_warning(kind)) and names_what_is_served(request.header(b"accept")):
            request.warnings.append(deprecated)
        if call.name in (".", "..") or "/" in call.name or "%" in call.name:
            why = "; ".join(is_path_segment_name(call.name))
            raise bad_request_error(f'Name parameter invalid: "{call.name}": {why}')
        if call.verb == "patch":
            kind_of_patch(call)
        if call.subresource != "log":
            check_form(request.header(b"accept"), kind)
        if call.verb == "watch":
            is_for_a_client.set(False)  # it goes on when it has begun, and has time to
            return await handler(call)
        with self._limits.slot(request.method, is_heartbeat=is_heartbeat(request.user.groups, kind)):
            return await self._limits.wait_for(self._configuration.dynamic.handle(call, handler))

    async def _connect(self, request: Request) -> Response | None:
        """The answer to a request for a connection to a kubelet, pod or service; None for other requests."""
        if (wanted := connect_request_of(request.path)) is not None:
            for asked in required_rights(request, wanted):
                await self._requests.permit(request, asked, wanted.name)
            wanted = await self._admitted(request, wanted)
            return await self.components.kubelet_proxy.connect(request, wanted)
        if (proxied := proxy_request_of(request.path)) is not None:
            await self._requests.permit(request, required_right(request, proxied), proxied.name)
            proxied = await self._admitted(request, proxied)
            return await self.components.proxy.connect(request, proxied)
        return None

    async def _admitted(self, request: Request, wanted: Connection) -> Connection:
        parts, dynamic = self.components, self._configuration.dynamic
        return await admitted_connection(dynamic, parts.objects, parts.loopback.admission, request, wanted)

    async def _identify(self, request: Request) -> None:
        """Authenticate the request, begin its audit events, and apply impersonation."""
        authenticator, auditor = self.components.authenticator, self.components.auditor
        try:
            await authenticator.authenticate(request)
        except StatusError as error:
            trail = auditor.begin(request, UserInfo("")) if auditor is not None else None
            if trail is not None:
                await trail.refused(request, error_response(error))
            raise
        if auditor is not None:
            request.trail = auditor.begin(request, request.user)
        if request.trail is None:
            self._impersonation.apply(request)
            return
        if not await request.trail.received():
            request.trail = None
            assert auditor is not None
            auditor.rejected()
            raise internal_error("failed to store audit event")
        constraint = self._impersonation.apply(request)
        if constraint is not None:
            request.trail.impersonated(request.user, constraint)

    async def _pass_on(self, request: Request, service: Obj) -> Response:
        """Authorize the request here, then return the answer of the extension API server."""
        pass_on = self._configuration.aggregator.pass_on
        if is_discovery_path(request.path):
            path = "/" + request.path.strip("/")
            self._requests.permit_path(request, path, is_open=is_open(path))
            return await pass_on(request, service, endless=False)
        asked = resource_request_of(request.path)
        if asked is None:
            raise no_such_path()
        verb = await self._authorize_asked(request, asked)
        if verb == "watch" or wants_upgrade(request.scope["headers"]):
            return await pass_on(request, service, endless=True)
        with self._limits.slot(request.method):
            return await self._limits.wait_for(pass_on(request, service, endless=False))

    async def _forward(self, request: Request, asked: ResourceRequest, peers: list[str]) -> Response:
        """Authorize the request here, then return the answer of a peer that serves the resource."""
        assert self.peers is not None
        verb = await self._authorize_asked(request, asked)
        if verb == "watch":
            return await self.peers.forward(request, asked, peers, watches=True)
        with self._limits.slot(request.method):
            return await self._limits.wait_for(self.peers.forward(request, asked, peers, watches=False))

    async def _authorize_asked(self, request: Request, asked: ResourceRequest) -> str:
        """Authorize a request that is answered elsewhere; return its verb."""
        verb = "watch" if asked.watch else verb_of(request, bool(asked.name))
        if asked.watch and request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        await self._requests.authorize_asked(request, verb, asked)
        return verb

    def _route(self, request: Request) -> tuple[Call, Handler]:
        """The call that a path and method make, and its handler; 404 or 405 if there is none."""
        parts = self.components
        target = parts.objects.served.target(request.path)
        verb, handler = parts.handlers.find(target, request)
        call = Call(
            parts.objects,
            parts.loopback.admission,
            request,
            target.resource,
            target.namespace,
            target.name,
            target.subresource,
            verb,
        )
        return call, handler

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


def _check_timeout(request: Request) -> None:
    """400 for a time limit in the URL that is none; connections and watches have no such limit."""
    text = request.param("timeout") if b"timeout=" in request.scope["query_string"] else ""
    if not text or _CONNECTS(request.path) or request.flag("watch"):
        return
    try:
        nanoseconds_of(text)
    except ValueError as error:
        raise bad_request_error(f"invalid timeout specified in the request URL - {error}") from None
