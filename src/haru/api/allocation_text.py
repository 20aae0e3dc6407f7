"""The answer of `haru allocate` as text."""

from __future__ import annotations

from haru.api.allocation_data import AllocationData, RefusedOn
from haru.kube.meta import Obj
from haru.kube.names import counted, names_text

MOST_NODES = 3
"""How many nodes of a refusal are named."""


def to_text(answer: AllocationData) -> str:
    """Render the allocations on the first node that fits, and why other nodes do not."""
    lines = []
    if answer.fits:
        lines.append(f"fits on {counted(len(answer.nodes), 'node')} of {answer.asked}; on {answer.node}:")
        for claim in answer.claims:
            lines += [f"  claim {claim.namespace}/{claim.name}", *_devices(claim.allocation)]
    else:
        lines.append(f"does not fit on any of {counted(answer.asked, 'node')}")
    for refusal in answer.refusals:
        lines += _refusal(refusal)
    return "\n".join(lines)


def device_text(result: Obj) -> str:
    """One allocated device: `DRIVER/POOL/DEVICE (what it takes of it)`."""
    more = []
    if result.get("consumedCapacity"):
        more.append(", ".join(f"{name} {value}" for name, value in result["consumedCapacity"].items()))
    if result.get("adminAccess"):
        more.append("admin access")
    line = f"{result['driver']}/{result['pool']}/{result['device']}"
    return f"{line} ({'; '.join(more)})" if more else line


def request_text(request: Obj) -> str:
    """How the devices narrow down for a request."""
    steps = " > ".join(f"{stage['left']} {stage['condition']}" for stage in request["funnel"])
    return steps or "not looked at"


def _devices(allocation: Obj) -> list[str]:
    lines = [f"    {result['request']}: {device_text(result)}" for result in allocation["devices"]["results"]]
    return lines or ["    nothing is asked for"]


def _refusal(refusal: RefusedOn) -> list[str]:
    lines = [f"not on {names_text(refusal.nodes, MOST_NODES)}:"]
    if refusal.error:
        lines.append(f"  error: {refusal.error}")
    lines += [f"  {reason['message']}" for reason in refusal.reasons]
    for request in refusal.requests:
        needed = "all" if request["needed"] is None else request["needed"]
        lines.append(f"  {request['claim']} {request['request']} (needs {needed}): {request_text(request)}")
    return lines
