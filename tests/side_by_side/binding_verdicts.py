"""In what the traces of two schedulers differ, for `bindings_compared`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from attaching_driver import Trace
from decision_verdicts import Devices, first_sentence
from manifests import Obj
from random_bindings import Scenario

_OF_ONE = (
    *("deallocation of ResourceClaim completed", "deletion of ResourceClaim completed", "not available on the node"),
    *("binding failed: ", "binding timeout: ", "is in the process of being allocated", "in the meantime"),
)
"""Words about what comes between a failure and the next attempt: only one scheduler frees claims at once."""
_LOOKED_FOR = ("BindingConditionsPending", "FailedScheduling", "Scheduled")


def differences(seen: Trace, ours: Trace, scenario: Scenario) -> list[str]:
    """In what the trace of kube-scheduler (`seen`) and Haru's differ, by name."""
    bound = [set(map(bool, one.nodes.values())) for one in (seen, ours)]
    if scenario.is_gang:
        # Members change places, and Haru binds none whose siblings get no devices; kube-scheduler goes by each alone.
        return ["gang"] if len(bound[1]) > 1 or (bound[0] == {True} and bound[1] != {True}) else []
    found = []
    if _but(seen.nodes, scenario) != _but(ours.nodes, scenario):
        found.append("nodes")
    if not _one_begins_another(seen.allocations, ours.allocations):
        found.append("allocations")
    if found and scenario.races and (scenario.ended or "device binding" in str(seen.messages)):
        return []
    if not found and bound[0] == {True} and _left(seen.claims) != _left(ours.claims):
        found.append("claims")
    if _words(seen, scenario) != _words(ours, scenario):
        found.append("messages")
    if _events(seen, scenario) != _events(ours, scenario):
        found.append("events")
    return found


def _but(found: Mapping[str, Any], scenario: Scenario) -> dict[str, Any]:
    """What there is by pod, but for the pod that was deleted: a scheduler that looks more often had bound it before."""
    return {name: one for name, one in found.items() if name != scenario.ended}


def _one_begins_another(some: Mapping[str, list[Devices]], others: Mapping[str, list[Devices]]) -> bool:
    """Whether each claim got the same devices in the same order, as far as both schedulers came."""
    pairs = ((some.get(name, []), others.get(name, [])) for name in some.keys() | others.keys())
    return all(all(one == other for one, other in zip(first, second, strict=False)) for first, second in pairs)


def _left(claims: Mapping[str, Obj]) -> dict[str, object]:
    """What is in the claims of pods that are bound."""
    return {
        name: (
            sorted(one["name"] for one in status.get("reservedFor") or ()),
            sorted((one["device"], str(one.get("conditions"))) for one in status.get("devices") or ()),
        )
        for name, status in claims.items()
    }


def _words(trace: Trace, scenario: Scenario) -> set[str]:
    """What pods were told; of two that share a claim either is told first that it failed."""
    told = _but(trace.messages, scenario).values()
    return {_plain(text) for texts in told for text in texts if not _is_of_one(text)}


def _events(trace: Trace, scenario: Scenario) -> set[tuple[str, str]]:
    """Events; of failures without their notes, which in a series are those of the first, and without the pod."""
    told = (one for one in trace.events if one[1] in _LOOKED_FOR and one[0] != scenario.ended)
    return {(reason, "" if reason == "FailedScheduling" else note) for _, reason, note in told}


def _is_of_one(text: str) -> bool:
    return any(words in text for words in _OF_ONE) and "device binding" not in text


def _plain(text: str) -> str:
    text = re.sub(r"-extended-resources-\w+", "-extended-resources-X", text)
    # kube-scheduler looks so seldom that a later condition may be the first that it sees, and not behind a device that
    # waits.
    text = re.sub(r"device binding (failed|timeout): .*", "device binding ended", text)
    return first_sentence(text)
