"""The openb trace: its tables are read, its protocol is kept, and what the policies make of it."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path

import pytest

from haru.simulate.draws import Draws
from haru.simulate.openb import (
    NODES,
    PODS,
    TraceError,
    Workload,
    arrivals,
    ordered,
    read_machines,
    read_pods,
)
from haru.simulate.packing import CARD, Machine, Shape
from haru.simulate.policies import make_policy
from haru.simulate.replay import Run, play

NODE_TABLE = ["sn,cpu_milli,memory_mib,gpu,model", "n0,64000,262144,2,P100", "n1,96000,393216,8,G2"]
POD_HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos"


def data() -> Path:
    root = os.environ.get("HARU_REFERENCE_DATA")
    if root is None:
        pytest.skip("HARU_REFERENCE_DATA is not set: the trace is not part of the repository")
    return Path(root) / "data" / "openb"


def workload(name: str, every: int = 1) -> Workload:
    """A workload of the trace, or one node and one pod of every so many of it."""
    with gzip.open(data() / f"{NODES}.csv.gz", "rt") as lines:
        machines = read_machines(lines)
    with gzip.open(data() / f"{PODS}{name}.csv.gz", "rt") as lines:
        return Workload(name, machines[::every], read_pods(lines)[::every])


def run(of: Workload, policy: str, seed: int) -> Run:
    return play(of, make_policy(policy, of.demand, of.machines), seed)


def test_openb_tables_are_parsed() -> None:
    pods = read_pods(
        [
            POD_HEAD,
            "a,12000,16384,1,1000,,LS",
            "b,6000,12288,1,460,T4|G2,BE",
            "c,1000,512,0,0,,LS",
            "d,64000,1,8,1000,,",
        ]
    )
    assert read_machines(NODE_TABLE) == (Machine(64_000, 262_144, 2, "P100"), Machine(96_000, 393_216, 8, "G2"))
    assert pods == (
        Shape(12_000, 16_384, 1, CARD),
        Shape(6_000, 12_288, 1, 460, frozenset({"T4", "G2"})),
        Shape(1_000, 512),
        Shape(64_000, 1, 8, CARD),
    )


def test_table_without_optional_columns_is_parsed() -> None:
    assert read_pods(["name,cpu_milli,memory_mib,num_gpu,gpu_milli", "a,1,2,1,500"]) == (Shape(1, 2, 1, 500),)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a,many,1,1,1000,,", "line 2: cpu_milli: 'many': write a whole number from 0 on"),
        ("a,1,-5,1,1000,,", "line 2: memory_mib: '-5': write a whole number from 0 on"),
        ("a,1,1,1", "line 2: gpu_milli: None: write a whole number from 0 on"),
        ("a,1,1,1,1500,,", "line 2: gpu_milli: 1500: write 1 to 1000, and 1000 with several cards"),
        ("a,1,1,2,500,,", "line 2: gpu_milli: 500: write 1 to 1000, and 1000 with several cards"),
    ],
)
def test_invalid_table_line_is_reported_with_line_and_column(line: str, message: str) -> None:
    with pytest.raises(TraceError) as told:
        read_pods([POD_HEAD, line])
    assert str(told.value) == message


def small(pods: int) -> Workload:
    return Workload("small", (Machine(8000, 8192, 4, "A"),) * 2, (Shape(1000, 1024, 1, CARD),) * pods)


@pytest.mark.parametrize("pods", [1, 8, 40])
def test_pods_are_added_or_removed_to_reach_demand(pods: int) -> None:
    found = arrivals(small(pods), Draws(1))
    assert len(found) == 11  # 130 % of 8 cards are 10.4


def test_trace_without_gpu_demand_is_refused() -> None:
    with pytest.raises(TraceError, match="no pod of the list asks for cards"):
        arrivals(Workload("idle", (Machine(1, 1, 1, "A"),), (Shape(1, 1),)), Draws(1))


def test_result_curve_gives_allocated_percent_at_requested_percent() -> None:
    of = Workload("whole", (Machine(64_000, 65_536, 10, "A"),), (Shape(1000, 1024, 1, CARD),) * 13)
    told = run(of, "first-fit", 1)
    assert [told.at(percent) for percent in (10, 50, 100, 130)] == [10.0, 50.0, 100.0, 100.0]
    assert (told.pods, told.placed) == (13, 10)


def test_seed_determines_order() -> None:
    machines = [Machine(1, 1, index, "A") for index in range(20)]
    orders = [tuple(ordered(machines, Draws(seed))) for seed in range(5)]
    assert len(set(orders)) == 5
    assert orders == [tuple(ordered(machines, Draws(seed))) for seed in range(5)]


def test_random_draws_are_platform_independent() -> None:
    draws = Draws(42)
    assert [draws.below(1000) for _ in range(6)] == [413, 291, 858, 764, 250, 62]
    assert {draws.below(3) for _ in range(100)} == {0, 1, 2}


def test_haru_policy_packs_trace_better_than_first_fit_and_is_deterministic() -> None:
    of = workload("default", every=10)
    ours = [run(of, "haru", seed) for seed in (1, 2, 3)]
    first = [run(of, "first-fit", seed) for seed in (1, 2, 3)]
    assert sum(told.at(130) for told in ours) > sum(told.at(130) for told in first)
    assert ours[0] == run(of, "haru", 1)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["default", "multigpu30"])
def test_fgd_matches_published_result_and_haru_policy_is_better(name: str) -> None:
    of, seeds = workload(name), (42, 43, 44)
    with (data() / "reference_results.csv").open() as lines:
        [published] = [
            float(row["alloc_pct_at_130"])
            for row in csv.DictReader(lines)
            if (row["workload"], row["policy"]) == (PODS + name, "FGD")
        ]
    fgd = sum(run(of, "fgd", seed).at(130) for seed in seeds) / len(seeds)
    ours = [run(of, "haru", seed).at(130) for seed in seeds]
    first = [run(of, "first-fit", seed).at(130) for seed in seeds]
    assert abs(fgd - published) <= 0.3
    assert sum(ours) / len(seeds) > max(fgd, sum(first) / len(seeds))
