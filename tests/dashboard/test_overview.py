"""The overview's numbers, price lists, the choice of actions, and the looks of workloads and cards."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from engine_objects import allocated, allocation, claim, node, pod, resource_slice

from haru.dashboard import template_engine
from haru.dashboard.views.device_map import By, Place, device_map
from haru.dashboard.views.looks import COLOURS
from haru.dashboard.views.map_layout import Mark, boxes, outlines, zoom_for
from haru.dashboard.views.overview import Overview, actions, overview
from haru.dashboard.views.prices import Prices, prices_of
from haru.dashboard.views.queue import ShownExplanation, WaitingWorkload
from haru.dashboard.views.workloads import Workload
from haru.embedded.errors import OptionError
from haru.embedded.prices import read_prices
from haru.engine import SchedulerCache
from haru.explain.cards import Layouts
from haru.explain.explanation import Remedy
from haru.explain.results import Explanation

Obj = dict[str, Any]
PRICES = Prices("EUR", (("NVIDIA H100*", 2.0), ("*", 1.0)))
LIST = {"apiVersion": "haru.dev/v1alpha1", "kind": "CardPrices", "currency": "EUR", "perCardHour": {"X*": 2}}


def card(name: str, product: str) -> Obj:
    return {"name": name, "attributes": {"productName": {"string": product}}}


def holding(name: str, device: str, busy: str | None) -> list[Obj]:
    """A running pod with a device; `busy` is its utilization, if somebody says so."""
    made = pod(name, node="a", claims=[name])
    made["metadata"]["annotations"] = {} if busy is None else {"simulated.haru.dev/utilization": busy}
    return [made, allocated(claim(name), allocation("a", device), made)]


def shown(prices: Prices | None = None) -> Overview:
    """Four cards of two models: one in use, one idle, one unmeasured, one free."""
    simulated = node("a", labels={"simulated.haru.dev/profile": "x"})
    simulated["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    cards = [
        card("gpu-0", "NVIDIA H100 80GB"),
        card("gpu-1", "NVIDIA H100 80GB"),
        card("gpu-2", "T4"),
        card("gpu-3", "T4"),
    ]
    objects = [simulated, resource_slice("a", cards)]
    for name, device, busy in (("busy", "gpu-0", "80"), ("lazy", "gpu-1", "1"), ("dark", "gpu-2", None)):
        objects += holding(name, device, busy)
    snapshot = SchedulerCache.of(objects).snapshot()
    return overview(device_map(snapshot, Layouts()), (), {}, prices)


def test_cards_are_counted_by_state_and_model() -> None:
    found = shown()
    words = {share.title: share.cards for share in found.all.shares}
    assert (found.all.cards, found.nodes) == (4, 1)
    assert words["idle"] == 1 and words["in use"] == 1 and sum(words.values()) == 4
    assert [(model.product, model.cards, model.of("idle")) for model in found.models] == [
        ("NVIDIA H100 80GB", 2, 1), ("T4", 2, 0)
    ]  # fmt: skip
    ends = [(share.start, share.start + share.width) for share in found.all.shares]
    assert ends[0][0] == 0 and ends[-1][1] == pytest.approx(100)
    assert all(one[1] == pytest.approx(other[0]) for one, other in pairwise(ends))


@pytest.mark.parametrize(
    ("prices", "money"), [(None, None), (PRICES, 48.0), (Prices("EUR", (("T4", 9.0),)), None)],
    ids=["no list", "priced", "no price for the model"],
)  # fmt: skip
def test_idle_cards_cost_a_day_of_card_hours_and_money_where_all_have_prices(
    prices: Prices | None, money: float | None
) -> None:
    waste = shown(prices).waste
    assert (waste.cards, waste.hours, waste.money) == (1, 24, money)
    assert [(each.workload.name, each.cards) for each in waste.work] == [("pod/lazy", 1)]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "PriceList"}, "it is no price list"),
        ({"currency": ""}, "currency or perCardHour is missing"),
        ({"perCardHour": {"X": "2"}}, "perCardHour: X: Invalid value: '2': must be a number of 0 or more"),
        ({"perCardHour": {"X": -1}}, "Invalid value: -1"),
        ({"prices": {}}, "unknown field prices"),
    ],
)
def test_faults_in_price_list_are_named(changed: Obj, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        prices_of({**LIST, **changed}, "--card-prices: f.yaml")
    assert str(raised.value).startswith("--card-prices: f.yaml: ")


def test_price_list_is_read_from_file_and_first_pattern_that_matches_holds(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("{apiVersion: haru.dev/v1alpha1, kind: CardPrices, currency: USD, perCardHour: {A1*: 3, '*': 0.5}}")
    prices = read_prices(file, "--card-prices")
    assert prices is not None and (prices.of("A100"), prices.of("T4"), prices.currency) == (3, 0.5, "USD")
    assert Prices("USD", (("A", 1.0),)).of("B") is None and read_prices(None, "--card-prices") is None
    file.write_text("{")
    for path in (file, tmp_path / "none"):
        with pytest.raises(OptionError, match=f"--card-prices: {path}: "):
            read_prices(path, "--card-prices")


def waiting(name: str, pods: int, *remedies: Remedy) -> tuple[WaitingWorkload, ShownExplanation]:
    work = WaitingWorkload(Workload("ml", f"job/{name}"), pods, "", 0, "")
    answer = Explanation(kind="Job", namespace="ml", name=name, verdict="FitsIf", summary="", remedies=remedies)
    return work, ShownExplanation(answer)


def remedy(command: str, cost: int = 1, confirmed: bool = True) -> Remedy:
    return Remedy("scale", f"do {command}", (), cost, confirmed, command=command)


def chosen(*found: tuple[WaitingWorkload, ShownExplanation]) -> list[tuple[str, int]]:
    explanations = {work.workload: explanation for work, explanation in found}
    return [(each.remedy.command, each.pods) for each in actions([work for work, _ in found], explanations)]


def test_action_that_helps_more_pods_comes_first_and_one_for_all_counts_once() -> None:
    both, only = remedy("both", cost=9), remedy("only")
    assert chosen(waiting("a", 4, only, both), waiting("b", 2, both)) == [("both", 6), ("only", 4)]


def test_each_waiting_workload_is_helped_before_one_is_helped_twice() -> None:
    first = waiting("a", 8, remedy("a1"), remedy("a2"), remedy("a3"))
    assert chosen(first, waiting("b", 1, remedy("b1"))) == [("a1", 8), ("b1", 1), ("a2", 8)]


def test_confirmed_remedies_with_commands_come_first() -> None:
    found = waiting("a", 1, remedy("guess", confirmed=False), remedy(""), remedy("sure"))
    assert [command for command, _ in chosen(found)] == ["sure", "", "guess"]


# -- drawings


def drawn(by_state: bool) -> list[Mark]:
    ready = node("a")
    ready["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    made = [ready, resource_slice("a", 1), *holding("p", "gpu-0", None)]
    [place] = device_map(SchedulerCache.of(made).snapshot(), Layouts()).places
    [box] = boxes(place, by_state)
    return list(box.marks)


def test_unmeasured_card_is_filled_in_its_owners_look_or_its_state() -> None:
    ground, part, *_ = drawn(False)
    assert ground.classes == "ground taken"
    assert re.fullmatch("look c[0-6] held unmeasured", part.classes) and (part.width, part.height) == (100, 100)
    assert drawn(True)[1].classes == "state unmeasured held unmeasured"


def test_cluster_zoom_draws_each_class_once() -> None:
    made = [node("a"), resource_slice("a", 8), *holding("p", "gpu-0", None), *holding("q", "gpu-1", None)]
    [place] = device_map(SchedulerCache.of(made).snapshot(), Layouts()).places
    paths = outlines(boxes(place, True), 4)
    classes = [name for name, _ in paths]
    assert len(classes) == len(set(classes)) <= 4 and classes[0].startswith("ground")
    assert sum(path.count("M") for name, path in paths if name.startswith("ground")) == 8


def test_tiles_are_kept_for_so_many_characters_and_no_more() -> None:
    made = [template_engine.tile(Place((f"{number}-{'n' * 50_000}",), ()), "nodes", "owner") for number in range(100)]
    assert sum(map(len, made)) > template_engine._TILES.maxsize
    assert 0.9 < sum(map(len, template_engine._TILES.values())) / template_engine._TILES.maxsize <= 1
    template_engine._TILES.clear()


@pytest.mark.parametrize(("cards", "asked", "zoom"), [(8, "", "cards"), (192, "", "nodes"), (8000, "", "cluster"), (8000, "cards", "cards"), (8, "x", "cards")])  # fmt: skip # noqa: E501
def test_zoom_is_as_asked_else_by_number_of_cards(cards: int, asked: str, zoom: str) -> None:
    assert zoom_for(cards, asked) == zoom


@pytest.mark.parametrize(
    ("by", "titles"), [("node", [""]), ("rack", ["r1", "r2"]), ("pool", ["gold", "no pool"]), ("model", ["T4", "V100"])]
)
def test_map_is_grouped_and_nodes_without_devices_come_last(by: By, titles: list[str]) -> None:
    labels = {"topology.haru.dev/rack": "r1", "node.kubernetes.io/pool": "gold"}
    objects = [
        node("cpu"), node("a", labels=labels), resource_slice("a", [card("gpu-0", "T4")]),
        node("b", labels={"topology.haru.dev/rack": "r2"}), resource_slice("b", [card("gpu-0", "V100")]),
    ]  # fmt: skip
    groups = device_map(SchedulerCache.of(objects).snapshot(), Layouts(), by=by).groups
    assert [group.title for group in groups] == [*titles, "Nodes without devices"]
    assert groups[-1].places[0].names == ("cpu",)


# -- colours

TOKENS = (Path(__file__).parents[2] / "src/haru/dashboard/static/tokens.css").read_text()
# What people see who lack one kind of cone: Viénot, Brettel and Mollon (1999), on linear RGB.
VISION = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.11238, 0.88762, 0), (0.11238, 0.88762, 0), (0.00401, -0.00401, 1)),
    "deuteranopia": ((0.29275, 0.70725, 0), (0.29275, 0.70725, 0), (-0.02234, 0.02234, 1)),
}


def linear(colour: str) -> list[float]:
    values = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]


def lab(rgb: list[float]) -> tuple[float, float, float]:
    """CIE L*a*b* of linear RGB."""
    matrix = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    xyz = [sum(m * max(0.0, v) for m, v in zip(row, rgb, strict=True)) for row in matrix]
    x, y, z = (
        t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116
        for t in (value / white for value, white in zip(xyz, (0.9505, 1.0, 1.089), strict=True))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("vision", VISION)
def test_colours_of_workloads_differ_for_colour_blind_people(vision: str) -> None:
    palette = dict(re.findall(r"--(c[0-9]): (#[0-9a-f]{6})", TOKENS))
    assert len(palette) == COLOURS
    seen = {
        name: lab([sum(m * v for m, v in zip(row, linear(colour), strict=True)) for row in VISION[vision]])
        for name, colour in palette.items()
    }
    for one, other in combinations(seen, 2):
        distance = sum((a - b) ** 2 for a, b in zip(seen[one], seen[other], strict=True)) ** 0.5
        assert distance > 9, (one, other, distance)


def test_dark_text_is_legible_on_every_colour() -> None:
    def luminance(colour: str) -> float:
        return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))

    text = luminance(re.findall(r"--on-colour: (#[0-9a-f]{6})", TOKENS)[0])
    for name, colour in re.findall(r"--(c[0-9]): (#[0-9a-f]{6})", TOKENS):
        assert (luminance(colour) + 0.05) / (text + 0.05) >= 4.5, name
