"""What a node tells of its pods, without what differs from run to run, and what is known to differ.

Source of what is known: docs/differences.md.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from manifests import Obj

_VARIES = re.compile(
    r"uid|resourceVersion|managedFields|[a-z]+Timestamp|[a-zA-Z]+Time|(started|finished)At|containerID|imageID|image"
    r"|(pod|host)IPs?|generation|observedGeneration|restartCount|qosClass"
)
_TEXTS = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}"), "UID"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)"), "TIME"),
    (re.compile(r"\b(in|back-off) \d[\dms.]*( \([\dms.]+ including waiting\))?"), r"\1 T"),
    (re.compile(r"\b24[78](\d\d)\b"), r"PORT-\1"),
    (re.compile(r"(/containers/[a-z]+/)[0-9a-f]{8}\b"), r"\1START"),
    (re.compile(r"\d+ characters requested"), "N characters requested"),
    (re.compile(r"^\(combined from similar events\): "), ""),
    (re.compile(r"\bread udp [\d.]+:\d+"), "read udp ADDRESS"),
    (re.compile(r"\b10\.213\.\d+\.\d+"), "POD-IP"),
    (re.compile(r"kubelets-compared-\d+-(kubelet|haru)"), "GROUP"),
    (re.compile(r"(kubelet|haru)-\d+"), "NAMESPACE"),
    # Go's client says either.
    (re.compile(r"net/http: HTTP/1\.x transport connection broken: (malformed)"), r"\1"),
    # A kubelet says it twice of what it translates.
    (re.compile(r"(Internal error occurred: ){2}"), r"\1"),
    # Annotations that a kubelet adds to the pod's.
    (re.compile(r'\n?kubernetes\.io/config\.(seen|source)="[^"\n]*"'), ""),
    # Set when it is mounted, or afterwards.
    (re.compile(r",mode=3777,gid=\d+"), ""),
    (re.compile(r"(available:|was using|below current usage) \(?\d+\w*"), r"\1 AMOUNT"),
)


class Node(Protocol):
    """A node that is asked."""

    @property
    def name(self) -> str:
        """Which kubelet it has."""

    @property
    def node(self) -> str:
        """The name of its Node."""

    @property
    def home(self) -> Path:
        """Its directory."""

    def listed(self, namespace: str, kind: str) -> list[Obj]:
        """The objects of a namespace."""


@dataclass(frozen=True)
class Known:
    """What does not count of a pod: members of its status, lines."""

    members: Sequence[str] = ()
    lines: str = "(?!)"


FORGOTTEN: Final = ("volume-limit", "e-logs", "e-prestop", "deadline-crash", "sandbox-dies")
"""Pods with containers that a kubelet may have removed before it tells how they ended."""
_REFUSED: Final = Known(("conditions", "containerStatuses"))
"""A pod that is refused when its node starts again."""
_UNMOUNTED: Final = Known(lines="event: Warning FailedMount ")
"""Volumes that haru node does not mount, or whose sources went while they were mounted."""
KNOWN: Final = {
    **dict.fromkeys(("again-refused", "boot-refused"), _REFUSED),
    **dict.fromkeys(("pvc-missing", "v-csi", "v-nfs", "v-gone", "v-key-gone", "v-secret-gone"), _UNMOUNTED),
    "driver-silent": Known(lines=r"event: .* NodePrepareResources skipped "),
    "resize-restart": Known(("resources",)),
    "pod-level-shrink": Known(
        lines=r'event: Warning ResizeError |   "(message|reason)": "(cannot decrease memory|Error")'
    ),
}
_MOMENTS: Final = re.compile(
    r"event: Warning Unhealthy .*(: connect: connection refused|rpc error: .* failed to exec in container: )"
)
"""What a probe is told while the container, or the server in it, is not there for a moment."""


def plain(value: Any, side: Node) -> Any:
    """A value without what differs from node to node and from run to run."""
    if isinstance(value, dict):
        return {key: plain(each, side) for key, each in value.items() if not _VARIES.fullmatch(key)}
    if isinstance(value, list):
        return [plain(each, side) for each in value]
    if not isinstance(value, str):
        return value
    for own, stands in ((side.node, "NODE"), (str(side.home), "HOME")):
        value = value.replace(own, stands)
    for pattern, stands in _TEXTS:
        value = pattern.sub(stands, value)
    return value


def told(side: Node, namespace: str) -> dict[str, list[list[str]]]:
    """By pod: its status, line by line, then the events about it; several, where any of them will do."""
    found: dict[str, list[list[str]]] = {}
    for pod in side.listed(namespace, "pods"):
        status, name = plain(pod["status"], side), pod["metadata"]["name"]
        status["conditions"] = sorted(status.get("conditions", ()), key=lambda one: str(one["type"]))
        _drop_momentary(status)
        _tell_ends(status)
        for member in KNOWN.get(name, Known()).members:
            status.pop(member, None)
        versions = _with_forgotten(status, by_kubelet=side.name == "kubelet") if name in FORGOTTEN else [status]
        found[name] = [json.dumps(one, indent=1, sort_keys=True).splitlines() for one in versions]
    events: dict[str, set[str]] = {}
    for event in side.listed(namespace, "events"):
        about = event["involvedObject"]
        text = f"event: {event['type']} {event['reason']} {about.get('fieldPath', '')}: {plain(event['message'], side)}"
        events.setdefault(about["name"], set()).add(text)
    return {
        name: [
            [line for line in (*lines, *sorted(events.get(name, ()))) if not re.match(_known_lines(name), line)]
            for lines in found.get(name, [[]])
        ]
        for name in found.keys() | events.keys()
    }


def _known_lines(name: str) -> str:
    return KNOWN.get(name, Known()).lines


def _with_forgotten(status: Obj, *, by_kubelet: bool) -> list[Obj]:
    """A status without how its containers ended: those of which a kubelet does not know, or any of the other node's."""
    ends = [
        (kind, number, member)
        for kind in ("initContainerStatuses", "containerStatuses")
        for number, one in enumerate(status.get(kind, ()))
        for member in ("state", "lastState")
        if (ended := (one.get(member) or {}).get("terminated"))
        and (not by_kubelet or ended.get("reason") == "ContainerStatusUnknown")
    ]
    choices = [(True,) if by_kubelet else (True, False)] * len(ends)
    return [_forgetting(status, itertools.compress(ends, chosen)) for chosen in itertools.product(*choices)]


def _forgetting(status: Obj, ends: Iterable[tuple[str, int, str]]) -> Obj:
    left: Obj = json.loads(json.dumps(status))
    for kind, number, member in ends:
        one = left[kind][number]
        one[member] = "an end"
        if member == "state":
            for of_it in ("resources", "user"):
                one.pop(of_it, None)
    return left


def _drop_momentary(status: Obj) -> None:
    """Drop of a pod's own resources what a kubelet tells for a while only, and all of a pod that has ended.

    What no group has is there until it looks at the running pod; the largest number is a group of version 1 without a
    limit.
    """
    resources = status.get("resources") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        status.pop("resources", None)
    for kind in ("limits", "requests"):
        amounts = resources.get(kind, {})
        for name in amounts.keys() - {"cpu", "memory"}:
            del amounts[name]
        if amounts.get("memory") == "9007199254740988Ki":
            del amounts["memory"]
        if not amounts:
            resources.pop(kind, None)


def _tell_ends(status: Obj) -> None:
    """Tell of a container that waits for its next start how it ended: kubelets mostly do until its pause is over."""
    for member in ("containerStatuses", "initContainerStatuses"):
        for one in status.get(member, ()):
            reason = one["state"].get("waiting", {}).get("reason")
            if reason == "CrashLoopBackOff" or (reason == "RunContainerError" and one["lastState"]):
                one["state"] = one["lastState"]


def differing(one: Sequence[str], other: Sequence[str]) -> tuple[list[str], list[str]]:
    """The lines of both without those that only one of them has, and that depend on the moment."""

    def counting(lines: Sequence[str], beside: Sequence[str]) -> list[str]:
        return [line for line in lines if line in beside or not _MOMENTS.match(line)]

    return counting(one, other), counting(other, one)
