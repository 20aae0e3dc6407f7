"""What decisions keep for later ones leaves past states of the cluster to be freed."""

from __future__ import annotations

import gc

import pytest
from benchmarks.decision_objects import cluster_of, gang, member, take
from benchmarks.preemption_objects import ABOVE_ALL, KINDS, full_cluster

from haru.engine import Options, decide
from haru.engine.framework import PreemptionOptions
from haru.engine.preemption.dry_run import EvictionDryRun
from haru.engine.state import PodInfo, overlay
from haru.engine.state.overlay import ChangeCursor, Overlay
from haru.engine.state.snapshot import Snapshot
from haru.kube.meta import Obj

SHAPES = 20
OPTIONS = Options(preemption=PreemptionOptions(preempt_for_pods=True))


def test_decisions_for_pods_of_many_shapes_keep_no_past_snapshot() -> None:
    """Each shape's results follow the cluster from where they were asked last; for a rare shape that is long ago."""
    of_others = _alive()
    cluster = cluster_of(4, 2)
    for round_ in range(2):
        for shape in range(SHAPES):
            made = member(f"pod-{round_}-{shape}", "", shape % 3, cpu=f"{1000 + shape}m")
            for obj in made:
                cluster.apply(obj)
            decision = decide(cluster.snapshot(), made[:1], group=None, options=OPTIONS)
            assert decision.status == "scheduled", decision.message
            take(cluster, decision)
            for obj in made if shape % 2 else ():
                cluster.remove(obj)
    cluster.snapshot()
    kept = [obj for obj in _alive() if not any(obj is other for other in of_others)]
    assert len(kept) <= 1, [type(obj).__name__ for obj in kept]


def test_preemption_keeps_no_past_snapshot() -> None:
    of_others = _alive()
    full = full_cluster(6, 8, 2, devices=True)
    for number, kind in enumerate(KINDS[:4]):
        made = full.preemptor(kind, number, ABOVE_ALL)
        for obj in made:
            full.cluster.apply(obj)
        group, pods = made[0] if kind.pods else None, [obj for obj in made if obj["kind"] == "Pod"]
        options = Options(preemption=PreemptionOptions(preempt_for_pods=True, preempt_for_groups=True))
        assert decide(full.cluster.snapshot(), pods, group=group, options=options).evictions
        for obj in reversed(made):
            full.cluster.remove(obj)
    full.cluster.snapshot()
    kept = [obj for obj in _alive() if not any(obj is other for other in of_others)]
    assert len(kept) <= 1, [type(obj).__name__ for obj in kept]


def test_of_pods_that_have_gone_only_one_is_kept_for_each_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay, "_MOST_STATES", 3)
    few, many = _pods_alive(20), _pods_alive(40)
    assert 0 < many - few <= 20 + 2, (few, many)


def test_of_pods_that_have_gone_none_is_kept_for_preemptors_of_shapes_that_do_not_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What victims a node has was worked out for a shape with the pods that were there then."""
    monkeypatch.setattr(overlay, "_MOST_STATES", 2)
    few, many = _pods_kept_for_preemptors(2), _pods_kept_for_preemptors(8)
    assert many <= few + 2 * 6, (few, many)


def _pods_kept_for_preemptors(shapes: int) -> int:
    """Preemptors of so many shapes are decided; after each, other pods run on all nodes."""
    before = _pods()
    full = full_cluster(4, 8, 2, devices=False)
    for shape in range(shapes):
        made = full.preemptor(KINDS[0], shape, ABOVE_ALL)
        made[0]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = f"{4000 + shape}m"
        full.cluster.apply(made[0])
        assert decide(full.cluster.snapshot(), made[:1], group=None, options=OPTIONS).evictions
        full.cluster.remove(made[0])
        for path, objects in list(full.objects.items()):
            for obj in objects:
                full.cluster.remove(obj)
            replaced = {**objects[0], "metadata": {**objects[0]["metadata"], "uid": f"{path}-{shape}"}}
            full.objects[path] = [replaced]
            full.cluster.apply(replaced)
        made = full.preemptor(KINDS[0], 99, ABOVE_ALL)
        full.cluster.apply(made[0])
        decide(full.cluster.snapshot(), made[:1], group=None, options=OPTIONS)
        full.cluster.remove(made[0])
    return _pods() - before


def _pods() -> int:
    gc.collect()
    return sum(type(obj) is PodInfo for obj in gc.get_objects())


def test_what_is_taken_keeps_no_state_that_it_was_compared_with() -> None:
    """A state without some pods is looked up in the snapshot before, which compared its own with one of before that."""
    of_others = _alive()
    full = full_cluster(2, 8, 1, devices=True)
    for path, (pod, claim) in list(full.objects.items())[:5]:
        base = full.cluster.snapshot()
        dry_run = EvictionDryRun(base, [[base.pods[path]]])
        dry_run.removed[0] = 1
        without = dry_run.snapshot().allocated
        for obj in (pod, claim):
            full.cluster.remove(obj)
        now = full.cluster.snapshot().allocated
        now.changed(without)
    del base, dry_run, without, now
    kept = [obj for obj in _alive() if not any(obj is other for other in of_others)]
    assert len(kept) <= 1, len(kept)


def test_reader_that_is_many_states_behind_is_told_which_nodes_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay, "_MOST_STATES", 2)
    cluster, rare, frequent = cluster_of(20, 1), ChangeCursor(), ChangeCursor()
    assert rare.catch_up(Overlay(cluster.snapshot())) is None
    nodes = set()
    for number in range(5):
        made = member(f"pod-{number}", "", 0, cpu="1")
        for obj in made:
            cluster.apply(obj)
        decision = decide(cluster.snapshot(), made[:1], group=None, options=OPTIONS)
        take(cluster, decision)
        nodes |= {pod.node for pod in cluster.snapshot().pods.values()}
        frequent.catch_up(Overlay(cluster.snapshot()))
    kept = rare._state
    assert kept is not None and kept.nodes is None
    assert rare.catch_up(Overlay(cluster.snapshot())) == nodes


def _pods_alive(shapes: int) -> int:
    """Gangs of so many shapes are decided one after the other; each finds the one before it on the nodes."""
    cluster, before = cluster_of(4, 2), list[Obj]()
    for shape in range(shapes):
        made = gang(f"gang-{shape}", 2, 1, "", cpu=f"{1000 + shape}m")
        for obj in made:
            cluster.apply(obj)
        members = [obj for obj in made if obj["kind"] == "Pod"]
        decision = decide(cluster.snapshot(), members, group=made[0], options=OPTIONS)
        assert decision.status == "scheduled", decision.message
        take(cluster, decision)
        for obj in before:
            cluster.remove(obj)
        before = made
    assert len(cluster.snapshot().pods) == 2
    return _pods()


def _alive() -> list[object]:
    gc.collect()
    return [obj for obj in gc.get_objects() if type(obj) in (Snapshot, Overlay)]
