"""Answers of `metrics.k8s.io`: who asks is told by the aggregation layer, what is used by pods as they are stored now.

Nothing is watched: each answer reads the pods and nodes that it is about.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, MutableMapping
from datetime import datetime
from typing import Any, Final

import orjson

from haru.client.api import ApiClient
from haru.kube.errors import StatusError, bad_request_error, not_found_error
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj, name_of
from haru.kube.selectors import parse_label_selector
from haru.secure_serving.authorization import ReviewedAccess
from haru.secure_serving.component import Route
from haru.secure_serving.http import Answer, HttpError, Receive, Request, Send, send_answer, status_answer
from haru.secure_serving.identity import User
from haru.secure_serving.reviews import ReviewFailed
from haru.simulated_nodes.metrics_server.documents import (
    DISCOVERY,
    GROUP,
    ROOT,
    VERSION,
    is_simulated,
    listed,
    node_metrics,
    pod_metrics,
)

PODS, NODES = known_kind("v1", "Pod"), known_kind("v1", "Node")
_PATH: Final = re.compile(rf"{re.escape(ROOT)}(?:/namespaces/([^/]+))?/(pods|nodes)(?:/([^/]+))?")
_RUNNING: Final = "status.phase=Running"
_log = logging.getLogger(__name__)


class MetricsApp:
    """Answers GET. `user_of` says who asks; `open_routes` are answered without identity."""

    def __init__(
        self,
        client: ApiClient,
        access: ReviewedAccess,
        user_of: Callable[[Request], User],
        open_routes: Mapping[str, Route],
        now: Callable[[], datetime],
    ) -> None:
        self._client, self._access, self._user_of = client, access, user_of
        self._open, self._now = open_routes, now

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            answer = await self._answer(request)
        except (StatusError, HttpError) as error:
            answer = status_answer(error)
        except (ReviewFailed, OSError) as error:
            _log.warning("%s: %s", request.path, error)
            answer = status_answer(StatusError(503, "ServiceUnavailable", "the cluster could not be asked; try again"))
        await send_answer(answer, send, request.method)

    async def _answer(self, request: Request) -> Answer:
        if request.method not in ("GET", "HEAD"):
            raise StatusError(405, "MethodNotAllowed", f"{request.method} is not supported: metrics are only read")
        if (route := self._open.get(request.path)) is not None:
            return route(request)
        user = self._user_of(request)
        found = DISCOVERY.get(request.path.rstrip("/"))
        if found is None:
            found = await self._metrics(request, user)
        return Answer(200, orjson.dumps(found), "application/json")

    async def _metrics(self, request: Request, user: User) -> Obj:
        path = _PATH.fullmatch(request.path)
        if path is None or (path[2] == "nodes" and path[1]):
            raise StatusError(404, "NotFound", "the server could not find the requested resource")
        namespace, resource, name = path[1] or "", path[2], path[3] or ""
        await self._require(user, namespace, resource, name)
        labels, fields = request.param("labelSelector") or "", request.param("fieldSelector") or ""
        try:
            parse_label_selector(labels)
        except ValueError as error:
            raise bad_request_error(f"unable to parse labelSelector: {error}") from error
        if fields and (wanted := re.fullmatch(r"metadata\.name==?([^,=]+)", fields)) is None:
            raise bad_request_error(f'fieldSelector "{fields}": only metadata.name is selectable')
        name = name or (wanted[1] if fields and wanted is not None else "")
        items = await (self._pods(namespace, labels, name) if resource == "pods" else self._nodes(labels, name))
        if not path[3]:
            return listed("PodMetrics" if resource == "pods" else "NodeMetrics", items)
        if not items:
            raise not_found_error(GROUP, resource, name)
        return items[0]

    async def _require(self, user: User, namespace: str, resource: str, name: str) -> None:
        attributes = {"verb": "get" if name else "list", "group": GROUP, "version": VERSION, "resource": resource}
        attributes |= {key: value for key, value in (("namespace", namespace), ("name", name)) if value}
        if not await self._access.allowed(user, {"resourceAttributes": attributes}):
            where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
            raise StatusError(
                403,
                "Forbidden",
                f'{resource}.{GROUP} is forbidden: User "{user.name}" cannot {attributes["verb"]} resource '
                f'"{resource}" in API group "{GROUP}" {where}',
                {"name": name, "group": GROUP, "kind": resource},
            )

    async def _pods(self, namespace: str, labels: str, name: str) -> list[Obj]:
        fields = f"{_RUNNING},metadata.name={name}" if name else _RUNNING
        pods = (await self._client.list(PODS, namespace, labels, fields))["items"]
        nodes = {pod["spec"].get("nodeName") or "" for pod in pods}
        # Of the pods of one node, or of one alone, no other node is read.
        simulated = set(map(name_of, await self._simulated("", nodes.pop() if len(nodes) == 1 else "")))
        now = self._now()
        made = (pod_metrics(pod, now) for pod in pods if pod["spec"].get("nodeName") in simulated)
        return [one for one in made if one["containers"]]

    async def _nodes(self, labels: str, name: str) -> list[Obj]:
        nodes = await self._simulated(labels, name)
        fields = f"{_RUNNING},spec.nodeName={name}" if name else _RUNNING
        on_node: dict[str, list[Obj]] = defaultdict(list)
        for pod in (await self._client.list(PODS, field_selector=fields))["items"]:
            on_node[pod["spec"].get("nodeName", "")].append(pod)
        now = self._now()
        return [node_metrics(node, on_node[name_of(node)], now) for node in nodes]

    async def _simulated(self, labels: str, name: str) -> list[Obj]:
        fields = f"metadata.name={name}" if name else ""
        return [one for one in (await self._client.list(NODES, "", labels, fields))["items"] if is_simulated(one)]
