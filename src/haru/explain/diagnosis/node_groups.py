"""What each node says to one more of the unit's pods, as the cluster is now: nodes that answer alike in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from haru.engine import Options, Reason, Snapshot
from haru.engine.dra import RequestFunnel
from haru.engine.framework import FilterFailure
from haru.engine.podgroup import diagnose_pod
from haru.engine.state import Diagnosis, NodeInfo
from haru.explain.diagnosis.device_classes import DeviceClassSurvey
from haru.explain.diagnosis.requests import MemberKind, asked_on
from haru.explain.diagnosis.unmet_labels import node_selector
from haru.explain.explanation import DeviceCounts, NodeGroup
from haru.explain.render.wording import amount_text, brief, values_text
from haru.kube.meta import Obj
from haru.kube.names import counted

_EXAMPLES = 3
_SELECTING = ("devices", "offered", "class", "selector", "node")
_OF_ROOM = ("InsufficientResource", "TooManyPods")
Answers = Mapping[str, Sequence[FilterFailure]]


def answers(
    snapshot: Snapshot, kind: MemberKind, group: Obj | None, options: Options, decided: Diagnosis | None = None
) -> Answers:
    """Return what every node says to one more such pod; empty for nodes that would take it.

    `decided` is the diagnosis of a decision on the same snapshot: if it is about such a pod, no node is asked again.
    """
    found = decided
    if found is None or found.pod != kind.pod.key:
        found = diagnose_pod(snapshot, kind.pod, group, options, snapshot.node_names)
    return {name: found.nodes.get(name, ()) for name in snapshot.node_names}


def unusable(found: Answers) -> dict[str, str]:
    """The nodes that the pod cannot use whatever devices they have, and why in a few words."""
    return {
        name: _brief_reason(failures[0].reason)
        for name, failures in found.items()
        if failures and failures[0].reason.type != "DevicesUnavailable"
    }


def served_by_nodes(snapshot: Snapshot, kind: MemberKind, found: Answers) -> int:
    """How many of the pods nodes take that serve their extended resources themselves (KEP-5004)."""
    if kind.demand.extended is None:
        return 0
    takers = [snapshot.nodes[name] for name, failures in found.items() if not failures]
    return sum(_room(node, kind, None) for node in takers if kind.demand.extended_claim_on(node) is None)


def _brief_reason(reason: Reason) -> str:
    if reason.type == "NodeUnschedulable":
        return "cordoned"
    if reason.type == "NodeTaints":
        return f"tainted {reason.data.get('taint')}"
    if reason.type in ("InsufficientResource", "TooManyPods"):
        return f"too little {reason.data['resource']} left"
    if reason.type == "VolumeNodeAffinity":
        return f"volume {reason.data['persistentVolume']} is elsewhere"
    return reason.message.replace("node(s) ", "")


def most_in_a_domain(
    snapshot: Snapshot, kind: MemberKind, survey: DeviceClassSurvey | None, found: Answers, key: str
) -> int:
    """How many of the pods the nodes with one value of a label could take together, at most."""
    room: Counter[str] = Counter()
    for name, failures in found.items():
        node = snapshot.nodes[name]
        if not failures and key in node.labels:
            requests = asked_on(kind, node) if kind.demand.extended is not None else None
            room[node.labels[key]] += _room(node, kind, _telling(survey, name, requests))
    return min(kind.pods, max(room.values(), default=0))


@dataclass(slots=True)
class _Group:
    rank: int
    names: list[str] = field(default_factory=list)
    failures: Sequence[FilterFailure] = ()
    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0, 0])
    best: dict[str, tuple[int, str]] = field(default_factory=dict)
    request: RequestFunnel | None = None
    room: int = 0
    before: int = 0
    together: int = 0
    takers: int = 0
    lacking: Counter[tuple[str, str]] = field(default_factory=Counter)


def node_groups(
    snapshot: Snapshot, kind: MemberKind, survey: DeviceClassSurvey | None, found: Answers
) -> tuple[NodeGroup, ...]:
    """The groups, those that come closest to taking the pod first."""
    pairs = node_selector(kind.pod)
    groups: dict[object, _Group] = {}
    telling: dict[object, RequestFunnel | None] = {}
    alike: dict[object, tuple[_Group, RequestFunnel | None]] = {}
    many: Counter[object] = Counter()
    same: dict[object, object] = {}  # what is said by these kinds of nodes with these very failures
    kind_of = survey.kind_of if survey is not None else {}
    for name in sorted(found):
        failures = found[name]
        requests = asked_on(kind, snapshot.nodes[name]) if kind.demand.extended is not None else None
        seen = (kind_of.get(name), requests)
        said = same.get((id(failures), seen))
        if said is None:
            if seen not in telling:
                telling[seen] = _telling(survey, name, requests)
            request = telling[seen]
            said = same[id(failures), seen] = (seen, *(_said(failure.reason) for failure in failures))
            if said not in alike:
                key, rank = _key(failures, request)
                alike[said] = (groups.setdefault(key, _Group(rank, failures=failures, request=request)), request)
        group, request = alike[said]
        many[said] += 1
        group.names.append(name)
        if pairs and failures and failures[0].reason.type == "NodeAffinityMismatch":
            labels = snapshot.nodes[name].labels
            group.lacking.update(pair for pair in pairs if labels.get(pair[0]) != pair[1])
        for failure in failures:
            if failure.reason.type in _OF_ROOM:
                _remember(group, name, failure.reason)
        if failures:
            group.failures = group.failures or failures
        else:
            group.takers += 1
            group.room += _room(snapshot.nodes[name], kind, request)
    for shared, count in many.items():
        group, request = alike[shared]
        group.counts = [total + count * number for total, number in zip(group.counts, _numbers(request), strict=True)]
        group.before += count * _refused_by_selector(request)
        group.together = max(group.together, request.together if request is not None else 0)
    ordered = sorted(groups.values(), key=lambda g: (-g.rank, -len(g.names), g.names[0]))
    return tuple(_told(group, survey, kind) for group in ordered)


def _telling(
    survey: DeviceClassSurvey | None, name: str, requests: frozenset[tuple[str, str]] | None = None
) -> RequestFunnel | None:
    """The request that a node fails at: the first that it cannot serve by any alternative, by the closest of these.

    Only these `requests` (claim and name) are asked of the node; None stands for all.
    """
    node = survey.kind_of.get(name) if survey is not None else None
    if survey is None or node is None or not node.funnel.requests:
        return None
    left = list(node.funnel.requests)
    first: RequestFunnel | None = None
    for claim in survey.claims:
        for request in claim.requests:
            own, left = left[: len(request.asks)], left[len(request.asks) :]
            if not own or (requests is not None and (claim.name, request.name) not in requests):
                continue
            first = first or own[0]
            if all(funnel.refusal is not None for funnel in own):
                return max(own, key=lambda f: (len(f.stages), f.stages[-1].left))
    return first


def _left(request: RequestFunnel, names: Sequence[str]) -> int:
    return next((stage.left for stage in reversed(request.stages) if stage.name in names), 0)


def _dropped(request: RequestFunnel, name: str) -> int:
    return sum(len(stage.dropped) for stage in request.stages if stage.name == name)


def _too_small(request: RequestFunnel) -> int:
    """How many devices would not have the requested capacity either if nobody used them."""
    return sum(int(stage.data["never"]) for stage in request.stages if stage.name == "capacity")


def _refused_by_selector(request: RequestFunnel | None) -> int:
    """How many devices the selector refuses that leaves none."""
    stages = request.stages if request is not None else ()
    return next((len(s.dropped) for s in stages if s.name == "selector" and not s.left), 0)


def _numbers(request: RequestFunnel | None) -> tuple[int, int, int, int, int]:
    if request is None:
        return 0, 0, 0, 0, 0
    taken = _dropped(request, "free")
    partly = _dropped(request, "counters") + _dropped(request, "capacity") - _too_small(request)
    return _left(request, _SELECTING), _dropped(request, "taints"), taken, partly, len(request.kept)


def _said(reason: Reason) -> tuple[str, object]:
    """What a node says, apart from its numbers."""
    what = next((reason.data[key] for key in ("taint", "resource", "persistentVolume") if reason.data.get(key)), None)
    return reason.type, what or reason.message


def _key(failures: Sequence[FilterFailure], request: RequestFunnel | None) -> tuple[object, int]:
    """What makes nodes alike, and how close they come."""
    if failures and failures[0].reason.type != "DevicesUnavailable":
        reasons = [failure.reason for failure in failures]
        devices = bool(request is not None and _left(request, _SELECTING))
        return ("node", *(_said(reason) for reason in reasons)), 6 if devices else 4
    if request is None:
        return ("takes" if not failures else failures[0].reason.message, None), 8 if not failures else 5
    if not _left(request, ("devices", "offered", "class")):
        return ("class", request.device_class), 1
    for stage in request.stages:
        if stage.name == "selector" and not stage.left:
            seen = tuple(sorted(repr(e["values"]) for e in stage.data["values"]))
            return ("selector", stage.data["expression"], seen), 2
    return ("selected", request.request, bool(_left(request, _SELECTING))), 7


def _remember(group: _Group, name: str, reason: Reason) -> None:
    """The node that has most left of a resource."""
    resource = str(reason.data["resource"])
    free = int(reason.data["allocatable"]) - int(reason.data["used"])
    if resource not in group.best or free > group.best[resource][0]:
        group.best[resource] = (free, name)


def _room(node: NodeInfo, kind: MemberKind, request: RequestFunnel | None) -> int:
    """How many such pods a node could take together, as far as its room and the first request go."""
    limits = [kind.pods]
    for resource, amount in kind.pod.requests.items():
        if amount:
            limits.append((node.allocatable.get(resource, 0) - node.requested.get(resource, 0)) // amount)
    if "pods" in node.allocatable:
        limits.append(node.allocatable["pods"] - len(node.pods))
    if request is not None and request.needed and len(kind.paths) >= kind.pods:
        limits.append(request.together // request.needed)
    return max(1, min(limits))


def _told(group: _Group, survey: DeviceClassSurvey | None, kind: MemberKind) -> NodeGroup:
    counts = DeviceCounts(*group.counts) if group.request is not None else None
    reasons = tuple(failure.reason for failure in group.failures)
    text = _text(group, counts, kind)
    fault = (survey.faults if survey is not None else {}).get(group.names[0])
    room = min(group.room, kind.pods) if group.takers else None
    left = {name: free for name, (free, _) in group.best.items()}
    return NodeGroup(len(group.names), tuple(group.names[:_EXAMPLES]), fault or text, reasons, counts, room, left)


def _text(group: _Group, counts: DeviceCounts | None, kind: MemberKind) -> str:
    first = group.failures[0].reason if group.failures else None
    if first is not None and first.type != "DevicesUnavailable":
        text = "; ".join(_node_reason(failure.reason, group) for failure in group.failures)
        return text + (f" ({counted(counts.free, 'matching device')} free there)" if counts and counts.free else "")
    if group.request is None or counts is None:
        if first is not None:
            return first.message
        return "would take the pod" if kind.pods == 1 else f"room for {min(group.room, kind.pods)} of the pods"
    return _device_text(group.request, counts, group)


def _device_text(request: RequestFunnel, counts: DeviceCounts, group: _Group) -> str:
    if request.refusal is not None and request.refusal.type in ("DeviceClassMissing", "RequestInvalid"):
        return request.refusal.message
    for stage in request.stages:
        if stage.name in ("devices", "offered", "class") and not stage.left:
            return f"no device of class {request.device_class}"
        if stage.name == "selector" and not stage.left:
            seen = " or ".join(values_text(entry["values"]) for entry in stage.data["values"][:2])
            why = f" ({seen})" if seen else ""
            if stage.data["errors"]:
                error = f"selector {brief(stage.data['expression'])}: {stage.data['error']}"
                return f"{counted(group.before, 'device')}: {error}"
            return f"{counted(group.before, 'device')}, none passes {brief(stage.data['expression'])}{why}"
    parts = [
        (counts.tainted, "tainted"),
        (counts.taken, "taken"),
        (counts.partly_taken, "used in part by others"),
        (counts.other if _too_small(request) else 0, "without the capacity asked for"),
    ]
    told = [counted(counts.selected, "device"), *(f"{count} {word}" for count, word in parts if count)]
    together = _apart(request, counts, group)
    return ", ".join([*told, f"{counts.free} free"]) + together


def _apart(request: RequestFunnel, counts: DeviceCounts, group: _Group) -> str:
    needed = request.needed or 0
    if group.takers or not counts.free or not needed:
        return ""
    if group.together < needed <= counts.free:
        return f", but never {needed} together on one node"
    if request.refusal is None or request.refusal.type == "ConstraintUnsatisfied":
        return ", but not all that the pod asks for at once"
    return ""


def _node_reason(reason: Reason, group: _Group) -> str:
    words = _WORDS.get(reason.type)
    return words(reason, group) if words is not None else reason.message.removeprefix("node(s) ")


def _insufficient(reason: Reason, group: _Group) -> str:
    resource = str(reason.data["resource"])
    free, name = group.best[resource]
    asked, left = amount_text(resource, int(reason.data["requested"])), amount_text(resource, max(0, free))
    most = f", the most is {left} on {name}" if len(group.names) > 1 else f", {left} left"
    size = amount_text(resource, int(reason.data["allocatable"]))
    of = f" of {size}" if len(group.names) == 1 else ""
    return f"insufficient {resource}: {asked} asked{most}{of}"


def _lacking(group: _Group) -> str:
    """The labels that keep the pod away: those that all of the nodes lack, else those that some of them lack."""
    if not group.lacking:
        return "the labels do not match the pod's node affinity"
    common = sorted(pair for pair, count in group.lacking.items() if count == len(group.names))
    texts = [f"{key}={value}" for key, value in common or sorted(group.lacking)]
    return f"without {(' and ' if common else ' or ').join(texts)}"


_WORDS: Mapping[str, Callable[[Reason, _Group], str]] = {
    "NodeUnschedulable": lambda reason, group: "cordoned",
    "NodeTaints": lambda reason, group: f"tainted {reason.data.get('taint')}",
    "NodeAffinityMismatch": lambda reason, group: _lacking(group),
    "PortsTaken": lambda reason, group: f"host port {', '.join(map(str, reason.data['ports']))} is in use",
    "VolumeNodeAffinity": lambda reason, group: (
        f"volume {reason.data['persistentVolume']} cannot be reached from there"
    ),
    "InsufficientResource": _insufficient,
    "TooManyPods": _insufficient,
}
