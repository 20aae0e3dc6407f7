"""The answer of `haru allocate` as text."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]

_NAMES = 3


def show(answer: Obj) -> str:
    """What each claim gets on the first node that fits, and why other nodes do not."""
    lines = []
    if answer["fits"]:
        lines.append(f"fits on {_count(len(answer['nodes']))} of {answer['asked']}; on {answer['node']}:")
        for claim in answer["claims"]:
            lines += [f"  claim {claim['namespace']}/{claim['name']}", *_devices(claim["allocation"])]
    else:
        lines.append(f"does not fit on any of {_count(answer['asked'])}")
    for refusal in answer["refusals"]:
        lines += _refusal(refusal)
    return "\n".join(lines)


def _count(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"


def _devices(allocation: Obj) -> list[str]:
    lines = []
    for result in allocation["devices"]["results"]:
        more = []
        if result.get("consumedCapacity"):
            more.append(", ".join(f"{name} {value}" for name, value in result["consumedCapacity"].items()))
        if result.get("adminAccess"):
            more.append("admin access")
        line = f"    {result['request']}: {result['driver']}/{result['pool']}/{result['device']}"
        lines.append(f"{line} ({'; '.join(more)})" if more else line)
    return lines or ["    nothing is asked for"]


def _refusal(refusal: Obj) -> list[str]:
    names = refusal["nodes"]
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    lines = [f"not on {', '.join(names[:_NAMES])}{more}:"]
    if refusal.get("error"):
        lines.append(f"  error: {refusal['error']}")
    lines += [f"  {reason['message']}" for reason in refusal["reasons"]]
    for request in refusal["requests"]:
        steps = " > ".join(f"{stage['left']} {stage['condition']}" for stage in request["funnel"])
        needed = "all" if request["needed"] is None else request["needed"]
        lines.append(f"  {request['claim']} {request['request']} (needs {needed}): {steps or 'not looked at'}")
    return lines
