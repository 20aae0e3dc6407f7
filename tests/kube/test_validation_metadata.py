"""Names and finalizers: which rule judges those of which kind, when an object is created and when it is updated."""

from __future__ import annotations

import pytest
from kube_cases import Obj, group, problems, put, resource, update_problems
from test_validation_kinds import CONFIG, EVENT, NEW_EVENT, thing


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (group(), ["metadata.finalizers", "metadata.finalizers[0]"]),
        (resource("ResourceClaim", {}), ["metadata.finalizers", "metadata.finalizers[0]"]),
        (thing("policy/v1", "PodDisruptionBudget", "team", spec={"selector": {}}), ["metadata.finalizers"]),
        (thing("coordination.k8s.io/v1", "Lease", "team", spec={}), ["metadata.finalizers"]),
    ],
)
def test_finalizers_of_updates_are_judged_as_those_of_new_objects(obj: Obj, expected: list[str]) -> None:
    named = put(obj, "metadata.finalizers", ["no name"])
    for found in (update_problems(named, obj), problems(named)):
        assert [text.split(":")[0] for text in found] == expected


@pytest.mark.parametrize(
    ("obj", "base", "on_create", "on_update"),
    [
        (CONFIG, "Bad!", True, True),
        (group(), "Bad!", True, False),
        (group(), "a/b", True, True),
        (resource("DeviceClass", {}), "Bad!", False, False),
        (thing("node.k8s.io/v1", "RuntimeClass", handler="h"), "a.b-", False, False),
    ],
)
def test_base_of_a_generated_name_is_judged_by_the_rule_of_its_kind(
    obj: Obj, base: str, on_create: bool, on_update: bool
) -> None:
    based = put(obj, "metadata.generateName", base)
    for refused, found in ((on_create, problems(based)), (on_update, update_problems(based, obj))):
        assert any(text.startswith("metadata.generateName:") for text in found) is refused, found


@pytest.mark.parametrize(
    ("obj", "name", "is_refused"),
    [
        (thing("certificates.k8s.io/v1", "CertificateSigningRequest", spec={}), "Bad_Name!", False),
        (thing("certificates.k8s.io/v1", "CertificateSigningRequest", spec={}), "a/b", True),
        (thing("coordination.k8s.io/v1beta1", "LeaseCandidate", "team", spec={}), "-A_b", False),
        (thing("coordination.k8s.io/v1beta1", "LeaseCandidate", "team", spec={}), "a!", True),
        (NEW_EVENT, "Bad_Name!", True),
        (EVENT, "Bad_Name!", False),
        (EVENT, "..", True),
    ],
)
def test_names_of_kinds_that_are_no_dns_names(obj: Obj, name: str, is_refused: bool) -> None:
    found = problems(put(obj, "metadata.name", name))
    assert any(text.startswith("metadata.name:") for text in found) is is_refused, found


@pytest.mark.parametrize("kind", ["CustomResourceDefinition", "APIService"])
def test_name_that_follows_from_a_spec_cannot_be_generated(kind: str) -> None:
    group = {"CustomResourceDefinition": "apiextensions.k8s.io", "APIService": "apiregistration.k8s.io"}[kind]
    obj = thing(f"{group}/v1", kind, spec={"group": "example.com", "version": "v1", "names": {"plural": "things"}})

    def at_names(metadata: Obj) -> list[str]:
        return sorted(t.split(":")[0] for t in problems({**obj, "metadata": metadata}) if t.startswith("metadata."))

    assert at_names({}) == ["metadata.name"]
    generated = at_names({"generateName": "gen-", "name": "gen-abcde"})
    assert generated == ["metadata.generateName", "metadata.name"]


def test_metadata_of_a_kind_without_a_rule_about_them_are_judged_last() -> None:
    budget = thing("policy/v1", "PodDisruptionBudget", "team", spec={"selector": {"matchLabels": {"a/b/c": "d"}}})
    unnamed = put(budget, "metadata.name", "")
    assert {text.split(":")[0] for text in problems(unnamed)} == {"spec.selector.matchLabels"}
    assert [text.split(":")[0] for text in problems(put(unnamed, "spec", {"selector": {}}))] == ["metadata.name"]
