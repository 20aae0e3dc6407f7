"""String sets with cheap copies: any history equals that of plain sets, and copies do not change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from haru.engine.state.cow_map import TextSet

texts = st.integers(0, 400).map(str)
steps = st.one_of(
    st.tuples(st.just("with"), st.lists(texts, min_size=1, max_size=60)),
    st.tuples(st.just("without"), st.lists(texts, max_size=60)),
)


@given(begun=st.lists(texts, max_size=300), history=st.lists(steps, max_size=12))
def test_text_sets_behave_like_sets(begun: list[str], history: list[tuple[str, list[str]]]) -> None:
    found, expected = TextSet(begun), set(begun)
    kept = [(found, frozenset(expected))]
    for what, named in history:
        if what == "with":
            for text in named:
                found = found.with_text(text)
            expected |= set(named)
        else:
            found = found.without(named)
            expected -= set(named)
        kept.append((found, frozenset(expected)))
    for one, told in kept:
        assert set(one) == told and len(one) == len(told) == len(list(one))
        assert all(text in one for text in told) and "none" not in one


def test_unchanged_text_set_is_the_same_object() -> None:
    found = TextSet(map(str, range(1_000)))
    assert found.with_text("7") is found and found.without(["a"]) is found
    assert not found.without(map(str, range(1_000)))


def test_change_copies_one_bucket() -> None:
    found = TextSet()
    for number in range(10_000):
        found = found.with_text(str(number))
    more = found.with_text("one more")
    touched = [len(new) for new, old in zip(more._buckets, found._buckets, strict=True) if new is not old]
    assert len(touched) == 1 and touched[0] < 300
    assert len(found._buckets) <= 256
