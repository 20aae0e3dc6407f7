"""The checker of histories: what it accepts and refuses, and that it agrees with trying all orders."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linearizable import Operation, violation

What = tuple[str, int, bool]


def register(state: object, what: What) -> Iterator[object]:
    """`read` answers a value, `write` sets one, `add` sets the first one."""
    kind, value, answered = what
    if kind == "read":
        yield from [state] if state == value else []
    elif kind == "write":
        yield value
    elif answered == (state == 0):
        yield value if answered else state


def one(begun: float, ended: float, kind: str, value: int, answered: bool = True, certain: bool = True) -> Operation:
    return Operation(begun, ended, (kind, value, answered), certain)


@pytest.mark.parametrize(
    ("history", "good"),
    [
        ([one(0, 1, "write", 1), one(2, 3, "read", 1)], True),
        ([one(0, 1, "write", 1), one(2, 3, "read", 0)], False),
        ([one(0, 3, "write", 1), one(1, 2, "read", 0)], True),
        ([one(0, 5, "write", 1), one(1, 2, "read", 1), one(3, 4, "read", 0)], False),
        ([one(0, 1, "write", 1, certain=False), one(2, 3, "read", 0)], True),
        ([one(0, 1, "write", 1, certain=False), one(2, 3, "read", 1)], True),
        ([one(0, 1, "write", 1, certain=False), one(2, 3, "read", 0), one(4, 5, "read", 1)], False),
        ([one(0, 2, "add", 1), one(1, 3, "add", 2)], False),
        ([one(0, 2, "add", 1), one(1, 3, "add", 2, answered=False)], True),
        ([one(0, 1, "write", 1), one(2, 3, "write", 2), one(4, 5, "read", 1)], False),
    ],
)
def test_history_is_linearizable_or_not(history: list[Operation], good: bool) -> None:
    assert (violation(history, register, 0) is None) is good


def test_violation_names_the_operation() -> None:
    history = [one(0, 1, "write", 1), one(2, 3, "read", 0), one(2, 4, "read", 1)]
    found = violation(history, register, 0)
    assert found is not None and found.operation is history[1] and found.states == {1}


def by_hand(history: list[Operation]) -> bool:
    """All orders of all that was carried out, one by one."""
    doubtful = [item for item in history if not item.certain]
    for carried_out in product((False, True), repeat=len(doubtful)):
        left_out = {id(item) for item, done in zip(doubtful, carried_out, strict=True) if not done}
        rest = [item for item in history if id(item) not in left_out]
        if any(_explains(order) for order in permutations(rest)):
            return True
    return False


def _explains(order: tuple[Operation, ...]) -> bool:
    if any(later.ended < earlier.begun for n, earlier in enumerate(order) for later in order[n + 1 :]):
        return False
    states: set[object] = {0}
    for item in order:
        states = {after for state in states for after in register(state, item.what)}
    return bool(states)


operations = st.builds(
    lambda begun, length, kind, value, answered, certain: one(begun, begun + length, kind, value, answered, certain),
    st.integers(0, 20).map(lambda n: n + 0.25),
    st.integers(0, 8).map(lambda n: n + 0.5),
    st.sampled_from(["read", "write", "add"]),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from([True, True, False]),
)


@given(st.lists(operations, max_size=5))
def test_checker_agrees_with_trying_all_orders(history: list[Operation]) -> None:
    assert (violation(history, register, 0) is None) is by_hand(history)
