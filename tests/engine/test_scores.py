"""What makes one feasible node better than another: each plugin's numbers, and the choice among the best."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from engine_objects import Obj, decide_all, node, pod
from hypothesis import given
from hypothesis import strategies as st

from haru.engine.equivalence.node_feasibility import ScoreIndex
from haru.engine.framework.interfaces import normalised, rounded
from haru.engine.framework.profile import DEFAULT_PROFILE, FitStrategy, Profile
from haru.engine.plugins.dynamicresources.plugin import DynamicResourcesScore
from haru.engine.plugins.imagelocality.plugin import image_score
from haru.engine.plugins.interpodaffinity.plugin import min_max_normalised
from haru.engine.plugins.noderesources.plugin import NodeResourcesScore, balance_score, fit_score
from haru.engine.plugins.podtopologyspread.plugin import skew_normalised
from haru.engine.plugins.tainttoleration.plugin import TaintTolerationScore
from haru.engine.state.decision import Decision
from haru.engine.state.node_info import NodeInfo, NodeSpec
from haru.engine.state.pod_info import PodInfo

MEBI = 1024 * 1024


def asking(**requests: str) -> PodInfo:
    named = {name.replace("_", "/"): amount for name, amount in requests.items()}
    return PodInfo.of(pod("p", containers=[{"resources": {"requests": named}}]))


def having(used: dict[str, str] | None = None, **allocatable: str) -> NodeInfo:
    obj = node("a")
    obj["status"]["allocatable"] = {name.replace("_", "/"): amount for name, amount in allocatable.items()}
    info = NodeInfo.empty("a", NodeSpec.of(obj))
    if used is None:
        return info
    return info.with_pod(PodInfo.of(pod("o", node="a", containers=[{"resources": {"requests": used}}])))


HALF_USED = having({"cpu": "2", "memory": "8Gi"}, cpu="4", memory="16Gi")
LEAST = FitStrategy()
MOST = FitStrategy("MostAllocated")
CARDS = (("nvidia.com/gpu", 3), ("cpu", 1))
FITS: list[tuple[str, FitStrategy, PodInfo, NodeInfo, int]] = [
    ("free cpu and memory", LEAST, asking(cpu="1", memory="4Gi"), HALF_USED, 25),
    ("rounded down per resource", LEAST, asking(cpu="1", memory="1Gi"), having(cpu="3", memory="3Gi"), 66),
    ("asks for none: counts as a small one", LEAST, asking(), having(cpu="1", memory="400Mi"), (90 + 50) // 2),
    ("more than there is", LEAST, asking(cpu="8", memory="8Gi"), having(cpu="4", memory="16Gi"), 25),
    ("a resource that the node lacks", LEAST, asking(cpu="1"), having(cpu="4"), 75),
    ("no resource at all", LEAST, asking(cpu="1"), having(), 0),
    ("most allocated", MOST, asking(cpu="1", memory="4Gi"), HALF_USED, 75),
    ("most allocated, overfull", MOST, asking(cpu="8", memory="4Gi"), HALF_USED, (100 + 75) // 2),
    ("weighted cards", FitStrategy("MostAllocated", CARDS), asking(cpu="1", **{"nvidia.com_gpu": "4"}),
     having(cpu="4", **{"nvidia.com_gpu": "8"}), (3 * 50 + 25) // 4),
    ("cards that the pod does not ask for", FitStrategy("MostAllocated", CARDS), asking(cpu="1"),
     having(cpu="4", **{"nvidia.com_gpu": "8"}), 25),
    ("a shape, between its points", FitStrategy("RequestedToCapacityRatio", (("cpu", 1),), ((0, 0), (100, 10))),
     asking(cpu="1"), having(cpu="3"), 33),
    ("a shape, before its first point", FitStrategy("RequestedToCapacityRatio", (("cpu", 1),), ((50, 4), (100, 10))),
     asking(cpu="1"), having(cpu="4"), 40),
    ("a shape, after its last point", FitStrategy("RequestedToCapacityRatio", (("cpu", 1),), ((0, 10), (50, 3))),
     asking(cpu="3"), having(cpu="4"), 30),
    ("a falling shape is cut towards its start",
     FitStrategy("RequestedToCapacityRatio", (("cpu", 1),), ((0, 10), (100, 0))), asking(cpu="1"), having(cpu="3"), 67),
    ("a shape's zero does not count", FitStrategy("RequestedToCapacityRatio", shape=((0, 0), (100, 10))),
     asking(cpu="1", memory="0"), having(cpu="2", memory="400Gi"), 50),
]  # fmt: skip


@pytest.mark.parametrize(("strategy", "work", "where", "score"), [f[1:] for f in FITS], ids=[f[0] for f in FITS])
def test_resources_fit_score(strategy: FitStrategy, work: PodInfo, where: NodeInfo, score: int) -> None:
    assert fit_score(strategy, work)(where) == score


@pytest.mark.parametrize(
    ("work", "where", "score"),
    [
        (asking(cpu="1", memory="4Gi"), having(cpu="4", memory="16Gi"), 75),
        (asking(cpu="4"), having(cpu="4", memory="16Gi"), 50),
        (asking(cpu="4"), having({"memory": "16Gi"}, cpu="4", memory="16Gi"), 100),
        (asking(cpu="1"), having({"memory": "4Gi"}, cpu="4", memory="16Gi"), 50 + (50 + 100 - 87) // 2),
        (asking(cpu="1"), having(cpu="4"), 75),
    ],
    ids=["kept", "spoilt", "mended", "mended a little", "one resource is always even"],
)
def test_balanced_allocation_scores_the_change(work: PodInfo, where: NodeInfo, score: int) -> None:
    balance = balance_score(("cpu", "memory"), work)
    assert balance is not None
    assert balance(where) == score


def test_balanced_allocation_of_three_resources_uses_deviation() -> None:
    balance = balance_score(("cpu", "memory", "example.com/card"), asking(cpu="1", **{"example.com_card": "1"}))
    assert balance is not None
    where = having(cpu="2", memory="1Gi", **{"example.com_card": "1"})
    deviation = math.sqrt(sum((share - 0.5) ** 2 for share in (0.5, 0.0, 1.0)) / 3)
    assert balance(where) == 50 + (50 + int((1 - deviation) * 100) - 100) // 2


def test_pod_without_requests_has_no_balance_score() -> None:
    assert balance_score(("cpu", "memory"), asking()) is None


@pytest.mark.parametrize(
    ("sizes", "shares", "score"),
    [
        ([0], [1.0], 0),
        ([23 * MEBI], [1.0], 0),
        ([1000 * MEBI], [1.0], 100),
        ([1000 * MEBI], [0.5], 100 * (500 - 23) // (1000 - 23)),
        ([5000 * MEBI, 0], [1.0, 1.0], 100),
        ([1000 * MEBI, 0], [1.0, 1.0], 100 * (1000 - 23) // (2000 - 23)),
    ],
)
def test_image_locality_score(sizes: list[int], shares: list[float], score: int) -> None:
    assert image_score(sizes, shares) == score


def test_score_normalisation() -> None:
    assert normalised([0, 1, 4]) == [0, 25, 100]
    assert normalised([0, 1, 4], reverse=True) == [100, 75, 0]
    assert normalised([0, 0], reverse=True) == [100, 100]
    assert min_max_normalised([-2, 0, 2]) == [0, 50, 100]
    assert min_max_normalised([0, 29, 100]) == [0, 28, 100], "as doubles have it"
    assert min_max_normalised([7, 7]) == [0, 0]
    assert skew_normalised([0, 5, None, 10]) == [100, 50, 0, 0]
    assert skew_normalised([5, 10]) == [100, 50]
    assert skew_normalised([0, None]) == [100, 0]
    assert [rounded(value) for value in (0.0, 0.49999999999999994, 0.5, 1.5, 2.4)] == [0, 0, 1, 2, 2]


def test_least_allocated_node_is_preferred() -> None:
    objects = [node("a"), node("b"), pod("o", cpu="4", node="a"), pod("p", cpu="1")]
    assert placed_on(objects) == {"b"}


def placed_on(objects: list[Obj], **kwargs: Any) -> set[str]:
    found: set[str] = set()
    for seed in range(5):
        decision: Decision = decide_all(objects, only=[objects[-1]], seed=seed, **kwargs)
        found |= {member.node or "" for member in decision.placed}
    return found


def with_images(obj: Obj, **sizes: int) -> Obj:
    obj["status"]["images"] = [{"names": [name.replace("_", ":")], "sizeBytes": size} for name, size in sizes.items()]
    return obj


def test_node_with_image_is_preferred() -> None:
    objects = [with_images(node("a")), with_images(node("b"), model_latest=2000 * MEBI), pod("p", cpu="0")]
    objects[-1]["spec"]["containers"][0]["image"] = "model"
    assert placed_on(objects) == {"b"}
    objects[-1]["spec"]["containers"][0]["image"] = "model:v2"
    assert placed_on(objects) == {"a", "b"}


def test_most_allocated_profile_packs() -> None:
    objects = [node("a"), node("b"), pod("o", cpu="4", node="a"), pod("p", cpu="1")]
    weights = {"NodeResourcesFit": 1}
    assert placed_on(objects, profile=Profile(weights=weights, fit=MOST)) == {"a"}
    assert placed_on(objects, profile=Profile(weights={})) == {"a", "b"}


def ranking(totals: dict[str, int]) -> ScoreIndex:
    found = ScoreIndex(
        [DynamicResourcesScore(0), NodeResourcesScore(DEFAULT_PROFILE, asking()), TaintTolerationScore(0, asking())]
    )
    for name, total in totals.items():
        found.put(name, (0, total, 0))
    return found


Totals = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3), min_size=1)


@given(Totals, st.integers(), st.text(max_size=5))
def test_choice_is_among_best_nodes(totals: dict[str, int], seed: int, salt: str) -> None:
    chosen = ranking(totals).choose(seed, salt)
    assert totals[chosen] == max(totals.values())
    assert chosen == ranking(dict(reversed(totals.items()))).choose(seed, salt)


@given(Totals, Totals)
def test_score_index_equals_rebuilt_index_after_changes(first: dict[str, int], second: dict[str, int]) -> None:
    kept = ranking(first)
    for name in first:
        kept.drop(name)
    for name, total in second.items():
        kept.put(name, (0, total, 0))
    assert kept.totals() == ranking(second).totals()
    assert kept.best_first() == sorted(second, key=lambda name: (-second[name], name))


def test_equal_nodes_are_chosen_evenly() -> None:
    equal = ranking(dict.fromkeys("abcd", 1))
    counts = Counter(equal.choose(seed, "ns/p") for seed in range(4000))
    assert all(900 < count < 1100 for count in counts.values())
    assert len(counts) == 4
