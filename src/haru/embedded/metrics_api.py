"""`metrics.k8s.io` in `haru up`: what simulated pods use by their annotations, for `kubectl top` and autoscalers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from haru.embedded.extension_api import (
    NAMESPACE,
    EmbeddedExtensionApi,
    ExtensionServer,
    cluster_role,
    service_objects,
)
from haru.embedded.part import METRICS_API
from haru.event_loop import imported
from haru.kube.meta import Obj

NAME: Final = "haru-simulated-metrics"
_READER: Final = "system:aggregated-metrics-reader"
_AGGREGATED: Final = {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in ("view", "edit", "admin")}


class EmbeddedMetricsApi(EmbeddedExtensionApi):
    """Reads only while it is asked. A metrics API that somebody else installed is left alone."""

    group = METRICS_API[0]

    async def make(self) -> ExtensionServer:
        """Make the server on a free port."""
        await imported("haru.simulated_nodes.metrics_server.server")
        from haru.secure_serving.options import ServingOptions
        from haru.simulated_nodes.metrics_server.server import MetricsServer

        options = ServingOptions(address="127.0.0.1", names=(f"{NAME}.{NAMESPACE}.svc",))
        return MetricsServer(self._client, options, self._now)

    def objects(self, server: ExtensionServer) -> Sequence[Obj]:
        """The Service, a role that view, edit and admin have, as of metrics-server, and the APIService."""
        from haru.simulated_nodes.metrics_server.server import api_service

        rules = [(("pods", "nodes"), ("get", "list", "watch"))]
        return (
            *service_objects(NAME, server.port),
            cluster_role(_READER, self.group, rules, _AGGREGATED),
            api_service(NAMESPACE, NAME, server.certificate),
        )
