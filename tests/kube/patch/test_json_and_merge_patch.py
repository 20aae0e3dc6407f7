import pytest

from haru.kube.errors import StatusError
from haru.kube.patch.json_patch import apply_json_patch
from haru.kube.patch.merge_patch import apply_merge_patch

DOC = {"a": {"b": [1, 2, 3], "x/y": "s", "t~u": 1}, "n": None, "flag": True}


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ([{"op": "add", "path": "/c", "value": {"d": 1}}], {**DOC, "c": {"d": 1}}),
        ([{"op": "add", "path": "/a/b/-", "value": 4}], {**DOC, "a": {**DOC["a"], "b": [1, 2, 3, 4]}}),
        ([{"op": "add", "path": "/a/b/1", "value": 9}], {**DOC, "a": {**DOC["a"], "b": [1, 9, 2, 3]}}),
        ([{"op": "add", "path": "/a/b/3", "value": 9}], {**DOC, "a": {**DOC["a"], "b": [1, 2, 3, 9]}}),
        ([{"op": "add", "path": "/a/b/-1", "value": 9}], {**DOC, "a": {**DOC["a"], "b": [1, 2, 3, 9]}}),
        ([{"op": "add", "path": "/a/b/-4", "value": 9}], {**DOC, "a": {**DOC["a"], "b": [9, 1, 2, 3]}}),
        ([{"op": "remove", "path": "/a/b/-1"}], {**DOC, "a": {**DOC["a"], "b": [1, 2]}}),
        ([{"op": "replace", "path": "/a/b/-3", "value": 9}], {**DOC, "a": {**DOC["a"], "b": [9, 2, 3]}}),
        ([{"op": "test", "path": "/a/b/-2", "value": 2}], DOC),
        ([{"op": "move", "from": "/a/b/-1", "path": "/a/b/+0"}], {**DOC, "a": {**DOC["a"], "b": [3, 1, 2]}}),
        ([{"op": "replace", "path": "/a/b/01", "value": 9}], {**DOC, "a": {**DOC["a"], "b": [1, 9, 3]}}),
        ([{"op": "remove", "path": "/a"}], {"n": None, "flag": True}),
        ([{"op": "replace", "path": "/a/x~1y", "value": "z"}], {**DOC, "a": {**DOC["a"], "x/y": "z"}}),
        ([{"op": "replace", "path": "/a/t~0u", "value": 2}], {**DOC, "a": {**DOC["a"], "t~u": 2}}),
        ([{"op": "move", "from": "/n", "path": "/m"}], {"a": DOC["a"], "flag": True, "m": None}),
        ([{"op": "copy", "from": "/a/b/0", "path": "/one"}], {**DOC, "one": 1}),
        ([{"op": "test", "path": "/a/b", "value": [1, 2, 3]}], DOC),
        ([{"op": "test", "path": "/absent", "value": None}], DOC),
        ([{"op": "replace", "path": "", "value": {"k": 1}}], {"k": 1}),
        ([], DOC),
    ],
)
def test_json_patch_operations_give_expected_document(ops, expected) -> None:
    assert apply_json_patch(DOC, ops) == expected


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ({"op": "test", "path": "/n", "value": 1}, "testing value /n failed: test failed"),
        ({"op": "test", "path": "/absent", "value": 1}, "testing value /absent failed: test failed"),
        ({"op": "zap", "path": "/a"}, "Unexpected kind: zap"),
        ({"path": "/a"}, "Unexpected kind: unknown"),
        ({"op": "add"}, "add operation failed to decode path: missing value"),
        (
            {"op": "move", "path": "/a"},
            "move operation failed to decode from: operation, missing from field: missing value",
        ),
        (
            {"op": "add", "path": "/a/b/9", "value": 1},
            "error in add for path: '/a/b/9': Unable to access invalid index: 9: invalid index referenced",
        ),
        (
            {"op": "remove", "path": "/a/b/x"},
            "error in remove for path: '/a/b/x': strconv.Atoi: parsing \"x\": invalid syntax",
        ),
    ],
)
def test_refusal_of_json_patch_is_told_in_the_words_of_kubernetes(op, message) -> None:
    with pytest.raises(StatusError) as error:
        apply_json_patch(DOC, [op])
    assert error.value.message.endswith(f"request: {message}")


@pytest.mark.parametrize(
    "op",
    [
        {"op": "remove", "path": "/absent"},
        {"op": "replace", "path": "/absent", "value": 1},
        {"op": "add", "path": "/a/b/4", "value": 1},
        {"op": "add", "path": "/a/b/-5", "value": 1},
        {"op": "remove", "path": "/a/b/-4"},
        {"op": "remove", "path": "/a/b/-"},
        {"op": "add", "path": "/absent/x", "value": 1},
        {"op": "add", "path": "/flag/x", "value": 1},
        {"op": "test", "path": "/flag", "value": 1},
        {"op": "test", "path": "/a/b", "value": [1]},
        {"op": "move", "from": "/a", "path": "/a/b/c"},
        {"op": "replace", "path": "", "value": [1]},
        {"op": "remove", "path": ""},
        {"op": "twist", "path": "/a"},
        {"op": "add", "path": "a"},
        {"op": "move", "path": "/a"},
        {"path": "/a"},
        {"op": {}, "path": "/a"},
        {"op": [], "path": "/a"},
    ],
)
def test_inapplicable_json_patch_is_unprocessable(op) -> None:
    with pytest.raises(StatusError) as error:
        apply_json_patch(DOC, [{"op": "add", "path": "/first", "value": 1}, op])
    assert error.value.code == 422
    assert "first" not in DOC


@pytest.mark.parametrize("ops", [{"op": "add"}, ["x"]])
def test_malformed_json_patch_is_a_bad_request(ops) -> None:
    with pytest.raises(StatusError) as error:
        apply_json_patch(DOC, ops)
    assert error.value.code == 400


def test_json_patch_with_too_many_operations_is_refused() -> None:
    with pytest.raises(StatusError) as error:
        apply_json_patch(DOC, [{"op": "test", "path": "/flag", "value": True}] * 10001)
    assert error.value.code == 413
    assert (
        error.value.message
        == "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    )


def test_json_patch_leaves_patch_and_object_unchanged() -> None:
    value = {"d": [1]}
    patched = apply_json_patch(
        DOC, [{"op": "add", "path": "/c", "value": value}, {"op": "add", "path": "/c/d/-", "value": 2}]
    )
    assert patched["c"] == {"d": [1, 2]} and value == {"d": [1]} and "c" not in DOC


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": "b"}, {"a": {"c": 1}}, {"a": {"c": 1}}),
    ],
)
def test_merge_patch_gives_expected_document(target, patch, expected) -> None:
    assert apply_merge_patch(target, patch) == expected


def test_merge_patch_must_be_an_object() -> None:
    with pytest.raises(StatusError):
        apply_merge_patch({}, [])  # type: ignore[arg-type]
