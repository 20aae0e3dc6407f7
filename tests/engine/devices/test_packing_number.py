"""How many devices counters can give out at once, against trying all sets; and what that and other counts are for."""

from __future__ import annotations

import time
from itertools import combinations

from device_objects import DRIVER, chosen, claim, class_, device, exact, first_of, request, slice_, solve
from hypothesis import given, settings
from hypothesis import strategies as st

from haru.engine.dra.allocator.max_partitions import max_partitions

CHARGES = st.lists(st.dictionaries(st.integers(0, 5), st.integers(0, 3), max_size=4), max_size=8)


@settings(max_examples=300, deadline=None)
@given(CHARGES, st.lists(st.integers(0, 5), min_size=6, max_size=6))
def test_maximum_number_of_partitions_equals_exhaustive_search(drawn: list[dict[int, int]], left: list[int]) -> None:
    charges = [tuple(sorted(charge.items())) for charge in drawn]

    def suffices(chosen: tuple[tuple[tuple[int, int], ...], ...]) -> bool:
        taken = [0] * len(left)
        for charge in chosen:
            for counter, amount in charge:
                taken[counter] += amount
        return all(one <= most for one, most in zip(taken, left, strict=True))

    sizes = (size for size in range(len(charges), -1, -1) if any(map(suffices, combinations(charges, size))))
    assert max_partitions(charges, left) == next(sizes)


def card(number: int, parts: int = 6) -> tuple[list[dict[str, object]], dict[str, object]]:
    """A card with every partition of one or two neighbouring slices, and itself; its counters."""
    root = {"root": f"r{number}"}
    counters = {f"slice-{place}": 1 for place in range(parts)}

    def part(name: str, *places: int, kind: str) -> dict[str, object]:
        consumes = {f"card-{number}": {f"slice-{place}": 1 for place in places}}
        return device(f"c{number}-{name}", {**root, "kind": kind}, consumes=consumes)

    found = [part("whole", *range(parts), kind="card")]
    found += [part(f"one-{place}", place, kind="part") for place in range(parts)]
    found += [part(f"two-{place}", place, place + 1, kind="wide") for place in range(parts - 1)]
    return found, {f"card-{number}": counters}


def cluster(cards: int) -> list[dict[str, object]]:
    made = [card(number) for number in range(cards)]
    counters = {name: values for _, sets in made for name, values in sets.items()}
    devices = [entry for found, _ in made for entry in found]
    return [slice_("devices", devices, count=2), slice_("counters", count=2, counters=counters)]


def of(kind: str) -> str:
    return f"device.attributes['{DRIVER}'].kind == '{kind}'"


def quickly(slices: list[dict[str, object]], claims: list[dict[str, object]]) -> list[list[str]] | None:
    """The answer, which must not take many steps."""
    begun = time.process_time()
    found = chosen(solve(slices, claims, classes=[class_()], budget=3_000))
    assert time.process_time() - begun < 20
    return found


def test_early_alternative_is_revised_without_long_search() -> None:
    """Whole cards are preferred, and leave too few partitions for the claims that follow."""
    wish = first_of("r", exact(3, of("card")), exact(3, of("part")))
    found = quickly(cluster(5), [claim(f"c{number}", wish) for number in range(8)])
    assert found is not None
    assert not any("whole" in name for names in found for name in names)


def test_claims_with_match_attribute_need_one_card_each() -> None:
    wanted = [claim(f"c{number}", request("r", 4, of("part")), match="root") for number in range(4)]
    assert quickly(cluster(3), wanted) is None
    assert quickly(cluster(4), wanted) is not None


def test_wide_partitions_are_limited_by_their_placements() -> None:
    wanted = [claim(f"c{number}", request("r", 2, of("wide")), match="root") for number in range(5)]
    assert quickly(cluster(4), wanted) is None
    assert quickly(cluster(5), wanted) is not None
