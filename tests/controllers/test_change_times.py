"""The time that Endpoints and EndpointSlices carry is that of what has changed since they were written last."""

from __future__ import annotations

from haru.controllers.service_triggers import ChangeTimes
from haru.kube.meta import Obj

SERVICE: Obj = {"metadata": {"name": "s", "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z"}}


def pod(name: str, second: int) -> Obj:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": f"2026-01-01T00:00:{second:02}Z"}
    return {"metadata": {"name": name, "namespace": "ns"}, "status": {"conditions": [ready]}}


def test_first_time_is_that_of_the_service() -> None:
    assert ChangeTimes().since_last(SERVICE, [pod("a", 5)]) == "2026-01-01T00:00:00Z"


def test_later_it_is_the_earliest_that_is_new() -> None:
    times = ChangeTimes()
    times.since_last(SERVICE, [pod("a", 5)])
    assert times.since_last(SERVICE, [pod("a", 5), pod("b", 9), pod("c", 7)]) == "2026-01-01T00:00:07Z"
    assert times.since_last(SERVICE, [pod("a", 11), pod("b", 9)]) == "2026-01-01T00:00:11Z"


def test_pods_that_go_and_other_selectors_have_no_time() -> None:
    times = ChangeTimes()
    times.since_last(SERVICE, [pod("a", 5), pod("b", 6)])
    assert times.since_last(SERVICE, [pod("a", 5)]) == times.since_last(SERVICE, []) == ""


def test_service_of_the_same_name_begins_anew() -> None:
    times = ChangeTimes()
    times.since_last(SERVICE, [])
    times.forget(SERVICE)
    assert times.since_last(SERVICE, [pod("a", 5)]) == "2026-01-01T00:00:00Z"
