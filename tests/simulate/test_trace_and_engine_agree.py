"""The packing model of traces and the engine give the same answer to which nodes fit, and take the same cards."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from trace_objects import device_class, machine_objects, pod_objects

from haru.engine import Features, Options, SchedulerCache, run_round
from haru.kube.quantity import parse_quantity
from haru.simulate.baselines import FirstFit
from haru.simulate.draws import Draws
from haru.simulate.packing import CARD, Machine, Packer, Shape

MACHINES = (
    Machine(16_000, 65_536, 2, "P100"),
    Machine(32_000, 65_536, 4, "G2"),
    Machine(104_000, 32_768, 2, "T4"),
    Machine(8_000, 32_768, 0, "none"),
)
CPUS = (1_000, 3_152, 4_000, 8_000, 11_908)
MEMORIES = (1_024, 5_600, 16_384)
PARTS = (110, 320, 470, 810)
MODELS = (frozenset[str](), frozenset[str](), frozenset({"T4"}), frozenset({"P100", "G2"}))


def random_shape(draws: Draws) -> Shape:
    cpu, memory = draws.choice(CPUS), draws.choice(MEMORIES)
    kind = draws.below(6)
    if kind == 0:
        return Shape(cpu, memory)
    if kind <= 3:
        return Shape(cpu, memory, 1, draws.choice(PARTS), draws.choice(MODELS))
    return Shape(cpu, memory, draws.choice((1, 1, 2)), CARD, draws.choice(MODELS))


SHARES = itertools.count(1)
OPTIONS = Options(features=Features(), new_share_id=lambda: f"share-{next(SHARES)}")


class OneNode:
    """The engine's view of one machine and what was placed on it."""

    def __init__(self, index: int, machine: Machine) -> None:
        self.objects: list[dict[str, Any]] = [device_class(), *machine_objects(f"n{index}", machine)]

    def after(self, name: str, shape: Shape) -> SchedulerCache | None:
        """The cluster once the pod is placed here; None if the engine says that it does not fit."""
        cluster = SchedulerCache.of([*self.objects, *pod_objects(name, shape)])
        result = run_round(cluster, OPTIONS)
        assert not result.errors
        return cluster if f"default/{name}" in result.bindings else None

    def keep(self, cluster: SchedulerCache) -> None:
        snapshot = cluster.snapshot()
        kept = [obj for obj in self.objects if obj["kind"] not in ("Pod", "ResourceClaim")]
        pods = [
            {"kind": "Pod", **pod.obj, "spec": {**pod.obj["spec"], "nodeName": pod.node}}
            for pod in snapshot.pods.values()
        ]
        claims = [{"kind": "ResourceClaim", **claim} for claim in snapshot.claims.values()]
        self.objects = [*kept, *claims, *pods]

    def taken(self) -> dict[str, int]:
        """Thousandths in use, by card."""
        found: dict[str, int] = {}
        for obj in self.objects:
            if obj["kind"] == "ResourceClaim":
                for result in obj["status"]["allocation"]["devices"]["results"]:
                    amount = parse_quantity(result["consumedCapacity"]["part"]).value()
                    found[result["device"]] = found.get(result["device"], 0) + amount
        return found


@pytest.mark.parametrize("seed", [1, 2])
def test_trace_packing_and_engine_choose_same_nodes_and_cards(seed: int) -> None:
    draws = Draws(seed)
    packer = Packer(MACHINES, FirstFit())
    engine = [OneNode(index, machine) for index, machine in enumerate(MACHINES)]
    fitted = refused = 0
    for number in range(30):
        shape, name = random_shape(draws), f"p{number}"
        answers = [node.after(name, shape) for node in engine]
        assert [answer is not None for answer in answers] == [node.fits(shape) for node in packer.nodes], (name, shape)
        chosen = packer.place(shape)
        fitted += chosen is not None
        refused += sum(answer is None for answer in answers)
        if chosen is not None:
            answer = answers[chosen]
            assert answer is not None
            engine[chosen].keep(answer)
    for node, other in zip(packer.nodes, engine, strict=True):
        left = [CARD - other.taken().get(f"card-{index}", 0) for index in range(node.machine.cards)]
        assert tuple(room for room in left if room) == node.rooms
    assert fitted >= 8 and refused >= 30  # both answers were given often
