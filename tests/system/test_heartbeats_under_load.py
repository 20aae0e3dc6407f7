"""The real command with a thousand nodes on a machine that computes: minutes, so at night."""

from __future__ import annotations

import pytest
from benchmarks.heartbeats import measure


@pytest.mark.nightly
@pytest.mark.parametrize("pods", [0, 1500])
def test_thousand_nodes_beside_two_busy_processes_stay_ready(pods: int) -> None:
    figures = {result.name: result.value for result in measure("dgx-h100:1000", 300, 2, pods)}
    assert figures["nodes watched"] == figures["nodes Ready at the end"] == 1000
    assert figures["nodes Ready -> not Ready"] == 0
    # Of the 50 s until a node is given up, 20 s lie between two renewals.
    assert figures["latest renewal of a Lease, after its time"] < 20, figures
