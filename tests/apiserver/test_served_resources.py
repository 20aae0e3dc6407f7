"""The table of served resources as definitions come, change and go."""

from __future__ import annotations

from typing import Any

from custom_objects import definition, version

from haru.apiserver.registry.resources import Resource, Served, resource_of
from haru.kube.custom.types import custom_kinds, storage_kind_of
from haru.kube.gates import FeatureGates

Obj = dict[str, Any]


def resources(made: Obj) -> list[Resource]:
    made["status"] = {"acceptedNames": made["spec"]["names"]}
    stored = storage_kind_of(made)
    return [resource_of(kind, stored) for kind in custom_kinds(made)]


def told(served: Served) -> tuple[Any, ...]:
    """All that discovery and lookups go by."""
    versions = served.group_versions, served.listed_versions
    return [kind.type_name for kind in served.kinds], *versions, [each.kind.type_name for each in served.all()]


def test_resources_come_change_and_go_without_a_trace() -> None:
    served = Served(FeatureGates(), {})
    before, generation = told(served), served.generation
    two = resources(definition(version("v1"), version("v1beta1", storage=False)))
    served.set_custom("a", two)
    other = definition(group="a.example.com")
    served.set_custom("b", resources(other))
    assert served.generation == generation + 2
    assert served.preferred("ml.example.com", "trainings") is two[0] and served.get(*_place(two[1])) is two[1]
    assert served.of_kind("ml.example.com/v1beta1", "Training") is two[1] and list(served.forms(two[0])) == two
    custom = [("a.example.com", "v1"), ("ml.example.com", "v1"), ("ml.example.com", "v1beta1")]
    assert served.group_versions[-3:] == custom

    newer = resources(definition(version("v2")))
    served.set_custom("a", newer)
    assert served.find("ml.example.com", "trainings") is newer[0] and served.get(*_place(two[0])) is None
    assert list(served.forms(two[0])) == newer and served.group_versions[-1] == ("ml.example.com", "v2")

    for owner in ("a", "b", "never there"):
        served.set_custom(owner, ())
    assert told(served) == before and served.find("ml.example.com", "trainings") is None
    assert served.generation == generation + 5


def test_built_in_resource_is_not_hidden_by_a_custom_one() -> None:
    """A definition may be older than the server that has its resource built in."""
    served = Served(FeatureGates(), {})
    built_in, before = served.preferred("apps", "deployments"), told(served)
    names = {"plural": "deployments", "singular": "deployment", "kind": "Deployment"}
    served.set_custom("old", resources(definition(group="apps", names=names)))
    assert served.get("apps", "v1", "deployments") is served.of_kind("apps/v1", "Deployment") is built_in
    served.set_custom("old", ())
    assert served.get("apps", "v1", "deployments") is built_in and told(served) == before


def _place(resource: Resource) -> tuple[str, str, str]:
    return resource.kind.group, resource.kind.version, resource.kind.plural
