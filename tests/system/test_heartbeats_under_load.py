"""The real command with a thousand nodes on a machine that computes: minutes, so at night."""

from __future__ import annotations

import pytest
from benchmarks.heartbeats import Asked, measure


@pytest.mark.nightly
@pytest.mark.parametrize("pods", [0, 1500])
def test_thousand_nodes_beside_two_busy_processes_stay_ready(pods: int) -> None:
    figures = {result.name: result.value for result in measure("dgx-h100:1000", 300, 2, pods)}
    assert figures["nodes watched"] == figures["nodes Ready at the end"] == 1000
    assert figures["nodes Ready -> not Ready"] == 0
    # Of the 50 s until a node is given up, 20 s lie between two renewals.
    assert figures["latest renewal of a Lease, after its time"] < 20, figures


def test_explanations_that_the_command_read_itself_are_counted_with_why() -> None:
    asked = Asked()
    for seconds, status, told in (
        (1.0, 0, "answered by explain.haru.dev\n"),
        (3.0, 0, "the cluster is read: explain.haru.dev: 404\n"),
        (2.0, 1, "haru explain: no\n"),
    ):
        asked.add(seconds, status, told)
    results = {result.name.removeprefix("haru explain meanwhile, "): result for result in asked.results("haru explain")}
    assert {name: result.value for name, result in results.items()} == {
        "median": 2.0,
        "longest": 3.0,
        "failed": 1,
        "read the cluster itself": 1,
    }
    assert results["read the cluster itself"].size == "2 times; 1 x the cluster is read: explain.haru.dev: 404"
