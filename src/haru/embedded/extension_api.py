"""An extension API server in `haru up`, behind the cluster's own aggregation layer.

It starts a moment after the cluster is ready, so that no start waits for it; who asks before then waits for it at the
API server. Its failure ends no other component.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

from haru.client.api import ApiClient
from haru.clock import utc_now
from haru.event_loop import cancelled
from haru.kube.errors import StatusError, suppress_status
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj

NAMESPACE: Final = "kube-system"
DELAY_SECONDS: Final = 0.5
"""By then the start is over: what is imported takes two tenths of a second of a processor."""
RBAC: Final = "rbac.authorization.k8s.io/v1"
_API_SERVICES: Final = known_kind("apiregistration.k8s.io/v1", "APIService")
_log = logging.getLogger(__name__)


class ExtensionServer(Protocol):
    """A server on a port of its own."""

    @property
    def port(self) -> int:
        """The port that is served."""

    @property
    def certificate(self) -> bytes:
        """The serving certificate, in PEM."""

    async def start(self) -> None:
        """Listen."""

    async def stop(self) -> None:
        """Close."""


class EmbeddedExtensionApi(ABC):
    """Serves on a loopback port and writes what leads there; `ready` once it has."""

    group = ""

    def __init__(
        self,
        client: ApiClient,
        writer: ApiClient,
        now: Callable[[], datetime] = utc_now,
        delay: float = DELAY_SECONDS,
    ) -> None:
        self._client, self._writer, self._now, self._delay = client, writer, now, delay
        self._server: ExtensionServer | None = None
        self._task: asyncio.Task[None] | None = None
        self.ready = asyncio.Event()

    async def start(self) -> None:
        """Begin a moment later."""
        self._task = asyncio.create_task(self._serve(), name=self.group)

    async def stop(self) -> None:
        """Close the port."""
        if self._task is not None:
            await cancelled(self._task)
        if self._server is not None:
            await self._server.stop()

    @abstractmethod
    async def make(self) -> ExtensionServer:
        """Make the server; its modules are imported only now."""

    @abstractmethod
    def objects(self, server: ExtensionServer) -> Sequence[Obj]:
        """Return what leads to the server, its APIService at last."""

    async def _serve(self) -> None:
        await asyncio.sleep(self._delay)
        try:
            server = await self.make()
            await server.start()
            self._server = server
            *leading, service = self.objects(server)
            if await self._is_foreign(service):
                _log.info("%s is served by somebody else", self.group)
                return
            for obj in (*leading, service):
                await self._put(obj)
            self.ready.set()
        except (StatusError, OSError, ValueError) as error:
            _log.warning("%s is not served: %s", self.group, error)

    async def _is_foreign(self, service: Obj) -> bool:
        """Whether an APIService leads elsewhere: whoever installed one of the group has it."""
        with suppress_status(404):
            there = await self._writer.get(_API_SERVICES, service["metadata"]["name"])
            led = (there.get("spec") or {}).get("service") or {}
            wanted = service["spec"]["service"]
            return bool((led.get("namespace"), led.get("name")) != (wanted["namespace"], wanted["name"]))
        return False

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


def service_objects(name: str, port: int) -> tuple[Obj, Obj]:
    """A Service without a selector, and the EndpointSlice that has it lead to a loopback port."""
    meta = {"name": name, "namespace": NAMESPACE}
    https = {"name": "https", "protocol": "TCP"}
    service: Obj = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {"ports": [{**https, "port": 443, "targetPort": port}]},
    }
    endpoints: Obj = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**meta, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
        "ports": [{**https, "port": port}],
    }
    return service, endpoints


def cluster_role(
    name: str, group: str, rules: Sequence[tuple[Sequence[str], Sequence[str]]], labels: Mapping[str, str] | None = None
) -> Obj:
    """A ClusterRole of resources and verbs in one group."""
    written = [{"apiGroups": [group], "resources": list(each), "verbs": list(verbs)} for each, verbs in rules]
    meta = {"name": name, **({"labels": dict(labels)} if labels else {})}
    return {"apiVersion": RBAC, "kind": "ClusterRole", "metadata": meta, "rules": written}
