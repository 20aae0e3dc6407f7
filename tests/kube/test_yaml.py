from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import yaml as pyyaml
from hypothesis import given
from hypothesis import strategies as st

from haru.kube import yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("yes", True),
        ("On", True),
        ("n", False),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("42", 42),
        ("-7", -7),
        ("0644", 420),
        ("0o14", 12),
        ("0x1F", 31),
        ("0b101", 5),
        ("1_000", 1000),
        ("08", 8),
        ("1.5", 1.5),
        ("1e3", 1000),
        ("2.0", 2),
        (".5", 0.5),
        ("1:30", "1:30"),
        ("2026-01-02", "2026-01-02"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("1.2.3", "1.2.3"),
        ("80Gi", "80Gi"),
        ("yEs", "yEs"),
        ("'true'", "true"),
        ('"42"', "42"),
        ("!!str 42", "42"),
        ("=", "="),
    ],
)
def test_yaml_scalars_have_yaml_1_1_types(text: str, value: Any) -> None:
    assert yaml.load(f"a: {text}") == {"a": value}


def test_mapping_keys_become_strings() -> None:
    assert yaml.load("data:\n  on: a\n  1: b\n  1.5: c\n") == {"data": {"true": "a", "1": "b", "1.5": "c"}}


def test_documents_of_a_stream_are_loaded() -> None:
    text = "---\nkind: A\n---\n# nothing\n---\nkind: B\n...\n---\nnull\n"
    assert yaml.load_all(text) == [{"kind": "A"}, {"kind": "B"}]
    assert yaml.load_all("") == []
    assert yaml.load_all('{"a":\t[1, null]}') == [{"a": [1, None]}]
    assert yaml.load_all('{"a": 1}\n---\n{"b": 2}\n') == [{"a": 1}, {"b": 2}]


def test_anchors_and_merge_keys_are_expanded() -> None:
    loaded = yaml.load("base: &b {x: 1, y2: [1]}\nitem:\n  z: 0\n  <<: *b\n  x: 2\nsame: *b\n")
    assert loaded == {"base": {"x": 1, "y2": [1]}, "item": {"x": 2, "y2": [1], "z": 0}, "same": {"x": 1, "y2": [1]}}
    assert loaded["same"] is not loaded["base"]


@pytest.mark.parametrize("text", ["a: 1e999\n", '{"a": 1e999}', "{a: 1e999}"])
def test_number_that_is_too_large_for_a_float_is_a_text(text: str) -> None:
    assert yaml.load(text) == {"a": "1e999"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9" * 400, "9" * 400),
        ("-" + "9" * 5000, "-" + "9" * 5000),
        ("0x" + "f" * 17, "0x" + "f" * 17),
        ("1" + "0" * 30, 1e30),
        ("18446744073709551615", 2**64 - 1),
    ],
)
def test_integer_beyond_64_bits_is_a_number_as_any_other_or_a_text(text: str, value: object) -> None:
    assert yaml.load(f"a: {text}\n") == {"a": value}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: c: d\n", "error converting YAML to JSON: yaml: line 2: mapping values are not allowed"),
        ("a:\n\tb: 1\n", "yaml: line 2: found character that cannot start any token"),
        ("a: 1\nb:\n  c: 1\n  c: 2\n", 'yaml: unmarshal errors:\n  line 4: key "c" already set in map'),
        ("a: [1\n", "yaml: line 2: did not find expected ',' or ']'"),
        ("- a\n", "document 1 is a list, not an object: start it with apiVersion and kind"),
        ("a: .nan\n", "yaml: line 1: .nan has no form in JSON"),
        ("a: 1\nb: !!int x\n", "yaml: line 2: cannot decode !!str `x` as a !!int"),
        ("a: !!bool x\n", "yaml: line 1: cannot decode !!str `x` as a !!bool"),
        ("a: !!float x\n", "yaml: line 1: cannot decode !!str `x` as a !!float"),
        ("? [a]\n: 1\n", "yaml: line 1: a key must be a string or a number"),
        ("a: !secret x\n", "yaml: line 1: could not determine a constructor for the tag '!secret'"),
        ("a: &a [*a]\n", "yaml: an anchor's value contains itself"),
        (
            "\n".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10) if i else '1'}]" for i in range(9)),
            "yaml: document contains excessive aliasing",
        ),
    ],
)
def test_yaml_error_names_the_line(text: str, message: str) -> None:
    with pytest.raises(yaml.YamlError) as error:
        yaml.load_all(text)
    assert message in str(error.value)


def test_many_aliases_in_large_text_are_accepted() -> None:
    shared = "base: &b {a: 1, b: [2, 3], c: {d: 4}}\nuses:\n" + "- *b\n" * 600
    assert yaml.load(shared)["uses"] == [{"a": 1, "b": [2, 3], "c": {"d": 4}}] * 600


def test_nested_aliases_are_refused_with_little_work() -> None:
    lines = [f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10) if i else '1'}]" for i in range(6)]
    expansion = yaml._Expansion()
    with pytest.raises(yaml.YamlError, match="excessive aliasing"):
        expansion.copy(pyyaml.safe_load("\n".join(lines)), ())
    assert expansion.nodes < 20_000


def test_load_refuses_two_documents_and_no_document_unless_that_stands_for_something() -> None:
    for nothing in ("", "# a\n", "---\n---\n", "null"):
        assert yaml.load(nothing, empty={}) == {}
        with pytest.raises(yaml.YamlError, match="found 0 documents where one is expected"):
            yaml.load(nothing)
    with pytest.raises(yaml.YamlError, match="found 2 documents where one is expected"):
        yaml.load("a: 1\n---\nb: 1\n")


def test_dump_gives_block_style_yaml() -> None:
    obj = {"kind": "Pod", "apiVersion": "v1", "spec": {"args": ["on", "1", "a\nb\n"], "x": {}, "n": None, "b": True}}
    assert yaml.dump(obj) == (
        "apiVersion: v1\nkind: Pod\nspec:\n  args:\n  - 'on'\n  - '1'\n  - |\n    a\n    b\n"
        "  b: true\n  'n': null\n  x: {}\n"
    )
    assert yaml.load_all(yaml.dump_all([obj, {"a": 1}])) == [obj, {"a": 1}]


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text()
    | st.sampled_from(["y", "0o7", "1e3", "<<"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _json, max_size=4))
def test_dumped_yaml_is_loaded_as_equal_object(obj: dict[str, Any]) -> None:
    assert yaml.load(yaml.dump(obj)) == obj


def test_pyyaml_is_imported_on_first_use_only() -> None:
    code = "import sys, haru.kube.yaml; sys.exit('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "text", ["[" * 200_000, "{a: " * 200_000, '{"a":' * 200_000 + "1" + "}" * 200_000, "- " * 200_000, "? " * 50_000]
)
def test_deep_nesting_is_refused_before_the_parser_recurses(text: str) -> None:
    with pytest.raises(yaml.YamlError, match="exceeded max depth"):
        yaml.load_all(text)
