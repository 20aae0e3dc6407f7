"""Have the engine decide: with the options of a pod's profile, and with a log if there is one."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace

from haru.engine import Decision, Options, Snapshot, decide, decide_in_turn
from haru.engine.framework import MetricsRecorder
from haru.engine.journal import DecisionInput, share_ids
from haru.gangs import is_translated
from haru.kube.meta import Obj
from haru.scheduler.decision_log import DecisionLog
from haru.scheduler.queue.queue_keys import group_object
from haru.scheduler.queue.scheduling_queue import QueuedUnit
from haru.scheduler.shared import SchedulerState

_log = logging.getLogger(__name__)


class Decider:
    """Have the engine decide, and write the decision down if there is a log."""

    def __init__(self, state: SchedulerState, log: DecisionLog | None) -> None:
        self._state = state
        self._log = log
        self.count = 0
        """How many decisions there were."""

    def decide(
        self, snapshot: Snapshot, unit: QueuedUnit, pods: Sequence[Obj], recorder: MetricsRecorder | None = None
    ) -> Decision:
        """Decide the pods of a unit; a decision on a hypothetical snapshot is not logged."""
        self.count += 1
        group = group_object(snapshot, unit)
        options = replace(self.options_for(pods, group, self.count), recorder=recorder)
        if self._log is None or snapshot is not self._state.cluster.snapshot():
            return decide(snapshot, pods, group=group, options=options)
        share = str(uuid.uuid4())
        ids = share_ids(share)
        decision = decide(snapshot, pods, group=group, options=replace(options, new_share_id=lambda: next(ids)))
        self._log.decided(DecisionInput(pods, group, options, share), decision)
        return decision

    def decide_in_turn(self, snapshot: Snapshot, pods: Sequence[Obj], recorder: MetricsRecorder) -> list[Decision]:
        """Decide single pods of one profile as far as that can be done on one snapshot; there is no log."""
        self.count += 1
        options = replace(self.options(pods, self.count), recorder=recorder)
        try:
            return decide_in_turn(snapshot, pods, options=options)
        except Exception:
            _log.exception("deciding %d pods together failed", len(pods))
            return []

    @property
    def one_at_a_time(self) -> bool:
        """Whether each decision has to be made alone: a log has them one by one."""
        return self._log is not None

    def options(self, pods: Iterable[Obj], number: int = 0) -> Options:
        """Return the options for the n-th decision about these pods, by the profile of their schedulerName."""
        return self._state.config.options(number, profile_of(next(iter(pods))))

    def options_for(self, pods: Sequence[Obj], group: Obj | None, number: int = 0) -> Options:
        """Return the options for these pods of a group: for the n-th decision, or for a question that is none."""
        return _for_group(self.options(pods, number), group)


def profile_of(pod: Obj) -> str:
    """The profile of a pod: its schedulerName."""
    return str((pod.get("spec") or {}).get("schedulerName", "default-scheduler"))


def _for_group(options: Options, group: Obj | None) -> Options:
    """Return the options for a group: no feature gate of Kubernetes is about the gangs of other projects."""
    if group is None or not is_translated(group):
        return options
    gates = replace(options.gates, groups=True, gang_scheduling=True)
    preemption = replace(options.preemption, preempt_for_groups=options.preemption.preempt_for_pods)
    return replace(options, gates=gates, preemption=preemption)
