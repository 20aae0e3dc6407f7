"""PodResizeValidator: a pod that is resized must still fit on its node, if it were alone there.

What does not fit beside the other pods is accepted: the kubelet defers it until there is room.
Source: admission plugin PodResizeValidator, as behaviour; KEP 1287.
"""

from __future__ import annotations

from typing import Final

from haru.apiserver.request.call import Call
from haru.kube.errors import StatusError, forbidden_error
from haru.kube.meta import Obj, labels_of
from haru.kube.quantity import Quantity
from haru.kube.resources import parse_resource_list, pod_requests

_OS: Final = "kubernetes.io/os"
_NOTHING: Final = Quantity(0)


async def check_room_on_node(call: Call, new: Obj, old: Obj) -> None:
    """On resize of a pod that is bound: 403 for more than the node has, and on a node that can not resize."""
    name = new["spec"].get("nodeName")
    if not name or new["metadata"].get("generation") == old["metadata"].get("generation"):
        return
    node = await call.objects.peek("", "nodes", "", name)
    if node is None:
        raise _refusal(call, f'node "{name}" not found')
    system = labels_of(node).get(_OS, "linux")
    if system != "linux":
        why = f'pod resize is only supported on linux nodes, node "{name}" is "{system}"'
        raise _refusal(call, why, "UnsupportedPlatform")
    lacking = _lacking(new["spec"], (node.get("status") or {}).get("allocatable"))
    if lacking:
        why = "node didn't have enough allocatable resources: " + "; ".join(lacking)
        raise _refusal(call, why, "NodeCapacity")


def _lacking(spec: Obj, allocatable: Obj | None) -> list[str]:
    """The requests of the spec that exceed the node's allocatable resources, without regard to other pods."""
    requests, given = pod_requests({"spec": spec}), parse_resource_list(allocatable)
    found = []
    for name in ("cpu", "memory"):
        wanted, there = requests.get(name, _NOTHING), given.get(name, _NOTHING)
        if wanted > there:
            amounts = (wanted.milli(), there.milli()) if name == "cpu" else (wanted.value(), there.value())
            found.append(f"{name}, requested: {amounts[0]}, allocatable: {amounts[1]}")
    return found


def _refusal(call: Call, why: str, cause: str = "") -> StatusError:
    error = forbidden_error("", "pods", call.name, why)
    if cause:
        error.details["causes"] = [{"reason": cause}]
    return error
