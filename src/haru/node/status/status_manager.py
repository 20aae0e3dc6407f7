"""Writing the status of a pod: what is known of it, as a patch of what the API has."""

from __future__ import annotations

from datetime import UTC, datetime

from haru.kube.errors import suppress_status
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj
from haru.kube.names import format_time
from haru.node.agent.context import Context
from haru.node.podworker.observed import SeenPod
from haru.node.status.container_status import StatusInputs
from haru.node.status.pod_status import pod_status, status_patch

PODS = known_kind("v1", "Pod")


class StatusManager:
    """Writes the status of pods of one node."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def update(self, pod: Obj, seen: SeenPod, known: StatusInputs) -> Obj | None:
        """Write a pod's status; the pod as the API has it then, None if nothing was written or there is no such pod.

        Raises `StatusError`, OSError.
        """
        status = pod_status(pod, seen, known, format_time(datetime.now(UTC)))
        health = self._context.devices.status(pod)
        for one in status.get("containerStatuses", ()):
            if health.get(one["name"]):
                one["allocatedResourcesStatus"] = list(health[one["name"]])
        patch = status_patch(pod.get("status") or {}, status)
        if patch is None:
            return None
        meta = pod["metadata"]
        body: Obj = {"metadata": {"uid": meta["uid"]}, "status": patch}
        with suppress_status(404, 409):
            return await self._context.client.patch(
                PODS, meta["name"], body, meta["namespace"], type="strategic", subresource="status"
            )
        return None
