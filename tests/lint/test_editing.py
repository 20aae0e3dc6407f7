"""Edits keep what they do not change, whatever the style of the text."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.kube.yaml import dump, load
from haru.lint import documents
from haru.lint.editing import EditError, apply_edit, edited
from haru.lint.findings import Edit, Insert, Remove, Rename, Replace, Unwrap, Wrap
from haru.lint.paths import get, resolve

BEFORE = """\
# head
spec:
  # the requests
  requests:
  - deviceClassName: a  # class
    # note
    selectors:
    - cel:
        expression: >-
          x >= 3 &&
          y
    name: first # its name
    count: 2

  - {name: second, deviceClassName: b}   # flow
  devices:
  - basic: # shape of v1beta1
      # attributes
      attributes:
        a: {string: x}
    name: gpu
empty:
tail: 'one' # end
"""
CASES: list[tuple[Edit, str, str]] = [
    (Replace("tail", "two"), "tail: 'one' # end", "tail: two # end"),
    (Replace("empty", {"a": 1}), "empty:\n", "empty: {a: 1}\n"),
    (Replace("tail", "n"), "tail: 'one' # end", "tail: 'n' # end"),
    (Rename("spec.requests[1].name", "id"), "{name: second", "{id: second"),
    (Remove("spec.requests[0].count"), "    count: 2\n", ""),
    (
        Remove("spec.requests[0].deviceClassName"),
        "- deviceClassName: a  # class\n    # note\n    selectors",
        "- selectors",
    ),
    (Remove("spec.requests[1].name"), "{name: second, deviceClassName: b}", "{deviceClassName: b}"),
    (Remove("spec.requests[1]"), "  - {name: second, deviceClassName: b}   # flow\n", ""),
    (Insert("spec.requests[1]", "count", 3), "deviceClassName: b}", "deviceClassName: b, count: 3}"),
    (
        Insert("spec.requests[0]", "more", {"a": [1]}),
        "    count: 2\n",
        "    count: 2\n    more:\n      a:\n      - 1\n",
    ),
    (Insert("empty", "a", "b"), "empty:\n", "empty: {a: b}\n"),
    (Insert("spec.requests[0].selectors", "", {"cel": 1}), "          y\n", "          y\n    - cel: 1\n"),
    (
        Wrap("spec.requests[1]", ("deviceClassName",), "exactly"),
        "{name: second, deviceClassName: b}",
        "{name: second, exactly: {deviceClassName: b}}",
    ),
    (
        Replace("spec.requests[0].selectors[0].cel.expression", "x.f(3) && y", (("x >= 3", "x.f(3)"),)),
        "x >= 3 &&",
        "x.f(3) &&",
    ),
]


@pytest.mark.parametrize(("edit", "old", "new"), CASES, ids=lambda value: type(value).__name__)
def test_edit_changes_only_its_place(edit: Edit, old: str, new: str) -> None:
    assert BEFORE.count(old) == 1
    assert apply_edit(BEFORE, edit) == BEFORE.replace(old, new)


def test_wrap_and_unwrap_keep_comments() -> None:
    wrapped = apply_edit(BEFORE, Wrap("spec.requests[0]", ("deviceClassName", "selectors", "count"), "exactly"))
    wrapped = apply_edit(wrapped, Unwrap("spec.devices[0].basic"))
    assert wrapped == textwrap.dedent(
        """\
        # head
        spec:
          # the requests
          requests:
          - exactly:
              deviceClassName: a  # class
              # note
              selectors:
              - cel:
                  expression: >-
                    x >= 3 &&
                    y
              count: 2
            name: first # its name

          - {name: second, deviceClassName: b}   # flow
          devices:
            # shape of v1beta1
            # attributes
          - attributes:
              a: {string: x}
            name: gpu
        empty:
        tail: 'one' # end
        """
    )


@pytest.mark.parametrize(
    "edit",
    [
        Replace("spec.nothing", 1),
        Rename("spec.requests[0].name", "count"),
        Unwrap("tail"),
        Insert("spec", "requests", []),
        Wrap("spec.requests[0]", ("absent",), "exactly"),
        Remove("spec.requests[7]"),
    ],
    ids=repr,
)
def test_impossible_edit_is_refused(edit: Edit) -> None:
    with pytest.raises(EditError):
        apply_edit(BEFORE, edit)


KEYS = st.sampled_from(["a", "b", "c.d", "on", "x-y"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.sampled_from(["", "n", "a b", "x: y", "# z", "it's", "1.0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
PATHS = st.sampled_from(["a", "a.b", "b[0]", "a[0].b", "c.d", "b.a", "a.c.d[1]", ""])
EDITS = st.one_of(
    st.builds(Replace, PATHS, VALUES),
    st.builds(Rename, PATHS, KEYS),
    st.builds(Remove, PATHS),
    st.builds(Insert, PATHS, KEYS | st.just(""), VALUES),
    st.builds(Wrap, PATHS, st.just(("a", "b")), KEYS),
    st.builds(Unwrap, PATHS),
)


@given(st.dictionaries(KEYS, VALUES, max_size=4), EDITS, st.booleans())
def test_edited_text_parses_to_edited_object_or_is_refused(obj: dict[str, object], edit: Edit, flow: bool) -> None:
    import json

    text = json.dumps(obj) + "\n" if flow else "# first\n" + dump(obj) + "# last\n"
    try:
        after = apply_edit(text, edit)
    except EditError:
        return
    assert load(after) == edited(load(text), edit)[1]
    assert flow or after.startswith("# first\n")


def test_paths_resolve_in_objects() -> None:
    obj = {"spec": {"attributes": {"gpu.nvidia.com": {"a": 1}, "x/y.z": 2, "gpu": 3}, "list": [{"b": 4}]}}
    assert get(obj, "spec.attributes.gpu.nvidia.com.a") == 1
    assert get(obj, "spec.attributes[x/y.z]") == 2
    assert get(obj, "spec.list[0].b") == 4
    assert resolve(obj, "spec.list[3].b") == (("spec", "list"), "[3].b")
    assert get(obj, "spec.attributes.gpu.other") is None


def test_split_documents_join_to_same_text_with_line_numbers() -> None:
    text = "# c\n---\na: 1\n---\n# only a comment\n--- # x\nb: [\n---\nc: 1\n...\n"
    assert "".join(documents.split(text)) == text
    parsed = list(documents.read(text))
    assert [(d.number, bool(d.problem)) for d in parsed] == [(1, False), (2, True), (3, False)]
    assert "line 8" in parsed[1].problem or "line 7" in parsed[1].problem
    assert documents.place(parsed[2], "c") == 9
