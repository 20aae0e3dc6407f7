"""Random JSON patches, applied by Haru and by the library jsonpatch: the same document, or an error in both.

kube-apiserver (evanphx/json-patch) differs from RFC 6902 on purpose in three ways, and Haru follows it: `test` with
null passes where nothing is, `~` before anything but 0 and 1 stands for itself, and an index may have a sign and zeros
in front: a negative one counts from the end.
"""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.kube.errors import StatusError
from haru.kube.patch.json_patch import apply_json_patch

Obj = dict[str, Any]
NAMES = st.sampled_from(["a", "b", "0", "1", "-", "x/y", "t~u", ""])
VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, "", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.fixed_dictionaries({"a": VALUES, "b": VALUES})
MISSING = st.sampled_from(["a", "0", "1", "-", "-x", "zz"])


@st.composite
def pointers(draw: st.DrawFn, document: Obj) -> str:
    """Mostly leads into the document."""
    node: Any = document
    path = ""
    for _ in range(draw(st.integers(0, 3))):
        known = list(node) if isinstance(node, dict) else [str(i) for i in range(len(node))] if node else []
        name = draw(st.sampled_from(known) if known and draw(st.integers(0, 4)) else MISSING)
        path += "/" + name.replace("~", "~0").replace("/", "~1")
        inside = (isinstance(node, dict) and name in node) or (isinstance(node, list) and name in known)
        node = node[int(name) if isinstance(node, list) else name] if inside else None
        node = node if isinstance(node, dict | list) else None
    return path


@st.composite
def cases(draw: st.DrawFn) -> tuple[Obj, list[Obj]]:
    document = draw(DOCUMENTS)
    operations = []
    for _ in range(draw(st.integers(1, 3))):
        operation = {"op": draw(st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]))}
        operation["path"] = draw(pointers(document))
        if operation["op"] in ("move", "copy"):
            operation["from"] = draw(pointers(document))
        elif operation["op"] == "test":
            operation["value"] = draw(VALUES.filter(lambda value: value is not None))
        elif operation["op"] != "remove":
            operation["value"] = draw(VALUES)
        operations.append(operation)
    return document, operations


def here(document: Obj, operations: list[Obj]) -> str:
    try:
        return repr(apply_json_patch(document, operations, shared=True))
    except StatusError as error:
        assert error.code == 422
        return "error"


def there(document: Obj, operations: list[Obj]) -> str:
    try:
        found = jsonpatch.JsonPatch(operations).apply(copy.deepcopy(document))
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
        return "error"
    return repr(found) if isinstance(found, dict) else "error"


@given(cases())
def test_random_patch_has_the_outcome_of_jsonpatch(case: tuple[Obj, list[Obj]]) -> None:
    document, operations = case
    before = copy.deepcopy(document)
    assert here(document, operations) == there(document, operations)
    assert document == before


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"op": "test", "path": "/none", "value": None}, {"a": 1}),
        ({"op": "add", "path": "/~2", "value": 1}, {"a": 1, "~2": 1}),
    ],
)
def test_what_kube_apiserver_accepts_beyond_the_rfc_is_applied(operation: Obj, expected: Obj) -> None:
    assert apply_json_patch({"a": 1}, [operation]) == expected
    assert there({"a": 1}, [operation]) == "error"
