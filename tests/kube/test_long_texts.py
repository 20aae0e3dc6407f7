"""Checks of texts that anybody may send: their time grows with the length of a text, not with its square."""

from __future__ import annotations

import pytest

from haru.kube.custom.formats import FORMATS
from haru.kube.names import without_leading_zeros

# Where the time grows with the square of the length, one of these takes longer than a test may.
LENGTH = 300_000
TEXTS = ("0", "1", "a ", "a.", "()", '"a" ', "1h", "1:", "-", "a@")


@pytest.mark.parametrize("name", FORMATS)
def test_format_judges_long_texts_at_once(name: str) -> None:
    for text in TEXTS:
        for end in ("", "x", "/8", "."):
            assert FORMATS[name](text * (LENGTH // len(text)) + end) in (True, False)


@pytest.mark.parametrize(
    ("address", "plain"),
    [
        ("010.000.0.01", "10.0.0.1"),
        ("::ffff:01.2.03.4", "::ffff:01.2.3.4"),
        ("0" * LENGTH + "1.0.0.1", "1.0.0.1"),
        ("0" * LENGTH + "x", "0" * LENGTH + "x"),
        ("0a.01", "0a.1"),
        ("x01.1", "x1.1"),
    ],
)
def test_leading_zeros_of_an_ipv4_address_go(address: str, plain: str) -> None:
    assert without_leading_zeros(address) == plain
