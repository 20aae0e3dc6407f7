from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.kube.quantity import FORMAT_ERROR, SUFFIX_ERROR, Quantity, parse_quantity

CANONICAL = {
    "0": "0",
    "0Ki": "0",
    "0n": "0",
    "1": "1",
    "0.1": "100m",
    "1000m": "1",
    "1500m": "1500m",
    "1.5": "1500m",
    "100m": "100m",
    "1Gi": "1Gi",
    "1024Mi": "1Gi",
    "1.5Gi": "1536Mi",
    "0.5Gi": "512Mi",
    "1000Ki": "1000Ki",
    "0.5Ki": "512",
    "1023": "1023",
    "0.1Mi": "104857600m",
    "0.05Mi": "52428800m",
    "1000k": "1M",
    "1e3": "1e3",
    "1E3": "1e3",
    "1e2": "100",
    "12e6": "12e6",
    "1e-3": "1e-3",
    "1E": "1E",
    "1000P": "1E",
    "1000E": "1e21",
    "0.1n": "1n",
    "1.1n": "2n",
    "-0.1n": "-1n",
    "-1.5": "-1500m",
    "+2": "2",
    ".5": "500m",
    "5.": "5",
    "0001": "1",
    "81559Mi": "81559Mi",
    "9999999999Ei": "9223372036854775807",
    "-1Ki": "-1Ki",
}


@pytest.mark.parametrize("text", CANONICAL)
def test_quantity_prints_like_go(text: str) -> None:
    assert str(parse_quantity(text)) == CANONICAL[text]


@pytest.mark.parametrize("text", CANONICAL.values())
def test_canonical_quantity_prints_unchanged(text: str) -> None:
    assert str(parse_quantity(text)) == text


@pytest.mark.parametrize("text", ["", " 1", "1 ", "1+1.0M", "aoeu", "1.1.1", "1e3.5", "one", "١"])
def test_malformed_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_quantity(text)
    assert str(error.value) == FORMAT_ERROR


@pytest.mark.parametrize("text", ["1i", "0.1mi", "1Mie3", "3e", "1KiKi", "1mm", "1e99999"])
def test_unknown_quantity_suffix_is_refused(text: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_quantity(text)
    assert str(error.value) == SUFFIX_ERROR


def test_json_numbers_are_parsed_as_quantities() -> None:
    assert parse_quantity(3) == parse_quantity("3")
    assert parse_quantity(0.5) == parse_quantity("500m")
    with pytest.raises(ValueError):
        parse_quantity(True)


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [("1", 1, 1000), ("1m", 1, 1), ("1n", 1, 1), ("-1m", -1, -1), ("-1500m", -2, -1500), ("1Gi", 2**30, 2**30 * 1000)],
)
def test_integer_values_round_away_from_zero(text: str, value: int, milli: int) -> None:
    quantity = parse_quantity(text)
    assert (quantity.value(), quantity.milli()) == (value, milli)


def test_sum_keeps_format_of_first_quantity() -> None:
    assert str(parse_quantity("1Gi") + parse_quantity("1Mi")) == "1025Mi"
    assert str(parse_quantity("0") + parse_quantity("1Gi")) == "1Gi"
    assert str(parse_quantity("2") - parse_quantity("500m")) == "1500m"
    assert str(parse_quantity("1Gi") * 3) == "3Gi"


def test_equal_quantities_have_equal_hash() -> None:
    assert {parse_quantity("1024Mi"), parse_quantity("1Gi")} == {parse_quantity("1Gi")}
    assert parse_quantity("1Gi").compare(parse_quantity("1G")) == 1
    assert parse_quantity("1") != "1"


SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


@given(st.integers(0, 10**12), st.text("0123456789", max_size=12), st.sampled_from(sorted(SUFFIXES)))
def test_decimal_quantity_is_exact_or_rounded_up(whole: int, fraction: str, suffix: str) -> None:
    exact = Fraction(f"{whole}.{fraction or '0'}") * Fraction(10) ** SUFFIXES[suffix]
    parsed = Fraction(parse_quantity(f"{whole}.{fraction}{suffix}").nano, 10**9)
    assert exact <= parsed < exact + Fraction(1, 10**9)


@given(st.integers(-(2**62), 2**62), st.sampled_from(["DecimalSI", "DecimalExponent"]))
def test_quantity_round_trips_through_text(nano: int, notation: str) -> None:
    quantity = Quantity(nano, notation)  # type: ignore[arg-type]
    assert parse_quantity(str(quantity)) == quantity


@given(st.integers(-(2**60), 2**60))
def test_binary_quantity_round_trips_through_text(units: int) -> None:
    quantity = Quantity(units * 10**9, "BinarySI")
    assert parse_quantity(str(quantity)) == quantity


@pytest.mark.parametrize("text", ["+", "-", ".", "Mi", "-.k"])
def test_quantity_without_digits_is_zero(text: str) -> None:
    """As in 1.36, whose parser never asks for a digit."""
    assert parse_quantity(text).nano == 0


@pytest.mark.parametrize(
    ("text", "scale"),
    [
        ("15", 0), ("10k", 3), ("80Gi", 0), ("10Ti", 0), ("1500m", -3), ("1.0", -1), ("1e3", 3),
        ("100Ti", None), ("1Pi", None), ("1.5Gi", None), ("9223372036854775807", None),
    ],
)  # fmt: skip
def test_scale_of_quantity_equals_kubernetes_1_36(text: str, scale: int | None) -> None:
    assert parse_quantity(text).scale == scale


def test_sum_has_the_finer_scale() -> None:
    one, other = parse_quantity("1k"), parse_quantity("500m")
    assert (one + other).scale == (other + one).scale == -3
    assert (one + parse_quantity("1Pi")).scale is None
    assert (one - parse_quantity("0m")).scale == 3
    assert (parse_quantity("9E") + parse_quantity("1")).scale == 0
    assert (parse_quantity("9E") + parse_quantity("9E")).scale == 18
    assert (parse_quantity("9E") + parse_quantity("1m")).scale is None
