"""What accounting, and the publisher of explanations, take for a change does not depend on the size of the cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from counted_calls import SIZES, Steps, assert_all_flat
from fake_api import FakeApi
from growing_scheduler import changed
from growing_view import GrownView, maker

import virtual_time
from haru.accounting.collector import UsageCollector
from haru.client.api import ApiClient
from haru.cluster_view import ClusterView
from haru.explain_server import PodExplanationPublisher
from haru.explanation_worker import InlineWorker

ABOUT_ALL = {"Event"}
"""After an event all that are kept are read anew: those of preemptions, evictions and devices, which are few."""
Look = Callable[[ClusterView], Awaitable[object]]


def accounting() -> Look:
    """Evaluates the cluster as `haru top` and its history do."""
    collector, moments = UsageCollector(ApiClient.in_process(FakeApi())), iter(range(1_000, 1_000_000, 1_000))

    async def look(view: ClusterView) -> None:
        collector._measure(view, next(moments))

    return look


def publisher() -> Look:
    """Looks for what `haru explain --publish` is to explain."""
    made = PodExplanationPublisher(ApiClient.in_process(FakeApi()), worker=InlineWorker(), clock=virtual_time.clock())
    return made._look


async def costs_of(made: Callable[[], Look], size: int) -> dict[str, Steps]:
    """What each change of an object of each kind takes; the second of two, for the first may fill a cache."""
    grown, look, found = GrownView(size), made(), dict[str, Steps]()
    await look(grown.objects.view())
    for kind in grown.informers.keys() - ABOUT_ALL:
        for number in (size + 1, size + 2):
            obj = maker(kind)(number)
            for type_, each in (("ADDED", obj), ("MODIFIED", changed(obj)), ("DELETED", changed(obj))):
                grown.hear(kind, type_, each)
                view = grown.objects.view()
                with Steps() as found[f"{type_} {kind}"]:
                    await look(view)
    return found


@pytest.mark.parametrize("made", [accounting, publisher])
@pytest.mark.parametrize("sizes", SIZES)
def test_change_takes_as_much_in_a_large_cluster_as_in_a_small_one(
    made: Callable[[], Look], sizes: tuple[int, ...]
) -> None:
    by_size = {size: virtual_time.run(costs_of(made, size)) for size in sizes}
    assert_all_flat(by_size)
