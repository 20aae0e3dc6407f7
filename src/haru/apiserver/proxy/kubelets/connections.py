"""Ways into containers and to a kubelet's own API: `pods/exec`, `/attach`, `/portforward`, `nodes/proxy`.

What follows the head of a connection is between client and kubelet: WebSocket and SPDY alike. The client's own
credentials end here; the kubelet is shown the API server's certificate. Source: the connect verbs of 1.36, as
behaviour (with AuthorizePodWebsocketUpgradeCreatePermission).
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from haru.apiserver.auth.authentication import TOKEN_PROTOCOL
from haru.apiserver.auth.node_authorizer import Attributes
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.peers.proxy import AnswerStream
from haru.apiserver.proxy.kubelets.client import Endpoint, Kubelets
from haru.apiserver.registry.subresources.pods import chosen_container
from haru.apiserver.registry.subresources.simulated_sources import SimulatedPods
from haru.apiserver.request.http import Request, Response
from haru.apiserver.streams import OpenStreams
from haru.apiserver.upstream_session import unreached
from haru.event_loop import imported
from haru.kube.errors import StatusError, bad_request_error, method_not_allowed_error, not_found_error
from haru.kube.meta import Obj
from haru.upgrade_proxy import HIJACK, UpgradeResponse, splice, wants_upgrade

if TYPE_CHECKING:
    import aiohttp

_POD = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/(exec|attach|portforward)/?")
_NODE_NAME = re.compile(r"(?:https:)?([^:]+)(?::(\d{0,5}))?")
_NODE = re.compile(r"/api/v1/nodes/([^/]+)/proxy(/.*)?", re.DOTALL)
VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
    "OPTIONS": "",
}
"""The verb of a method; the empty one is allowed only by rules for every verb."""
_FLAGS = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
_OURS = frozenset({"host", "authorization", "content-length", "transfer-encoding", "expect", "cookie", "audit-id"})
_HOPS = frozenset({"connection", "keep-alive", "te", "trailer", "upgrade", "proxy-authorization", "proxy-connection"})
ANSWER_DROPPED = _HOPS | {"transfer-encoding", "date"}
"""Headers of an answer that are about its own connection."""
HEAD_SECONDS = 60.0
KUBELET_PORT = 10250
"""Where a kubelet listens if it does not say otherwise."""


@dataclass(frozen=True, slots=True)
class ConnectRequest:
    """What a path names. `rest` is the path at the kubelet, for `nodes/proxy`."""

    plural: str
    subresource: str
    namespace: str
    name: str
    rest: str = ""


def connect_request_of(path: str) -> ConnectRequest | None:
    """What a path is about, if it is one of these."""
    if found := _POD.fullmatch(path):
        return ConnectRequest("pods", found[3], found[1], found[2])
    if found := _NODE.fullmatch(path):
        return ConnectRequest("nodes", "proxy", "", found[1], found[2] or "/")
    return None


def required_rights(request: Request, wanted: ConnectRequest) -> list[Attributes]:
    """What the user must be allowed, all of it; a way into a container also by a GET needs `create`. Raises 405."""
    verb = VERBS.get(request.method)
    if verb is None or (wanted.plural == "pods" and request.method not in ("GET", "POST")):
        raise method_not_allowed_error("the server does not allow this method on the requested resource")
    verbs = ("get", "create") if wanted.plural == "pods" and verb == "get" else (verb,)
    return [Attributes(each, "", wanted.plural, wanted.subresource, wanted.namespace, wanted.name) for each in verbs]


class KubeletProxy:
    """Connect clients with the kubelets of one server's nodes; `kubelets` is None if all nodes are simulated."""

    def __init__(
        self, objects: ObjectStore, kubelets: Kubelets | None, simulated: SimulatedPods, streams: OpenStreams
    ) -> None:
        self._objects, self._kubelets, self._simulated, self._streams = objects, kubelets, simulated, streams

    async def close(self) -> None:
        """Close all connections."""
        if self._kubelets is not None:
            await self._kubelets.close()

    async def connect(self, request: Request, wanted: ConnectRequest) -> Response:
        """The connection, or the kubelet's answer."""
        if wanted.plural == "nodes":
            return await self._node(request, wanted)
        pod = await self._objects.read("", "pods", wanted.namespace, wanted.name)
        if pod is None:
            raise not_found_error("", "pods", wanted.name)
        node = (pod.get("spec") or {}).get("nodeName")
        if not node:
            raise bad_request_error(f"pod {wanted.name} does not have a host assigned")
        kubelets = self._kubelets
        endpoint = await kubelets.endpoint(node) if kubelets is not None else None
        simulated = kubelets is None or endpoint is None
        if simulated and wanted.subresource == "portforward":
            if await self._objects.peek("", "nodes", "", node) is None:
                raise not_found_error("", "pods", node)  # 1.36's words for a node that is not there
            raise StatusError(503, "ServiceUnavailable", f"there is no kubelet on node {node}: its pods are simulated")
        if not wants_upgrade(request.scope["headers"]):
            raise bad_request_error("Upgrade request required")
        if kubelets is None or endpoint is None:
            from haru.apiserver.proxy.simulated.connect import connect_simulated

            attach = wanted.subresource == "attach"
            return await connect_simulated(self._objects, self._simulated, self._streams, request, pod, attach=attach)
        return await self._tunnel(kubelets, request, endpoint, pod_target(request, wanted, pod))

    async def _node(self, request: Request, wanted: ConnectRequest) -> Response:
        await imported("aiohttp")
        import aiohttp

        named = _NODE_NAME.fullmatch(wanted.name)
        if named is None:
            raise bad_request_error(f"nodes \"{wanted.name}\": write the node's name, alone or with its kubelet's port")
        name, port = named[1], named[2] or ""
        if await self._objects.peek("", "nodes", "", name) is None:
            raise not_found_error("", "nodes", name)
        kubelets = self._kubelets
        endpoint = await kubelets.endpoint(name) if kubelets is not None else None
        if port and int(port) != (KUBELET_PORT if endpoint is None else endpoint.port):
            raise bad_request_error(f'nodes "{wanted.name}": other ports than the kubelet\'s are not proxied')
        if kubelets is None or endpoint is None:
            from haru.apiserver.proxy.simulated.kubelet_api import simulated_kubelet

            return await simulated_kubelet(self._objects, request, name, wanted.rest)
        query = (request.scope.get("query_string") or b"").decode("latin-1")
        target = quote(wanted.rest, safe="/:@!$&'()*+,;=-._~") + (f"?{query}" if query else "")
        if wants_upgrade(request.scope["headers"]):
            return await self._tunnel(kubelets, request, endpoint, target)
        body = await request.body()
        sent = kubelets.request(endpoint, request.method, target, passed_headers(request, keeps_upgrade=False), body)
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                answer: aiohttp.ClientResponse = await sent
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            why = f"error trying to reach service: {unreached(error)}"
            raise StatusError(503, "ServiceUnavailable", why) from error
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.items()]
        kept = [(name, value) for name, value in headers if name.decode("latin-1") not in ANSWER_DROPPED]
        stream = AnswerStream(self._streams, answer).run
        return Response(answer.status, b"", answer.headers.get("Content-Type", ""), kept, stream, passed_on=True)

    async def _tunnel(self, kubelets: Kubelets, request: Request, endpoint: Endpoint, target: str) -> Response:
        if HIJACK not in (request.scope.get("extensions") or {}):
            raise bad_request_error("a connection in this process can not be upgraded: use the server's socket")
        opened = await kubelets.tunnel(endpoint, request.method, target, passed_headers(request, keeps_upgrade=True))
        if opened.status != 101:
            return Response(opened.status, opened.body, opened.headers.get("content-type", "text/plain"))
        return Response(101, tunnel=Tunnel(self._streams, opened).run)


def pod_target(request: Request, wanted: ConnectRequest, pod: Obj) -> str:
    """The target at the kubelet. 400 for a container that is not clear."""
    names = [wanted.namespace, wanted.name]
    query: list[tuple[str, str]] = []
    if wanted.subresource == "portforward":
        query = [("port", port) for port in request.query.get("ports") or ()]
    else:
        names.append(chosen_container(pod, request.param("container")))
        query = [(kubelets, "1") for name, kubelets in _FLAGS.items() if request.flag(name)]
        query += [("command", part) for part in request.query.get("command") or ()]
    path = "/".join(quote(name, safe="") for name in names)
    kind = {"portforward": "portForward"}.get(wanted.subresource, wanted.subresource)
    return f"/{kind}/{path}" + (f"?{urlencode(query)}" if query else "")


def passed_headers(request: Request, *, keeps_upgrade: bool) -> list[tuple[str, str]]:
    """The client's headers without what is about the client's own connection, and who it is."""
    dropped = _OURS if keeps_upgrade else _OURS | _HOPS
    kept = []
    for raw, data in request.scope["headers"]:
        name, value = raw.decode("latin-1").lower(), data.decode("latin-1")
        if name in dropped or name.startswith(("x-remote-", "impersonate-")):
            continue
        if name == "sec-websocket-protocol":
            parts = [part for part in map(str.strip, value.split(",")) if not part.startswith(TOKEN_PROTOCOL)]
            value = ", ".join(parts)
        kept.append((name, value))
    return kept


class Tunnel:
    """A connection that was taken over, until one side ends it or the server stops."""

    def __init__(self, streams: OpenStreams, opened: UpgradeResponse) -> None:
        self._streams, self._opened = streams, opened
        self._work: asyncio.Task[None] | None = None

    def close(self) -> None:
        """End it."""
        if self._work is not None:
            self._work.cancel()

    async def run(self, request: Request) -> None:
        """Pass everything on."""
        client = request.scope["extensions"][HIJACK]()
        client.writer.write(self._opened.head)
        self._work = asyncio.create_task(splice(client, self._opened.stream))
        self._streams.add(self)
        try:
            await asyncio.wait([self._work])
        finally:
            self._streams.discard(self)
            self._work.cancel()
