"""Messages from their lines: the bytes that protobuf's own documentation gives, and back to what they were."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.messages import Message, flag, many, named, one, raw, real, table, text, texts, whole, wholes, wrapped
from haru.protobuf import WireError


@dataclass(slots=True)
class Part(Message):
    """A message within."""

    name: str = text(1)
    size: int = whole(2)


@dataclass(slots=True)
class Whole(Message):
    """Every kind of field."""

    number: int = whole(1)
    name: str = text(2)
    part: Part | None = one(3, lambda: Part)
    numbers: list[int] = wholes(4)
    is_set: bool = flag(5)
    data: bytes = raw(6)
    share: float = real(7)
    limit: int | None = wrapped(8)
    parts: list[Part] = many(9, lambda: Part)
    names: list[str] = texts(10)
    labels: dict[str, str] = table(11)
    by_name: dict[str, Part] = named(16, lambda: Part)


@pytest.mark.parametrize(
    ("made", "data"),
    [
        (Whole(number=150), "089601"),
        (Whole(name="testing"), "120774657374696e67"),
        (Whole(part=Part(size=150)), "1a03109601"),
        (Whole(numbers=[3, 270, 86942]), "2206038e029ea705"),
        (Whole(number=-2), "08feffffffffffffffff01"),
        (Whole(is_set=True), "2801"),
        (Whole(share=1.0), "39000000000000f03f"),
        (Whole(limit=0), "4200"),
        (Whole(limit=5), "42020805"),
        (Whole(part=Part()), "1a00"),
        (Whole(labels={"a": "b"}), "5a060a0161120162"),
        (Whole(), ""),
    ],
)
def test_message_encodes_to_published_bytes(made: Whole, data: str) -> None:
    assert made.encode().hex() == data
    assert Whole.decode(bytes.fromhex(data)) == made


small = st.integers(-(1 << 63), (1 << 63) - 1)
words = st.text(max_size=5)
parts = st.builds(Part, words, small)


@given(
    st.builds(
        Whole,
        small,
        words,
        st.none() | parts,
        st.lists(small, max_size=4),
        st.booleans(),
        st.binary(max_size=5),
        st.floats(allow_nan=False).filter(lambda value: str(value) != "-0.0"),
        st.none() | small,
        st.lists(parts, max_size=3),
        st.lists(words, max_size=3),
        st.dictionaries(words, words, max_size=3),
        st.dictionaries(words, parts, max_size=3),
    )
)
def test_encoded_message_decodes_to_equal_message(made: Whole) -> None:
    assert Whole.decode(made.encode()) == made


def test_unknown_fields_are_skipped() -> None:
    # Fields 30 (text), 31 (eight bytes) and 32 (four bytes) are of a newer version.
    newer = bytes.fromhex("f20103616263" + "f9010000000000000000" + "850200000000") + Part("a").encode()
    assert Part.decode(newer) == Part("a")


def test_unpacked_repeated_numbers_are_decoded() -> None:
    assert Whole.decode(bytes.fromhex("2003208e02")).numbers == [3, 270]


@pytest.mark.parametrize("data", ["0a", "0a05", "08", "0803", "0a0180", "1200", "120180"])
def test_invalid_message_is_refused(data: str) -> None:
    with pytest.raises(WireError):
        Part.decode(bytes.fromhex(data))


@given(st.binary(max_size=40))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    try:
        found = Whole.decode(data)
    except WireError:
        return
    assert Whole.decode(found.encode()) == found or found.share != found.share
