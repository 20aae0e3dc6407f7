"""Operations on sets of fields that are kept: the same as those on the sets, and nobody's sets are changed."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from haru.kube.patch.fieldset import FieldSet, holds, less, parsed, rendered, shares

ELEMENTS = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"', "i:0"])
PATHS = st.lists(st.lists(ELEMENTS, min_size=1, max_size=4).map(tuple), max_size=6)
SETS = PATHS.map(lambda paths: FieldSet.of(*paths))


@given(SETS, SETS)
def test_kept_operations_are_those_on_sets(one: FieldSet, other: FieldSet) -> None:
    form: dict[str, Any] = deepcopy(one.to_fields_v1())
    for _ in range(2):
        assert less(one, other) == one - other
        assert rendered(one) == form
        assert parsed(form) == one
    assert one.to_fields_v1() == form


@given(SETS)
def test_form_written_in_another_order_is_the_same_set(fields: FieldSet) -> None:
    form = fields.to_fields_v1()
    assert parsed(dict(reversed(form.items()))) == fields
    assert hash(parsed(form)) == hash(fields)


@given(SETS, SETS)
def test_form_is_compared_with_a_set_as_its_own_set_is(one: FieldSet, other: FieldSet) -> None:
    form = one.to_fields_v1()
    assert holds(form, other) == (not other - one)
    assert shares(form, other) == bool(one & other) == one.meets(other)
