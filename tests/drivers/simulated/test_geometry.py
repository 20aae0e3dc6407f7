from collections import Counter
from collections.abc import Iterator

import pytest

from haru.drivers.simulated.geometry import Geometry, Placement, counter_name
from haru.drivers.simulated.profiles import load_profile

CARDS = ["dgx-a100-40gb", "dgx-a100-80gb", "dgx-h100", "hgx-h200", "hgx-b200", "a30"]


def geometry_of(profile: str) -> Geometry:
    geometry = load_profile(profile).cards[0].model.geometry
    assert geometry is not None
    return geometry


def layouts(geometry: Geometry) -> Iterator[tuple[Placement, ...]]:
    """Every set of placements that do not overlap, with at most one media instance: what the hardware admits."""
    everything = list(geometry.placements())
    clash = [[clashes(a, b) for b in everything] for a in everything]

    def extend(chosen: tuple[int, ...], free: list[int]) -> Iterator[tuple[int, ...]]:
        yield chosen
        for position, index in enumerate(free):
            row = clash[index]
            yield from extend((*chosen, index), [other for other in free[position + 1 :] if not row[other]])

    for chosen in extend((), list(range(len(everything)))):
        yield tuple(everything[index] for index in chosen)


def clashes(a: Placement, b: Placement) -> bool:
    overlapping = a.start < b.start + b.partition.size and b.start < a.start + a.partition.size
    return overlapping or (a.partition.has_media and b.partition.has_media)


def packed(geometry: Geometry, amounts: dict[str, int]) -> int:
    """All counters in one integer, 32 bits each, so that sums of many layouts are quick."""
    return sum(amounts.get(name, 0) << (32 * position) for position, name in enumerate(geometry.counters()))


@pytest.mark.parametrize("profile", CARDS)
def test_counters_admit_exactly_the_legal_mig_layouts(profile: str) -> None:
    geometry = geometry_of(profile)
    guard = packed(geometry, dict.fromkeys(geometry.counters(), 1 << 31))
    room = packed(geometry, geometry.counters()) | guard
    takes = {p.device_name(0): packed(geometry, geometry.consumption(p)) for p in geometry.placements()}
    everything = list(geometry.placements())
    for chosen in layouts(geometry):
        left = room - sum(takes[p.device_name(0)] for p in chosen)
        assert left & guard == guard, [p.device_name(0) for p in chosen]
        for placement in everything:
            fits = (left - takes[placement.device_name(0)]) & guard == guard
            assert fits == (not any(clashes(placement, other) for other in chosen))


def fits(geometry: Geometry, chosen: tuple[Placement, ...]) -> bool:
    total: Counter[str] = Counter()
    for placement in chosen:
        total.update(geometry.consumption(placement))
    return all(amount <= geometry.counters()[name] for name, amount in total.items())


@pytest.mark.parametrize("profile", CARDS)
def test_maximum_number_per_partition_profile(profile: str) -> None:
    geometry = geometry_of(profile)
    names = [placement.device_name(0) for placement in geometry.placements()]
    assert len(names) == len(set(names)) == (13 if profile == "a30" else 25)
    most: Counter[str] = Counter()
    for chosen in layouts(geometry):
        for partition, number in Counter(p.partition.profile for p in chosen).items():
            most[partition] = max(most[partition], number)
    assert sorted(most.values()) == ([1, 1, 1, 2, 4] if profile == "a30" else [1, 1, 1, 2, 3, 4, 7])


@pytest.mark.parametrize("profile", CARDS)
def test_balanced_layout_is_legal_and_full(profile: str) -> None:
    geometry = geometry_of(profile)
    assert fits(geometry, geometry.balanced)
    assert sum(placement.partition.size for placement in geometry.balanced) == geometry.memory_slices


@pytest.mark.parametrize("profile", CARDS)
def test_whole_card_excludes_every_partition(profile: str) -> None:
    geometry = geometry_of(profile)
    whole = geometry.counters()
    for placement in geometry.placements():
        assert any(whole[name] + amount > whole[name] for name, amount in geometry.consumption(placement).items())


@pytest.mark.parametrize("profile", CARDS)
def test_device_names_tell_placements_apart(profile: str) -> None:
    placements = list(geometry_of(profile).placements())
    names = [placement.device_name(3) for placement in placements]
    assert len(set(names)) == len(placements)
    assert all(
        name.startswith("gpu-3-mig-") and name.endswith(f"-{placement.partition.instance_profile}-{placement.start}")
        for name, placement in zip(names, placements, strict=True)
    )


def test_counter_names_are_kebab_case() -> None:
    assert [counter_name(c) for c in ("copyEngines", "ofaEngines", "memory")] == [
        "copy-engines",
        "ofa-engines",
        "memory",
    ]
