"""Whom a node ends for a critical pod: the choice of the kubelet's handler of refused critical pods."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.kube.node_admission import Shortage, admission_problem, is_critical, shortages_beside
from haru.kube.node_preemption import NoVictimsError, preemptable, victims
from haru.kube.strategy import qos_class

Obj = dict[str, Any]
CRITICAL = 2_000_000_000
ROOM = {"pods": 5_000, "cpu": 4_000, "memory": 4 << 30, "ephemeral-storage": 8_000, "example.com/gpu": 2_000}


def pod(name: str, priority: int = 0, limits: bool = False, **requests: str) -> Obj:
    asked = {key.replace("gpu", "example.com/gpu"): amount for key, amount in requests.items()}
    resources = {"requests": asked, **({"limits": asked} if limits else {})}
    return {
        "metadata": {"name": name, "uid": name},
        "spec": {"priority": priority, "containers": [{"name": "main", "resources": resources}]},
    }


def chosen(others: list[Obj], critical: Obj) -> list[str]:
    return sorted(
        one["metadata"]["name"] for one in victims(critical, others, shortages_beside(critical, others, ROOM))
    )


CASES: list[tuple[str, Obj, list[Obj], list[str]]] = [
    ("the nearest", pod("c", CRITICAL, cpu="1"), [pod("a", cpu="1"), pod("b", cpu="3")], ["a"]),
    ("few rather than small", pod("c", CRITICAL, cpu="2"),
     [*(pod(x, cpu="1") for x in "ab"), pod("d", cpu="2")], ["d"]),
    ("burstable first", pod("c", CRITICAL, cpu="1"),
     [pod("a", limits=True, cpu="1", memory="1"), pod("b", cpu="3")], ["b"]),
    ("guaranteed as a last resort", pod("c", CRITICAL, cpu="4"),
     [pod("a", limits=True, cpu="1", memory="1"), pod("b", cpu="3")], ["a", "b"]),
    ("more critical over less critical", pod("c", CRITICAL + 1000, cpu="4"), [pod("a", CRITICAL, cpu="1")], ["a"]),
    ("a place", pod("c", CRITICAL), [*(pod(x, cpu="500m") for x in "abd"), pod("e"), pod("f", cpu="1")], ["e"]),
    ("a device", pod("c", CRITICAL, gpu="2"), [pod("a", gpu="1"), pod("b", cpu="4")], ["a"]),
    ("of several the smaller memory", pod("c", CRITICAL, cpu="2"),
     [pod("a", cpu="2", memory="2"), pod("b", cpu="2", memory="1")], ["b"]),
]  # fmt: skip


@pytest.mark.parametrize(("what", "critical", "others", "gone"), CASES, ids=[case[0] for case in CASES])
def test_critical_pod_takes_the_place_of_expected_pods(
    what: str, critical: Obj, others: list[Obj], gone: list[str]
) -> None:
    assert chosen(others, critical) == gone


def test_what_nobody_can_free_is_named_in_thousandths_of_cpu_and_bytes() -> None:
    missing = [Shortage("cpu", 3000, 2000, 4000), Shortage("memory", 5000, 0, 1000)]
    with pytest.raises(NoVictimsError) as error:
        victims(pod("c", CRITICAL), [pod("a", cpu="500m"), pod("b", CRITICAL, cpu="3")], missing)
    assert str(error.value) == (
        "Unexpected error while attempting to recover from admission failure: "
        "preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: "
        "[(res: cpu, q: 500), (res: memory, q: 4), ]"
    )


@pytest.mark.parametrize(
    ("critical", "other", "may"),
    [(CRITICAL, 0, True), (CRITICAL, CRITICAL, False), (CRITICAL, CRITICAL + 1, False), (CRITICAL + 1, CRITICAL, True)],
)
def test_critical_pod_may_end_others_by_priority(critical: int, other: int, may: bool) -> None:
    assert preemptable(pod("c", critical), pod("o", other)) == may


AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["100m", "1", "2", "4"]),
        "memory": st.sampled_from(["1Mi", "2Mi", "3Mi"]),
        "gpu": st.sampled_from(["1", "2"]),
        "ephemeral-storage": st.sampled_from(["1", "4", "8"]),
    },
)
PODS = st.builds(
    lambda priority, limits, amounts: pod("", priority, limits, **amounts),
    st.sampled_from([0, 0, 0, 7, CRITICAL, CRITICAL + 1000]),
    st.booleans(),
    AMOUNTS,
)


@given(st.lists(PODS, max_size=8), PODS.filter(is_critical))
def test_victims_make_room_and_are_lesser_pods_of_the_least_class_that_is_enough(
    others: list[Obj], critical: Obj
) -> None:
    for number, one in enumerate(others):
        one["metadata"] = {"name": str(number), "uid": str(number)}
    missing = shortages_beside(critical, others, ROOM)
    stay = [one for one in others if not preemptable(critical, one)]
    try:
        gone = victims(critical, others, missing)
    except NoVictimsError:
        assert admission_problem(critical, stay, ROOM) is not None
        return
    assert all(preemptable(critical, one) for one in gone)
    assert admission_problem(critical, [one for one in others if one not in gone], ROOM) is None
    assert bool(gone) == bool(missing)
    for qos in ("Guaranteed", "Burstable"):
        dear = [one for one in others if one in stay or qos_class(one["spec"]) in ("Guaranteed", qos)]
        if admission_problem(critical, dear, ROOM) is None:
            assert qos not in {qos_class(one["spec"]) for one in gone}
