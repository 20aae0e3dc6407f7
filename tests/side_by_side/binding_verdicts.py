"""In what the traces of two schedulers differ, for `bindings_compared`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from attaching_driver import Trace
from decision_verdicts import Devices, first_sentence
from manifests import Obj
from random_bindings import Scenario

_OF_ONE = (
    *("deallocation of ResourceClaim completed", "deletion of ResourceClaim completed", "not available on the node"),
    *(
        "cannot allocate all claims",
        "binding failed: ",
        "binding timeout: ",
        "is in the process of being allocated",
        "in the meantime",
    ),
    "waiting for ephemeral volume controller",
)
"""Words about what comes between a failure and the next attempt: only one scheduler frees claims at once."""
_PLACEMENTS = "0/1 placements are available, first placement status: "
_LOOKED_FOR = ("BindingConditionsPending", "Scheduled", "Preempted")


def differences(seen: Trace, ours: Trace, scenario: Scenario, *, is_disturbed: bool = False) -> list[str]:
    """In what the trace of kube-scheduler (`seen`) and Haru's differ, by name.

    Of schedulers that were killed or stopped meanwhile (`is_disturbed`) only what came of it in the end is compared.
    """
    if is_disturbed and any(name.startswith("extended ") for name in (*seen.claims, *ours.claims)):
        return []  # kube-scheduler refuses such a pod for the claim that it has left itself; Haru goes on with it
    if scenario.is_gang and not scenario.fails:
        seen, ours = _of_any_member(seen), _of_any_member(ours)
    bound = [set(map(bool, _but(one.nodes, scenario).values())) for one in (seen, ours)]
    if scenario.is_gang and scenario.ended:
        return []  # which member is deleted, the first or the last, is drawn; what its siblings had by then is not
    if scenario.is_gang and scenario.fails:
        # Members change places, and so devices; Haru binds none whose siblings get none, kube-scheduler goes by each.
        return ["gang"] if len(bound[1]) > 1 else []
    found = []
    nodes = [_but(one.nodes, scenario) for one in (seen, ours)]
    if is_disturbed:
        # How far each came in the same time differs.
        nodes = [{name: node for name, node in one.items() if all(other.get(name) for other in nodes)} for one in nodes]
    if nodes[0] != nodes[1]:
        found.append("nodes")
    if not _one_begins_another(seen.allocations, ours.allocations):
        found.append("allocations")
    if found and scenario.races and (scenario.ended or "device binding" in str(seen.messages)):
        return []
    if not found and not scenario.ended and bound[0] == {True} and _left(seen.claims) != _left(ours.claims):
        found.append("claims")
    if is_disturbed:
        return found
    if _words(seen, scenario) != _words(ours, scenario):
        found.append("messages")
    if _events(seen, scenario) != _events(ours, scenario):
        found.append("events")
    if _told(seen) != _told(ours):
        found.append("told")
    return found


def _of_any_member(trace: Trace) -> Trace:
    """The trace with members, and their claims, sorted by what they got: schedulers take them in any order."""
    nodes = {str(number): node for number, node in enumerate(sorted(trace.nodes.values()))}
    allocations = {str(number): one for number, one in enumerate(sorted(trace.allocations.values()))}
    return replace(trace, nodes=nodes, allocations=allocations, claims={})


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
    told = {text for texts in _but(trace.messages, scenario).values() for text in texts}
    # A condition may be gone before anybody sees it.
    told |= {note for name, reason, note, *_ in trace.events if reason == "FailedScheduling" and name != scenario.ended}
    if scenario.evicts:
        # Victims end one after the other.
        told = {text for text in told if "waiting for minCount" not in text}
    if scenario.is_disturbed:
        # A scheduler that looks more often comes to what is left once a claim, or node, is gone.
        told = {text for text in told if "cannot allocate all claims" not in text}
    if scenario.volumes not in ("", "true", "late"):
        # Devices are waited for before the volumes, or beside them.
        told = {text for text in told if "device binding" not in text}
    return {_plain(text.split(". Explanation: ")[0]) for text in told if not _is_of_one(text)}


def _events(trace: Trace, scenario: Scenario) -> set[tuple[str, ...]]:
    """Events without the pod; those of failures are among the words."""
    told = (one for one in trace.events if one[1] in _LOOKED_FOR and one[0] != scenario.ended)
    return {
        (reason, _named(note, trace, scenario), *more, *_related(kind, name))
        for _, reason, note, *more, kind, name in told
    }


def _related(kind: str, name: str) -> tuple[str, str]:
    """The other object of an event. kube-scheduler's recorder cannot name a pod that evicts, which it has wrapped."""
    return ("", "") if kind == "Pod" else (kind, name)


def _told(trace: Trace) -> set[tuple[str, ...]]:
    """Conditions of groups and victims. What Haru says of a group that waits for its victims stands in differences."""
    waiting = (("pod group is waiting for preemption to complete", "pod group is unschedulable"), (_PLACEMENTS, ""))
    told = set()
    for *one, message in trace.told:
        for words, instead in waiting:
            message = message.replace(words, instead)
        told.add((*one, _plain(message)))
    return told


def _named(note: str, trace: Trace, scenario: Scenario) -> str:
    """A note with names for identifiers, and of a gang without those of its members."""
    for uid, name in trace.uids.items():
        note = note.replace(uid, name)
    return re.sub(r"-p\d to ", " to ", note) if scenario.is_gang else note


def _is_of_one(text: str) -> bool:
    return any(words in text for words in _OF_ONE) and "device binding" not in text


def _plain(text: str) -> str:
    text = re.sub(r"-extended-resources-\w+", "-extended-resources-X", text)
    # kube-scheduler looks so seldom that a later condition may be the first that it sees, and not behind a device that
    # waits.
    text = re.sub(r"device binding (failed|timeout): .*", "device binding ended", text)
    # Nodes of other scenarios come and go, and reasons are sorted with their numbers.
    text = re.sub(r"0/\d+ nodes are available: ", "nodes, ", first_sentence(text))
    text = re.sub(r"\d+ node\(s\) didn't match Pod's node affinity/selector", "nodes", text)
    return ", ".join(sorted(set(text.split(", "))))
