"""Which flows of UDP are stale."""

from __future__ import annotations

import pytest

from haru.service_proxy.conntrack import Flow, stale_flows
from haru.service_proxy.services import Endpoint

A, B = Endpoint("10.0.0.1", 53), Endpoint("10.0.0.2", 53)
SERVED = {("10.96.0.10", 53): frozenset({A}), ("", 30_053): frozenset({A})}


@pytest.mark.parametrize(
    ("destination", "answers", "stale"),
    [
        (("10.96.0.10", 53), A, False),
        (("10.96.0.10", 53), B, True),
        (("10.96.0.10", 53), Endpoint("10.96.0.10", 53), True),
        (("10.96.0.11", 53), B, False),
        (("10.96.0.10", 54), B, False),
        (("192.0.2.1", 30_053), A, False),
        (("192.0.2.1", 30_053), B, True),
    ],
)
def test_flow_is_stale_if_no_endpoint_of_its_destination_answers(
    destination: tuple[str, int], answers: Endpoint, stale: bool
) -> None:
    flow = Flow(Endpoint(*destination), answers, b"")
    assert list(stale_flows(iter([flow]), SERVED)) == ([flow] if stale else [])
