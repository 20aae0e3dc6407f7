"""The fields of an object that has just been made: the short way finds what the comparison with nothing finds."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.kube import kinds
from haru.kube.json_form import json_form
from haru.kube.patch import managers
from haru.kube.patch.apply import ManagedWrite, reset_fields, track_update
from haru.kube.patch.fieldset import FieldSet
from haru.kube.patch.managers import Holding, Owner
from haru.kube.patch.shapes import shape_of
from haru.kube.patch.typed import compare
from haru.kube.schema import MessageType, type_of

Obj = dict[str, Any]
NOW = "2026-01-01T00:00:00Z"


KINDS = [
    kinds.known_kind("v1", "Pod"),
    kinds.known_kind("v1", "Node"),
    kinds.known_kind("v1", "Service"),
    kinds.known_kind("apps/v1", "Deployment"),
    kinds.known_kind("resource.k8s.io/v1", "ResourceSlice"),
    kinds.known_kind("scheduling.k8s.io/v1alpha2", "PodGroup"),
]
words = st.sampled_from(["a", "b", "name", "x"])
leaves = st.one_of(st.none(), st.just(True), st.integers(1, 3), words)  # False and 0 are equal in dicts


def values(message: MessageType, depth: int) -> st.SearchStrategy[Obj]:
    """Objects of a type, and some that are none: members of any kind where others are declared."""
    names = sorted(message.fields)
    odd = st.one_of(leaves, st.lists(leaves, max_size=2), st.dictionaries(words, leaves, max_size=2))
    if depth == 0:
        return st.dictionaries(st.sampled_from(names), odd, max_size=3)

    def member(name: str) -> st.SearchStrategy[Any]:
        field = message.fields[name]
        one: st.SearchStrategy[Any] = leaves
        if field.is_message:
            from haru.kube.schema import message_type

            inner = message_type(field.type)
            one = values(inner, depth - 1) if inner.fields else st.dictionaries(words, leaves, max_size=2)
        if field.container == "list":
            return st.one_of(odd, st.lists(one, max_size=3))
        return st.one_of(odd, st.dictionaries(words, one, max_size=2)) if field.container == "map" else one

    chosen = st.lists(st.sampled_from(names), max_size=5, unique=True)
    return chosen.flatmap(lambda found: st.fixed_dictionaries({name: member(name) for name in found}))


def the_long_way(new: Obj, kind: kinds.Kind, owner: Owner, ignored: FieldSet) -> list[Obj]:
    changed = compare(json_form({}, kind), new, shape_of(type_of(kind))).changed.without_subtrees(ignored)
    return managers.write({owner: Holding(owner, NOW, changed)})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
@given(data=st.data())
def test_managed_fields_of_new_object_equal_general_algorithm(kind: kinds.Kind, data: st.DataObject) -> None:
    message = type_of(kind)
    new = json_form(data.draw(values(message, 3)), kind)
    if not isinstance(new.get("metadata"), dict):
        new["metadata"] = {"name": "a", "labels": {"x": "y"}}
    new["metadata"].pop("managedFields", None)
    subresource = data.draw(st.sampled_from(["", "status"]))
    owner = Owner("kubectl", "Update", "v1", subresource)
    ignored = reset_fields(message, subresource)
    made = track_update(None, new, ManagedWrite("kubectl", "v1", message, subresource, NOW))
    found = made["metadata"].get("managedFields", [])
    assert orjson.dumps(found) == orjson.dumps(the_long_way(new, kind, owner, ignored))  # the order is the same, too


def test_reset_fields_inside_a_member_are_not_owned() -> None:
    """What a resource does not let be set may lie below a member, too (custom strategies)."""
    kind, message = KINDS[0], type_of(KINDS[0])
    new = {"metadata": {"name": "p"}, "spec": {"nodeName": "n", "hostNetwork": True, "overhead": {"cpu": "1"}}}
    ignored = FieldSet.of(("f:spec", "f:nodeName"), ("f:spec", "f:overhead"))
    owner = Owner("m", "Update", "v1", "")
    made = track_update(None, new, ManagedWrite("m", "v1", message, "", NOW, reset=ignored))
    assert made["metadata"]["managedFields"] == the_long_way(new, kind, owner, ignored)
    assert made["metadata"]["managedFields"][0]["fieldsV1"] == {"f:spec": {"f:hostNetwork": {}}}
