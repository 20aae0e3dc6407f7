"""`explain.haru.dev` in `haru up`: the resident answer behind the cluster's own aggregation layer.

It watches only while it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.embedded.extension_api import (
    NAMESPACE,
    RBAC,
    EmbeddedExtensionApi,
    ExtensionServer,
    cluster_role,
    service_objects,
)
from haru.embedded.part import EXPLAIN_API
from haru.event_loop import imported
from haru.kube.meta import Obj

NAME = "haru-explain"
TENANT = "haru-explain"
_CLUSTER_SCOPED = ("nodes", "devices", "deviceclasses")


class EmbeddedExplainApi(EmbeddedExtensionApi):
    """Serves explanations on a loopback port of its own."""

    group = EXPLAIN_API[0]

    async def make(self) -> ExtensionServer:
        """Make the server on a free port."""
        await imported("haru.explain_server.server")
        from haru.explain_server import ExplainServer
        from haru.secure_serving.options import ServingOptions

        options = ServingOptions(address="127.0.0.1", names=(f"{NAME}.{NAMESPACE}.svc",))
        return ExplainServer(self._client, options, resident=False, now=self._now)

    def objects(self, server: ExtensionServer) -> Sequence[Obj]:
        """What leads to the server, and who may ask there."""
        from haru.explain_server import api_service

        return (*objects(server.port), api_service(NAMESPACE, NAME, bundle=server.certificate))


def objects(port: int) -> tuple[Obj, ...]:
    """What leads to the port, and who may ask there.

    Users of a namespace by view, edit and admin, to which a role is aggregated. Everybody may list what waits where
    they may list it. A role for nodes and devices is bound to nobody.
    """
    group, get, listing = EmbeddedExplainApi.group, ("get",), ("list",)
    return (
        *service_objects(NAME, port),
        cluster_role(
            TENANT,
            group,
            [(["*/explanation"], get), (["explanations"], (*get, *listing))],
            {"rbac.authorization.k8s.io/aggregate-to-view": "true"},
        ),
        cluster_role(f"{NAME}-nodes", group, [([f"{plural}/explanation" for plural in _CLUSTER_SCOPED], get)]),
        cluster_role(f"{NAME}-list", group, [(["visibleexplanations"], listing)]),
        {
            "apiVersion": RBAC,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{NAME}-list"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{NAME}-list"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}],
        },
    )
