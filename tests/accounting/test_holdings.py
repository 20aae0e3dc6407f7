"""Holdings: who held which device from when to when, and what a history keeps of it."""

from __future__ import annotations

from pathlib import Path

from haru.accounting.device_states import CardState, Part
from haru.accounting.history import KEPT, History, read_holdings
from haru.accounting.holdings import Holding, HoldingKey, HoldingMeter
from haru.accounting.ledger import Interval


def card(*parts: tuple[str, str, float | None]) -> CardState:
    """A card of node `a`; parts are devices with owners and utilization."""
    held = [Part("Held", 100, "ml", owner, device, percent) for device, owner, percent in parts]
    return CardState("a", "gpu.example.com", "a", "gpu-0", "X", (*held, Part("Free", 100)))


def key(device: str, owner: str) -> HoldingKey:
    return HoldingKey("a", "gpu.example.com", "a", "gpu-0", device, "ml", owner)


def test_holding_begins_and_ends_with_its_mean_utilization() -> None:
    meter = HoldingMeter()
    quiet, busy = card(("mig-1", "job/t", 10.0)), card(("mig-1", "job/t", 40.0))
    assert meter.change([], [quiet], 1000) == [Holding(key("mig-1", "job/t"), 1000, 0, 10.0)]
    assert meter.change([quiet], [busy], 2000) == []
    assert meter.change([busy], [card()], 4000) == [Holding(key("mig-1", "job/t"), 1000, 4000, 30.0)]
    assert meter.stop(5000) == []


def test_change_of_holder_ends_one_holding_and_begins_another() -> None:
    meter = HoldingMeter()
    first, second = card(("gpu-0", "job/a", None)), card(("gpu-0", "job/b", None))
    meter.change([], [first], 1000)
    told = meter.change([first], [second], 1000)
    # Even one that was seen for no time has a length.
    assert told == [Holding(key("gpu-0", "job/a"), 1000, 1001, None), Holding(key("gpu-0", "job/b"), 1000, 0, None)]
    assert meter.stop(3000) == [Holding(key("gpu-0", "job/b"), 1000, 3000, None)]


def test_history_returns_holdings_that_overlap_and_ends_those_of_a_process_that_died(tmp_path: Path) -> None:
    file = tmp_path / "usage.db"
    history = History(file)
    history.put(Interval(0, 9000, 9000, {}))
    done, still = Holding(key("gpu-0", "job/a"), 1000, 2000, 50.0), Holding(key("gpu-0", "job/b"), 3000, 0, None)
    history.put_holdings([Holding(key("gpu-0", "job/a"), 1000, 0, None)])
    history.put_holdings([done, still])
    assert read_holdings(file, 0, 10_000) == [still, done]
    assert read_holdings(file, 2000, 10_000) == [still]
    assert read_holdings(file, 0, 3000) == [done]
    assert read_holdings(file, 0, 10_000, most=1) == [still]
    history.close()
    again = History(file)
    assert read_holdings(file, 0, 10_000)[0] == still._replace(ended=9000)
    again.tidy(KEPT + 2500)
    assert [each.key.owner for each in read_holdings(file, 0, 10_000)] == ["job/b"]
    again.close()
