"""How far an autoscaler follows its metrics, and how soon."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.controllers.autoscaler_behavior import History, Limited, Timed, Wish, limited, rescaled, started

Obj = dict[str, Any]
NOW = 10_000.0


def at(*entries: tuple[float, int]) -> tuple[Timed, ...]:
    """Numbers of replicas so many seconds ago."""
    return tuple(Timed(NOW - seconds, count) for seconds, count in entries)


def rules(*policies: tuple[str, int, int], select: str = "Max", window: int | None = 0) -> Obj:
    listed = [{"type": type_, "value": value, "periodSeconds": period} for type_, value, period in policies]
    given = {} if window is None else {"stabilizationWindowSeconds": window}
    return {"selectPolicy": select, "policies": listed, **given}


def behavior(up: Obj | None = None, down: Obj | None = None) -> Obj:
    return {"scaleUp": up or rules(("Percent", 1000, 15)), "scaleDown": down or rules(("Percent", 100, 15))}


def told(found: Limited) -> tuple[int, str, str, str]:
    """The replicas, the reason of AbleToScale, and status and reason of ScalingLimited."""
    able, held = found.conditions
    assert (able.type, able.status, held.type) == ("AbleToScale", "True", "ScalingLimited")
    return found.replicas, able.reason, held.status, held.reason


@pytest.mark.parametrize(
    ("wish", "recommended", "wanted"),
    [
        (Wish(3, 5, 1, 10), (), (5, "ReadyForNewScale", "False", "DesiredWithinRange")),
        (Wish(3, 12, 1, 10), (), (6, "ReadyForNewScale", "True", "ScaleUpLimit")),
        (Wish(1, 12, 1, 10), (), (4, "ReadyForNewScale", "True", "ScaleUpLimit")),
        (Wish(6, 12, 1, 10), (), (10, "ReadyForNewScale", "True", "TooManyReplicas")),
        (Wish(5, 1, 2, 10), (), (2, "ReadyForNewScale", "True", "TooFewReplicas")),
        (Wish(5, 2, 1, 10), ((299, 4),), (4, "ScaleDownStabilized", "False", "DesiredWithinRange")),
        (Wish(5, 2, 1, 10), ((301, 4),), (2, "ReadyForNewScale", "False", "DesiredWithinRange")),
        (Wish(5, 2, 1, 3), ((10, 9),), (3, "ScaleDownStabilized", "True", "TooManyReplicas")),
    ],
)
def test_without_behavior_growth_is_doubled_at_most_and_shrinking_waits_five_minutes(
    wish: Wish, recommended: tuple[tuple[float, int], ...], wanted: tuple[int, str, str, str]
) -> None:
    assert told(limited(wish, None, History(at(*recommended)), NOW)) == wanted


@pytest.mark.parametrize(
    ("wish", "up", "history", "wanted"),
    [
        (Wish(10, 30, 1, 100), rules(("Pods", 4, 60)), History(), (14, "ScaleUpLimit")),
        (Wish(10, 30, 1, 100), rules(("Pods", 4, 60), ("Percent", 50, 60)), History(), (15, "ScaleUpLimit")),
        (
            Wish(10, 30, 1, 100),
            rules(("Pods", 4, 60), ("Percent", 50, 60), select="Min"),
            History(),
            (14, "ScaleUpLimit"),
        ),
        (Wish(10, 30, 1, 100), rules(("Pods", 4, 60), select="Disabled"), History(), (10, "ScaleUpLimit")),
        # 3 of the 4 pods of this minute were added; those of the last one count no more.
        (Wish(10, 30, 1, 100), rules(("Pods", 4, 60)), History(added=at((59, 3), (60, 9))), (11, "ScaleUpLimit")),
        # What was removed in the period may be added again.
        (Wish(10, 30, 1, 100), rules(("Pods", 4, 60)), History(removed=at((5, 2))), (16, "ScaleUpLimit")),
        (Wish(10, 30, 1, 100), rules(("Pods", 4, 60)), History(added=at((5, 9))), (10, "ScaleUpLimit")),
        (Wish(1, 30, 1, 100), rules(("Percent", 10, 60)), History(), (2, "ScaleUpLimit")),
        (Wish(10, 30, 1, 12), rules(("Pods", 4, 60)), History(), (12, "TooManyReplicas")),
        (Wish(10, 30, 1, 14), rules(("Pods", 4, 60)), History(), (14, "TooManyReplicas")),
        (Wish(10, 12, 1, 100), rules(("Pods", 4, 60)), History(), (12, "DesiredWithinRange")),
    ],
)
def test_policies_limit_how_fast_a_workload_grows(
    wish: Wish, up: Obj, history: History, wanted: tuple[int, str]
) -> None:
    found = told(limited(wish, behavior(up), history, NOW))
    assert (found[0], found[3]) == wanted
    assert found[2] == str(wanted[1] != "DesiredWithinRange")


@pytest.mark.parametrize(
    ("wish", "down", "history", "wanted"),
    [
        (Wish(20, 2, 1, 100), rules(("Pods", 5, 60)), History(), (15, "ScaleDownLimit")),
        (Wish(20, 2, 1, 100), rules(("Pods", 5, 60), ("Percent", 50, 60)), History(), (10, "ScaleDownLimit")),
        (
            Wish(20, 2, 1, 100),
            rules(("Pods", 5, 60), ("Percent", 50, 60), select="Min"),
            History(),
            (15, "ScaleDownLimit"),
        ),
        (Wish(20, 2, 1, 100), rules(("Pods", 5, 60), select="Disabled"), History(), (20, "ScaleDownLimit")),
        (Wish(20, 2, 1, 100), rules(("Pods", 5, 60)), History(removed=at((30, 4))), (19, "ScaleDownLimit")),
        (Wish(20, 2, 1, 100), rules(("Pods", 5, 60)), History(removed=at((30, 9))), (20, "ScaleDownLimit")),
        (Wish(21, 2, 1, 100), rules(("Percent", 50, 60)), History(), (10, "ScaleDownLimit")),
        (Wish(20, 2, 17, 100), rules(("Pods", 5, 60)), History(), (17, "TooFewReplicas")),
        (Wish(20, 18, 1, 100), rules(("Pods", 5, 60)), History(), (18, "DesiredWithinRange")),
    ],
)
def test_policies_limit_how_fast_a_workload_shrinks(
    wish: Wish, down: Obj, history: History, wanted: tuple[int, str]
) -> None:
    found = told(limited(wish, behavior(down=down), history, NOW))
    assert (found[0], found[3]) == wanted


@pytest.mark.parametrize(
    ("wish", "up", "down", "recommended", "wanted"),
    [
        (Wish(5, 9, 1, 100), 60, 0, ((30, 7), (61, 1)), (7, "ScaleUpStabilized")),
        (Wish(5, 9, 1, 100), 60, 0, ((30, 3),), (5, "ScaleUpStabilized")),
        (Wish(5, 2, 1, 100), 0, 60, ((30, 4), (61, 9)), (4, "ScaleDownStabilized")),
        (Wish(5, 2, 1, 100), 0, 60, ((30, 9),), (5, "ScaleDownStabilized")),
        (Wish(5, 2, 1, 100), 0, 0, ((30, 9),), (2, "ReadyForNewScale")),
        (Wish(5, 2, 1, 100), 0, None, ((299, 4),), (4, "ScaleDownStabilized")),  # five minutes by default
        (Wish(5, 2, 1, 100), 0, None, ((301, 4),), (2, "ReadyForNewScale")),
    ],
)
def test_windows_hold_what_every_recent_recommendation_agrees_to(
    wish: Wish, up: int, down: int | None, recommended: tuple[tuple[float, int], ...], wanted: tuple[int, str]
) -> None:
    both = behavior(rules(("Percent", 1000, 15), window=up), rules(("Percent", 100, 15), window=down))
    assert told(limited(wish, both, History(at(*recommended)), NOW))[:2] == wanted


def test_nothing_shrinks_at_once_that_was_found_running() -> None:
    history = started(None, 8, NOW)
    soon, later = (NOW + seconds for seconds in (15, 316))
    first = limited(Wish(8, 2, 1, 10), None, history, soon)
    assert first.replicas == 8
    assert started(first.history, 8, later) is first.history
    assert limited(Wish(8, 2, 1, 10), None, first.history, later).replicas == 2


def test_changes_are_remembered_as_long_as_a_policy_looks_back() -> None:
    both = behavior(rules(("Pods", 1, 15), ("Pods", 4, 60)), rules(("Pods", 1, 30)))
    history = rescaled(History(added=at((60, 1), (61, 1)), removed=at((31, 1))), both, 2, 5, NOW)
    assert history.added == (*at((60, 1)), Timed(NOW, 3))
    assert rescaled(history, both, 5, 1, NOW).removed == (Timed(NOW, 4),)
    assert rescaled(History(), None, 2, 5, NOW) == History()


POLICY = st.tuples(st.sampled_from(["Pods", "Percent"]), st.integers(1, 200), st.sampled_from([15, 60, 300]))
RULES = st.builds(
    lambda policies, select, window: rules(*policies, select=select, window=window),
    st.lists(POLICY, min_size=1, max_size=3),
    st.sampled_from(["Max", "Min", "Disabled"]),
    st.sampled_from([0, 15, 120]),
)


@given(
    st.one_of(st.none(), st.builds(behavior, RULES, RULES)),
    st.lists(st.integers(0, 60), min_size=1, max_size=40),
    st.integers(1, 10),
    st.integers(0, 8),
)
def test_replicas_stay_within_bounds_and_come_to_a_wish_that_lasts(
    given_behavior: Obj | None, wishes: list[int], low: int, more: int
) -> None:
    high, now = low + more, NOW
    current, history = low, started(None, low, NOW)
    for desired in [*wishes, *[wishes[-1]] * 200]:
        now += 15
        found = limited(Wish(current, desired, low, high), given_behavior, history, now)
        assert low <= found.replicas <= high
        assert len(found.history.recommended) <= 300 // 15 + 2
        # No step leads away from where the metrics were in the meantime.
        recent = [desired, *(one.replicas for one in found.history.recommended)]
        assert min(current, low, *recent) <= found.replicas <= max(current, low, *recent)
        history = (
            rescaled(found.history, given_behavior, current, found.replicas, now)
            if found.replicas != current
            else found.history
        )
        current = found.replicas
    end = min(max(wishes[-1], low), high)
    own = (given_behavior or behavior())["scaleUp" if current < end else "scaleDown"]
    assert current == end or own["selectPolicy"] == "Disabled"
