"""Metrics APIs beside an API server in this process: what a test says, as metrics.k8s.io and its sisters say it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

import orjson
from controller_cluster import Cluster

from haru.client.api import ApiClient
from haru.kube.names import format_time

Obj = dict[str, Any]
Values = dict[str, Any]
NAME = "horizontal-pod-autoscaler-controller"


class MetricsApis:
    """An ASGI application: answers for the groups in `served`, and leaves the rest to the API server.

    `values` has, for the path below a group's version, a value by the name of each pod, object or series; for a pod's
    resources the usage of its container `c`, or of all its containers.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.app: Any = cluster.server
        self.served: list[str] = []
        self.values: dict[str, Values] = {}
        self.queries: list[tuple[str, str]] = []
        cluster.client_of(NAME)
        cluster._own[NAME] = ApiClient.in_process(self, NAME, "tests")
        self._cluster = cluster

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Obj], Awaitable[None]]) -> None:
        path: str = scope.get("path", "")
        group = path.split("/")[2] if path.startswith("/apis/") else ""
        if not group.endswith("metrics.k8s.io"):
            if path == "/apis" and self.served:
                await self._groups(scope, receive, send)
            else:
                await self.app(scope, receive, send)
            return
        query = parse_qs(scope["query_string"].decode())
        self.queries.append((path, "&".join(f"{key}={value[0]}" for key, value in sorted(query.items()))))
        found = self.values.get(path.split("/", 4)[4]) if group in self.served else None
        if found is None:
            await _answer(send, 404, b"404 page not found")
            return
        items = [self._item(group, name, value) for name, value in found.items()]
        await _answer(send, 200, orjson.dumps({"kind": "List", "metadata": {}, "items": items}))

    def _item(self, group: str, name: str, value: Any) -> Obj:
        when = {"timestamp": format_time(self._cluster._now())}
        if group == "metrics.k8s.io":
            usage = value if isinstance(value, list) else [{"name": "c", "usage": value}]
            return {"metadata": {"name": name}, "window": "15s", "containers": usage, **when}
        if group == "custom.metrics.k8s.io":
            return {"describedObject": {"name": name}, "metric": {"name": "m"}, "value": value, **when}
        return {"metricName": "m", "metricLabels": {"series": name}, "value": value, **when}

    async def _groups(self, scope: Any, receive: Any, send: Callable[[Obj], Awaitable[None]]) -> None:
        parts: list[bytes] = []

        async def keep(message: Obj) -> None:
            parts.append(message.get("body", b""))

        await self.app({**scope, "extensions": {}}, receive, keep)
        document = orjson.loads(b"".join(parts))
        version = {"custom.metrics.k8s.io": "v1beta2"}
        for group in self.served if document["kind"] == "APIGroupList" else ():
            one = version.get(group, "v1beta1")
            both = {"groupVersion": f"{group}/{one}", "version": one}
            document["groups"].append({"name": group, "versions": [both], "preferredVersion": both})
        await _answer(send, 200, orjson.dumps(document))


async def _answer(send: Callable[[Obj], Awaitable[None]], status: int, body: bytes) -> None:
    kind = b"application/json" if status == 200 else b"text/plain"
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
    await send({"type": "http.response.body", "body": body})
