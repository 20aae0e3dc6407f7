"""What the nodes that refuse a pod say is told by name, whatever changed since it was told last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

from hypothesis import given
from hypothesis import strategies as st

from haru.engine.equivalence.node_feasibility import NodeFeasibility, ScoreIndex
from haru.engine.framework.interfaces import FilterFailure, refuse

NAMES = ["n0", "n1", "n2", "n3", "n4", "n5"]
FAILURES: list[Sequence[FilterFailure]] = [(refuse("P", "NodeTaints", text),) for text in ("a", "b")]


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "put", "put", "drop", "tell", "all"]), st.sampled_from(NAMES), st.booleans())
    )
)
def test_failures_are_those_of_the_refusing_nodes_by_name(steps: list[tuple[str, str, bool]]) -> None:
    prefilter: Any = Mock(spreads_by_key=False)
    found = NodeFeasibility(Mock(), prefilter, ScoreIndex(()), {})
    told: list[tuple[dict[str, Sequence[FilterFailure]], list[object]]] = []
    for what, name, other in [*steps, ("tell", "", False)]:
        if what == "all":
            found.forget_all()
        elif what == "tell":
            now = found.filter_failures(Mock())
            assert list(now.items()) == sorted(found.refusals.items())
            told.append((now, list(now.items())))
        else:
            found.forget(name)
            if what == "put":
                found.refusals[name] = FAILURES[other]
    for kept, before in told:
        assert list(kept.items()) == before
