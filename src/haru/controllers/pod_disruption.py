"""The condition that tells why a pod was taken away: DisruptionTarget.

Source: KEP-3329 (pod disruption conditions).
"""

from __future__ import annotations

from typing import Any

from haru.client.informer import Informer
from haru.controllers.base import Controller
from haru.controllers.objects import is_terminal
from haru.kube.errors import suppress_status
from haru.kube.meta import Obj, get_condition


async def mark_disrupted(controller: Controller, pods: Informer, pod: Obj, reason: str, message: str) -> None:
    """Set `DisruptionTarget=True`. A pod that is gone is fine."""
    current = get_condition(pod, "DisruptionTarget")
    if current is None or (current["status"], current.get("reason")) != ("True", reason):
        await _patch(controller, pods, pod, {"conditions": [_condition(controller, reason, message)]})


async def mark_disrupted_and_failed(
    controller: Controller, pods: Informer, pod: Obj, reason: str, message: str
) -> None:
    """Set `DisruptionTarget=True` and the phase, for a pod whose kubelet cannot. A pod that is gone is fine."""
    condition = _condition(controller, reason, message)
    await _patch(controller, pods, pod, {"conditions": [condition], "phase": "Failed"})


def _condition(controller: Controller, reason: str, message: str) -> Obj:
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": controller.timestamp(),
    }


async def mark_failed(controller: Controller, pods: Informer, pod: Obj) -> None:
    """End a pod that never ran and never will. A pod that has ended or is gone is fine."""
    if not is_terminal(pod):
        await _patch(controller, pods, pod, {"phase": "Failed"})


async def _patch(controller: Controller, pods: Informer, pod: Obj, status: dict[str, Any]) -> None:
    with suppress_status(404):
        await controller.patch(pods, pod, {"status": status}, type="strategic", subresource="status")
