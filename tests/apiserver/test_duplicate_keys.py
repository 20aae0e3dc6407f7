"""Duplicate keys in a request body: the fast check equals the slow parser."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.apiserver.request.bodies import repeated_fields
from haru.kube.repeated_names import duplicate_fields

LETTERS = st.sampled_from(["a", "b", ":", "::", '"', "\\", "\\u003a", ",", "é", "\u2028", "x:y", ""])
TEXTS = st.builds("".join, st.lists(LETTERS, max_size=3))
SCALARS = st.one_of(TEXTS, st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False), st.none())


def written(text: str, escapes: bool) -> str:
    """A text in JSON's quotes, with every character as an escape or none that need not be one."""
    if not escapes:
        return json.dumps(text, ensure_ascii=False)
    return '"' + "".join(f"\\u{ord(letter):04x}" for letter in text) + '"'


@st.composite
def documents(draw: st.DrawFn, depth: int = 3) -> str:
    """JSON with repeated names, blanks and escapes where they may be."""
    blank = draw(st.sampled_from(["", " ", "\n\t"]))
    if not depth or draw(st.booleans()):
        value = draw(SCALARS)
        return written(value, draw(st.booleans())) if isinstance(value, str) else json.dumps(value)
    inner = [draw(documents(depth - 1)) for _ in range(draw(st.integers(0, 4)))]
    if draw(st.booleans()):
        return f"[{blank}" + f",{blank}".join(inner) + f"{blank}]"
    names = [written(draw(TEXTS), draw(st.booleans())) for _ in inner]
    members = [f"{name}{blank}:{blank}{value}" for name, value in zip(names, inner, strict=True)]
    return "{" + blank + f",{blank}".join(members) + blank + "}"


@given(documents())
def test_fast_duplicate_check_agrees_with_full_parser(text: str) -> None:
    data = text.encode()
    value: Any = orjson.loads(data)
    assert repeated_fields(data, value) == duplicate_fields(data)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (r'{"a": "\u003a", "b": 1, "b": 2}', ['duplicate field "b"']),
        (r'{"a": "\u003A", "b": 1, "b": 2}', ['duplicate field "b"']),
        ('{"a":1e9,"b":1,"b":2}', ['duplicate field "b"']),  # the number is written longer than it came
        ('{"a": ":", "a": "::"}', ['duplicate field "a"']),
        (r'{"\u0061": 1, "a": 2}', ['duplicate field "a"']),
        ('{"a": {"c": ":"}, "b": [":"]}\n', []),
    ],
)
def test_duplicate_member_with_escapes_is_found(text: str, said: list[str]) -> None:
    data = text.encode()
    assert repeated_fields(data, orjson.loads(data)) == said
