"""Histories of small clusters with every decision about them, made from seeds: what a golden journal is recorded from.

Three sources: the random histories with faults of the safety machine, clusters that are nearly full and need
preemption, and clusters with all the rules about nodes (affinity, spreading, taints, ports). Entries are those of a
decision log (`haru.engine.journal`), and `{"history": NAME}` where another cluster begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from node_rule_objects import clusters, pods
from preemption_situations import situation
from safety_checks import Unit
from safety_machine import SafetyMachine

from haru.engine import Options
from haru.engine.framework import PreemptionOptions
from haru.engine.journal import DecisionInput, RecordedCluster, decided_entry
from haru.engine.journal.replay import share_ids
from haru.engine.journal.values import plain
from haru.engine.podgroup import decide
from haru.engine.state import namespaced_name
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.decision import Decision

Obj = dict[str, Any]
Write = Callable[[Obj], None]
PROFILE = "default"


def settings_for(examples: int, steps: int = 50) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )


class Recorder:
    """Writes histories. Each decision has share identifiers that follow from its number."""

    def __init__(self, write: Write) -> None:
        self.write = write
        self.decisions = 0

    def begin(self, name: str) -> RecordedCluster:
        """Another history: its cluster."""
        self.write({"history": name})
        self.write({"profile": {"name": PROFILE, "profile": plain(Options().profile)}})
        return RecordedCluster(self.write)

    def decide(self, cluster: SchedulerCache, listed: list[Obj], group: Obj | None, options: Options) -> Decision:
        """Decide one unit, and write it down."""
        self.decisions += 1
        share = f"golden-{self.decisions}"
        ids = share_ids(share)
        options = replace(options, new_share_id=lambda: next(ids))
        decision = decide(cluster.snapshot(), listed, group=group, options=options)
        self.write(decided_entry(DecisionInput(listed, group, options, share), PROFILE, decision))
        return decision


def record_safety(recorder: Recorder, start: int, histories: int) -> None:
    """Random histories with faults, each checked by the safety machine's invariants as it is recorded."""

    class Machine(SafetyMachine):
        def cluster(self) -> SchedulerCache:
            return recorder.begin(f"safety-{start}")

        def asked(self, unit: Unit, chosen: Options) -> Decision:
            recorder.decide(self.world.cluster, unit.pods, unit.obj, chosen)
            # Once more, with the identifiers of shares that the machine compares decisions by.
            return super().asked(unit, chosen)

    seed(start)(Machine)
    run_state_machine_as_test(Machine, settings=settings_for(histories, 25))


def record_preemption(recorder: Recorder, seeds: range) -> None:
    """Clusters that are nearly full of less important work, and a group that wants some of the room."""
    for number in seeds:
        objects = list(situation(number).objects())
        cluster = recorder.begin(f"preemption-{number}")
        for obj in objects:
            cluster.apply(obj)
        options = Options(seed=number, preemption=PreemptionOptions(preempt_for_groups=True, preempt_for_pods=True))
        for listed, group in waiting_units(cluster):
            recorder.decide(cluster, listed, group, options)


def record_rules(recorder: Recorder, start: int, examples: int) -> None:
    """Clusters with all rules about nodes, and a pod that has rules of its own."""
    made: list[tuple[list[Obj], Obj]] = []

    @seed(start)
    @settings_for(examples)
    @given(clusters(), pods("p", [], False))
    def draw(objects: list[Obj], work: Obj) -> None:
        made.append((objects, work))

    draw()
    for number, (objects, work) in enumerate(made):
        cluster = recorder.begin(f"rules-{start}-{number}")
        for obj in (*objects, work):
            cluster.apply(obj)
        recorder.decide(
            cluster, [work], None, Options(seed=number, preemption=PreemptionOptions(preempt_for_pods=True))
        )


def waiting_units(cluster: SchedulerCache) -> Iterator[tuple[list[Obj], Obj | None]]:
    """What waits, by groups: pods and their PodGroup."""
    snapshot = cluster.snapshot()
    found: dict[str, list[Obj]] = {}
    for pod in snapshot.pods.values():
        if not (pod.node or pod.terminal or pod.deleting):
            found.setdefault(pod.group.path if pod.group else namespaced_name(pod.obj), []).append(pod.obj)
    for name, listed in sorted(found.items()):
        if name in snapshot.pod_groups or not listed[0]["spec"].get("schedulingGroup"):
            yield listed, snapshot.pod_groups.get(name)
