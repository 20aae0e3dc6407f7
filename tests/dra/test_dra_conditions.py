"""The checks that the allocator makes of devices: the conditions of its list that can fail, whatever it leaves out."""

from __future__ import annotations

import pytest
from small_problems import problem

from haru import dra
from haru.engine import Features
from haru.engine.dra.allocator.allocation_problem import AllocationProblem
from haru.engine.dra.allocator.conditions import DEVICE_CONDITIONS, NODE_CONDITIONS, device_checks, node_checks
from haru.engine.dra.model.claims import decode_claims


@pytest.mark.parametrize("features", [Features(), Features(PartitionableDevices=False, ConsumableCapacity=False)])
def test_checks_equal_all_conditions_that_can_fail(features: Features) -> None:
    refused = 0
    for seed in range(120):
        given = problem(seed)
        taken = dra.AllocatedState(given["taken"])
        asked = dra.Problem(given["slices"], given["classes"], [given["node"]], allocated=taken)
        index = asked.fleet
        claims = decode_claims(given["claims"], index.snapshot.classes, features)
        views = index.snapshot.views(index.nodes[0], features.PartitionableDevices)
        devices = AllocationProblem(views, index.allocated, index.nodes[0], (), features)
        for ask in (ask for claim in claims for request in claim.requests for ask in request.asks):
            for number, view in enumerate(devices.views):
                checks = node_checks(devices, number, ask)
                met = device_checks(view.table, ask, features)
                for position in range(devices.offsets[number], devices.offsets[number] + len(view.devices)):
                    for hides, check, own in zip((True, False), checks, met, strict=True):
                        holds = [
                            condition.holds(devices, position, ask)
                            for condition in (*NODE_CONDITIONS, *DEVICE_CONDITIONS)
                            if condition.hides_errors is hides and condition.can_fail_in(devices, number, ask)
                        ]
                        found = check is None or check(position)
                        found = found and all(one(devices.devices[position], ask, features) for one in own)
                        assert found is all(holds)
                        refused += not found
    assert refused > 50
