"""Writing the status of a pod: what is known of it, as a patch of what the API has."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.kube.names import format_time
from haru.node.agent.context import Context
from haru.node.podworker.observed import SeenPod
from haru.node.podworker.plan import Probed
from haru.node.status.container_status import Known
from haru.node.status.pod_status import pod_status, status_patch

Obj = dict[str, Any]
PODS = known_kind("v1", "Pod")


class StatusManager:
    """Tells of pods on one node."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def tell(
        self,
        pod: Obj,
        seen: SeenPod,
        *,
        reasons: Mapping[str, tuple[str, str]],
        probed: Mapping[str, Probed],
        is_over: bool,
        failure: tuple[str, str] | None,
    ) -> Obj | None:
        """The pod as the API has it once its status was written; None if there was nothing to write, or no such pod.

        `reasons` are those of containers that wait, `failure` is the pod's. Raises `StatusError`, OSError.
        """
        known = Known(
            runtime=self._context.runtime_info.name,
            reasons=dict(reasons),
            probed=probed,
            host_ips=self._context.addresses,
            is_over=is_over,
            failure=failure,
        )
        status = pod_status(pod, seen, known, format_time(datetime.now(UTC)))
        health = self._context.devices.status(pod)
        for one in status["containerStatuses"]:
            if health.get(one["name"]):
                one["allocatedResourcesStatus"] = list(health[one["name"]])
        patch = status_patch(pod.get("status") or {}, status)
        if patch is None:
            return None
        meta = pod["metadata"]
        body: Obj = {"metadata": {"uid": meta["uid"]}, "status": patch}
        try:
            return await self._context.client.patch(
                PODS, meta["name"], body, meta["namespace"], type="strategic", subresource="status"
            )
        except StatusError as error:
            if error.code not in (404, 409):
                raise
            return None
