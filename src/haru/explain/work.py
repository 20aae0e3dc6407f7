"""The unit that a question is about: a pod, or the pods of a group; and the question itself, put to the scheduler.

Answers of the scheduler are kept per snapshot object, because verdict and remedies ask about the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from haru.engine.cluster import Snapshot
from haru.engine.decision import Decision, GroupKey, Obj, Reason
from haru.engine.groups import Options, decide, pre_enqueue
from haru.engine.groups.claims import resolve_claims
from haru.engine.groups.quorum import group_hold, min_count
from haru.engine.pods import PodInfo


def hypothetical_options(options: Options | None = None) -> Options:
    """Options for questions whose answers are never carried out: identifiers of shares are placeholders.

    Devices count against their nodes wherever they are published so, which a server without that gate does not let in.
    """
    return options or Options(new_share_id=lambda: "hypothetical", node_allocatable=True)


@dataclass(frozen=True, slots=True)
class Inquiry:
    """How to explain: with which options to ask the scheduler, and whether to look for what would help.

    `unread` are the kinds of objects that the one who asks may not read.
    """

    options: Options
    remedies: bool = True
    unread: Sequence[str] = ()


@dataclass(slots=True)
class Questions:
    """How many more times the scheduler may be asked: remedies that are not found within it are not offered."""

    left: int


@dataclass(frozen=True, slots=True)
class Work:
    """Pods to decide together, by path; `group` is their PodGroup's key, if they have one."""

    paths: tuple[str, ...]
    group: GroupKey | None = None
    questions: Questions | None = None

    def pods(self, snapshot: Snapshot) -> list[PodInfo]:
        """The pods as they are in a snapshot."""
        return [snapshot.pods[path] for path in self.paths if path in snapshot.pods]

    def pending(self, snapshot: Snapshot) -> list[PodInfo]:
        """The pods that wait for a place."""
        return [p for p in self.pods(snapshot) if not (p.node or p.terminal or p.deleting)]

    def pod_group(self, snapshot: Snapshot) -> Obj | None:
        """The PodGroup object."""
        return snapshot.pod_group(self.group) if self.group else None

    def hold(self, snapshot: Snapshot) -> Reason | None:
        """What keeps the work from being tried: what holds every pending pod, or as many that a gang falls short."""
        first: Reason | None = None
        ready = 0
        needed = self._needed(snapshot)
        for _, reason in self._holds(snapshot):
            first = first or reason
            ready += reason is None
            if ready >= needed:
                return None
        return first

    def _holds(self, snapshot: Snapshot) -> Iterator[tuple[PodInfo, Reason | None]]:
        """What holds each pending pod; what their group is held by is the same for all."""
        pending = self.pending(snapshot)
        held = self.group is not None and group_hold(snapshot, self.group) is not None
        group = self.pod_group(snapshot)
        for pod in pending:
            if held or pod.gated or pod.group != self.group:
                yield pod, pre_enqueue(snapshot, pod.obj)
            else:
                claims = resolve_claims(snapshot, pod, group, workload_claims=True)
                yield pod, claims if isinstance(claims, Reason) else None

    def _needed(self, snapshot: Snapshot) -> int:
        """How many pods have to be tried together."""
        minimum = min_count(self.pod_group(snapshot))
        if self.group is None or minimum is None:
            return 1
        return max(1, minimum - snapshot.group_state(self.group).scheduled_count)

    def decide(self, snapshot: Snapshot, options: Options) -> Decision:
        """What the scheduler would answer."""
        ready = [pod.obj for pod, reason in self._holds(snapshot) if reason is None]
        return decide(snapshot, ready, group=self.pod_group(snapshot), options=options)

    def fits(self, snapshot: Snapshot, options: Options) -> bool:
        """Whether the work would be placed: all of a single pod, or a group's quorum. No if nothing may be asked."""
        decision = self.decision(snapshot, options)
        return decision is not None and decision.status == "scheduled"

    def decision(self, snapshot: Snapshot, options: Options) -> Decision | None:
        """What the scheduler would answer; None if the work is held, or if nothing may be asked any more."""
        if self.questions is not None:
            if self.questions.left <= 0:
                return None
            self.questions.left -= 1
        return self.decide(snapshot, options) if self.hold(snapshot) is None else None
