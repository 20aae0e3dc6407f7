"""`explain.haru.dev` in `haru up`: the resident answer behind the cluster's own aggregation layer.

It starts a moment after the cluster is ready, so that no start waits for it, and watches only while it is asked. Its
failure ends no other component.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from haru.client.api import ApiClient
from haru.clock import utc_now
from haru.event_loop import cancelled
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj

if TYPE_CHECKING:
    from haru.explain_server import ExplainServer

NAMESPACE, NAME = "kube-system", "haru-explain"
TENANT = "haru-explain"
_CLUSTER_SCOPED = ("nodes", "devices", "deviceclasses")
_RBAC = "rbac.authorization.k8s.io/v1"
_DELAY_SECONDS = 2.0
_log = logging.getLogger(__name__)


class EmbeddedExplainApi:
    """Serves on a loopback port of its own and writes what leads there; `ready` once it has."""

    def __init__(
        self, client: ApiClient, writer: ApiClient, now: Callable[[], datetime] = utc_now, delay: float = _DELAY_SECONDS
    ) -> None:
        self._client, self._writer, self._now, self._delay = client, writer, now, delay
        self._server: ExplainServer | None = None
        self._task: asyncio.Task[None] | None = None
        self.ready = asyncio.Event()

    async def start(self) -> None:
        """Begin a moment later."""
        self._task = asyncio.create_task(self._serve(), name="explain.haru.dev")

    async def stop(self) -> None:
        """Close the port."""
        if self._task is not None:
            await cancelled(self._task)
        if self._server is not None:
            await self._server.stop()

    async def _serve(self) -> None:
        await asyncio.sleep(self._delay)
        try:
            # In a thread: the import would hold up the event loop.
            await asyncio.to_thread(importlib.import_module, "haru.explain_server.server")
            from haru.explain_server import ExplainServer, api_service
            from haru.secure_serving.options import ServingOptions

            options = ServingOptions(address="127.0.0.1", names=(f"{NAME}.{NAMESPACE}.svc",))
            server = ExplainServer(self._client, options, resident=False, now=self._now)
            await server.start()
            self._server = server
            for obj in objects(server.port):
                await self._put(obj)
            await self._put(api_service(NAMESPACE, NAME, bundle=server.certificate))
            self.ready.set()
        except (StatusError, OSError, ValueError) as error:
            _log.warning("explain.haru.dev is not served: %s", error)

    async def _put(self, obj: Obj) -> None:
        """Create an object, or make the one of an earlier start equal to it."""
        kind, name = known_kind(obj["apiVersion"], obj["kind"]), obj["metadata"]["name"]
        try:
            await self._writer.create(kind, obj)
        except StatusError as error:
            if error.code != 409:
                raise
            changed = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
            await self._writer.patch(kind, name, changed, obj["metadata"].get("namespace", ""))


def objects(port: int) -> tuple[Obj, ...]:
    """What leads to the port, and who may ask there.

    Users of a namespace by view, edit and admin, to which a role is aggregated. Everybody may list what waits where
    they may list it. A role for nodes and devices is bound to nobody.
    """
    meta = {"name": NAME, "namespace": NAMESPACE}
    https = {"name": "https", "protocol": "TCP"}
    return (
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"ports": [{**https, "port": 443, "targetPort": port}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**meta, "labels": {"kubernetes.io/service-name": NAME}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
            "ports": [{**https, "port": port}],
        },
        _role(
            TENANT,
            [(["*/explanation"], "get"), (["explanations"], "list")],
            {"rbac.authorization.k8s.io/aggregate-to-view": "true"},
        ),
        _role(f"{NAME}-nodes", [([f"{plural}/explanation" for plural in _CLUSTER_SCOPED], "get")]),
        _role(f"{NAME}-list", [(["visibleexplanations"], "list")]),
        {
            "apiVersion": _RBAC,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{NAME}-list"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{NAME}-list"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}],
        },
    )


def _role(name: str, rules: Sequence[tuple[Sequence[str], str]], labels: Mapping[str, str] | None = None) -> Obj:
    written = [{"apiGroups": ["explain.haru.dev"], "resources": list(each), "verbs": [verb]} for each, verb in rules]
    meta = {"name": name, **({"labels": dict(labels)} if labels else {})}
    return {"apiVersion": _RBAC, "kind": "ClusterRole", "metadata": meta, "rules": written}
