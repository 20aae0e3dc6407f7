"""In what two outcomes of one decision differ, and which of these differences are known."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from manifests import Obj

from haru.kube.quantity import parse_quantity

Devices = list[tuple[Any, ...]]
KNOWN = {
    "summary": "words about preemption: where devices are missing, and of a pod that was rejected before any node",
    "more": "Haru binds, or tells of, more members of a gang: it searches; kube-scheduler takes what fits first",
    "extras": "kube-scheduler evicts for members beyond the quorum",
    "evicts for devices": "Haru evicts for devices; kube-scheduler's trial leaves a victim's claims allocated",
    "whole": "for a single pod kube-scheduler evicts members of a group that is disrupted as a whole one by one",
    "promised": "Haru lets a pod use what a victim has now and its preemptor will have later; kube-scheduler adds both",
    "rules": "kube-scheduler passes over rules of nominated pods where neither pod nor bound pods have any",
    "ending": "kube-scheduler takes pods that are being deleted for victims as any other; Haru waits for them",
    "domain": "kube-scheduler tells of any of the domains to which a group may be bounded",
    "domains": "kube-scheduler evicts nobody for a group that is bounded to a domain",
    "quorum": "a reprieve of kube-scheduler's may lower the number of members that fit, down to the quorum",
    "others first": "a change woke several units: one that kube-scheduler decided first has what this one would get",
    "any node": "an error on any of the nodes, which kube-scheduler filters side by side, ends the attempt",
    "several": "some of these at once",
    "asked first": "kube-scheduler asks for new claims first on a node where an allocated one cannot be used",
    "shared": "kube-scheduler places members also where the devices of a claim that they share are not",
    "sleeps": "no Node wakes pods that kube-scheduler refused for the volumes of another: a CSINode or pod does",
    "together": "kube-scheduler gives several members that it places together one ReadWriteOncePod claim",
    "sole use": "in preemption for a group a ReadWriteOncePod claim counts as used though its user is thought away",
    "waits": "for a pod that somebody else nominated kube-scheduler evicts nobody while any other is evicted there",
    "elsewhere": "Haru evicts pods of other nodes for a pod for which no single node can be freed",
    "lists": "kube-scheduler's allocator knows no attributes with several values in constraints",
    "distinct": "kube-scheduler remembers the last device of a request alone for a distinctAttribute",
    "counters": "kube-scheduler's allocator goes on counting a device that it tried in vain, or that may be shared",
    "ignored": "kube-scheduler asks for resources that its profile ignores where others stand for devices",
    "mapped": "kube-scheduler counts no allocated claim against its node, and looks for its users on that node alone",
    "mappings": "kube-scheduler cannot bind a pod with a claim to a node that serves its extended resources itself",
    "quota": "a quota refuses the claim that the scheduler makes for extended resources: no part of the decision",
}
"""Differences that are understood; those on purpose stand in docs/differences.md."""
_FAILED_BINDINGS = {
    "quota": "exceeded quota",
    "elsewhere": "Haru evicts pods of other nodes for a pod for which no single node can be freed",
    "lists": "kube-scheduler's allocator knows no attributes with several values in constraints",
    "mapped": "kube-scheduler counts no allocated claim against its node, and looks for its users on that node alone",
    "mappings": "nil or empty request mappings",
}
MESSAGES = {"message", "summary", "words of preemption", "asked first"}
"""Differences of texts alone."""
_OF_DEVICES = ("cannot allocate all claims", "resourceclaim not available on the node", "invalid resource pools")
_ENDS = r"no new claims to deallocate|still not schedulable|not found"
_OF_GROUPS = "workload aware preemption enabled|placement-based pod group scheduling limitation"
_ABOUT_GROUPS = ("waiting for minCount", "pod group is", "placements are available", "no feasible placements found")


@dataclass(frozen=True)
class Placement:
    """What a pod got: a node, or a message and perhaps a nominated node."""

    node: str = ""
    message: str = ""
    nominated: str = ""


@dataclass(frozen=True)
class Outcome:
    """What became of a unit. `nominates`: places are promised, and nothing is said about the pods yet.

    `volumes`: by volume claim that waited for a node, the volume, or for which node one is made (`made_for`).
    """

    pods: Mapping[str, Placement]
    victims: Sequence[str] = ()
    devices: Mapping[str, Devices] = field(default_factory=dict)
    nominates: bool = False
    volumes: Mapping[str, str] = field(default_factory=dict)

    @property
    def bound(self) -> dict[str, bool]:
        """Which of the pods have a node."""
        return {name: bool(one.node) for name, one in self.pods.items()}

    def nodes(self) -> dict[str, str]:
        """The node of each pod."""
        return {name: one.node for name, one in self.pods.items()}


def made_for(node: str) -> str:
    """What stands for a volume that is made for a node."""
    return f"made for {node}"


def devices_of(allocation: Obj | None) -> Devices:
    """The devices of an allocation, its nodes and configuration, without what differs from run to run."""
    devices = (allocation or {}).get("devices") or {}
    plain = ("request", "pool", "device", "adminAccess")
    told = ("driver", "tolerations", "bindingConditions", "bindingFailureConditions")
    found = [
        (
            *(one.get(key) or "" for key in plain),
            json.dumps(one.get("consumedCapacity")),
            *(json.dumps(one.get(key) or "", sort_keys=True) for key in told),
        )
        for one in devices.get("results") or ()
    ]
    more = ("config", devices.get("config")), ("nodeSelector", (allocation or {}).get("nodeSelector"))
    return sorted(found) + [("", name, json.dumps(one, sort_keys=True)) for name, one in more if one]


def of_node(pod: str, statuses: Iterable[Obj]) -> dict[str, Devices]:
    """What devices take of the node, of `status.nodeAllocatableResourceClaimStatuses`."""
    found = [
        (
            one["resourceClaimName"],
            *one["containers"],
            str({k: parse_quantity(v).nano for k, v in sorted(one["resources"].items())}),
        )
        for one in statuses
    ]
    return {f"node of {pod}": sorted(found)} if found else {}


def of_containers(pod: str, mappings: Iterable[Obj]) -> dict[str, Devices]:
    """Which container gets what, of `status.extendedResourceClaimStatus.requestMappings`."""
    return {f"containers of {pod}": sorted(tuple(sorted(one.items())) for one in mappings)}


def differences(
    seen: Outcome,
    expected: Iterable[Outcome],
    grouped: bool,
    promised: bool = False,
) -> tuple[str, ...]:
    """In what `seen` differs from the outcome that is most like it; any of the expected would be right.

    Members of a gang (`grouped`) may change places. Messages are not compared where other pods hold promised places
    (`promised`): they tell of the moment at which they were written.
    """
    found = (_different(seen, one, grouped, promised) for one in expected)
    return min(found, key=lambda names: (any(name not in KNOWN for name in names), len(names)))


def _different(seen: Outcome, expected: Outcome, grouped: bool, promised: bool) -> tuple[str, ...]:
    found = [*_bindings(seen, expected, grouped), *_victims(seen, expected)]
    if grouped:
        if found != ["more members"] and sorted(seen.nodes().values()) != sorted(expected.nodes().values()):
            found.append("nodes")
    else:
        found += ["node"] if seen.nodes() != expected.nodes() else []
        # kube-scheduler leaves nominations as they are where an error of its own ends an attempt.
        told = [name for name, one in seen.pods.items() if not one.message.endswith(". not found")]
        nominated = ({name: each.pods[name].nominated for name in told} for each in (seen, expected))
        found += ["nominated"] if next(nominated) != next(nominated) else []
    if not (found or promised or expected.nominates):
        found += _messages(seen, expected, grouped)
    if not found and all(seen.bound.values()) and seen.nodes() == expected.nodes():
        found += ["devices"] if seen.devices != expected.devices else []
        found += ["volumes"] if seen.volumes != expected.volumes else []
    known = _failed_binding(seen) if found else ""
    return (known,) if known else tuple(found)


def _failed_binding(seen: Outcome) -> str:
    """The known cause for which a pod that had a node was not bound, if there is one."""
    told = [one.message for one in seen.pods.values()]
    return next((name for name, words in _FAILED_BINDINGS.items() if any(words in one for one in told)), "")


def _bindings(seen: Outcome, expected: Outcome, grouped: bool) -> list[str]:
    if not grouped:
        return ["bound"] if seen.bound != expected.bound else []
    before, after = sum(seen.bound.values()), sum(expected.bound.values())
    if before == after:
        return []
    return ["more members" if after > before and not expected.victims and not seen.victims else "bound"]


def _victims(seen: Outcome, expected: Outcome) -> list[str]:
    return [] if sorted(seen.victims) == sorted(expected.victims) else ["victims"]


def _messages(seen: Outcome, expected: Outcome, grouped: bool) -> list[str]:
    ours, theirs = ([one.message for one in each.pods.values()] for each in (expected, seen))
    if sorted(plain(text, grouped) for text in ours) == sorted(plain(text, grouped) for text in theirs):
        return []
    first = [sorted(map(first_sentence, texts)) for texts in (ours, theirs)]
    if first[0] != first[1]:
        alike = [[_with_claims_together(text) for text in texts] for texts in first]
        return ["asked first" if sorted(alike[0]) == sorted(alike[1]) else "message"]
    told = [*ours, *(text for text in theirs if not text.endswith(". not found"))]
    is_known = len(told) < len(ours) + len(theirs) or any(words in text for words in _OF_DEVICES for text in told)
    return ["summary" if is_known else "words of preemption"]


def plain(message: str, grouped: bool = False) -> str:
    """A message without what is worded in another way on purpose."""
    message = re.sub(r"\. not found$", "", _without_plugin(message))
    if grouped:
        # Haru names an error of the trial for preemption by itself.
        message = message.removeprefix("failed to schedule other pod from a pod group: ")
        message = re.sub(rf"\.? ?({_ENDS}), preemption: not eligible due to ({_OF_GROUPS})$", "", message)
        if any(words in message for words in _ABOUT_GROUPS):
            return "about the group"
    return message.rstrip(". ")


def first_sentence(message: str) -> str:
    """A message without what it says about preemption."""
    found = re.sub(r"\. preemption: claim .*", "", _without_plugin(message))  # an error of the trial
    return re.sub(rf"\.? ?({_ENDS})(, preemption: .*)?$", "", found).rstrip(". ")


def _with_claims_together(message: str) -> tuple[int, str]:
    """How many nodes refuse a pod for its claims, new or allocated ones, and what else the message says."""
    of_claims = rf"(\d+) (?:{'|'.join(_OF_DEVICES[:2])})(?:, )?"
    return sum(map(int, re.findall(of_claims, message))), re.sub(of_claims, "", message).rstrip(", ")


def _without_plugin(message: str) -> str:
    return message.replace('running "DynamicResources" filter plugin: ', "")
