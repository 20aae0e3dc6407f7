from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from haru.apiserver.registry import Served
from haru.kube.discovery import aggregated
from haru.kube.discovery_merge import Groups, merged, merged_order, served_resources, without_versions
from haru.kube.gates import FeatureGates

Obj = dict[str, Any]


def resource(name: str, verbs: str = "get list", **more: Any) -> Obj:
    return {"resource": name, "scope": "Namespaced", "verbs": verbs.split(), **more}


def group(name: str, **versions: list[Obj]) -> Obj:
    told = [{"version": v, "resources": resources, "freshness": "Current"} for v, resources in versions.items()]
    return {"metadata": {"name": name}, "versions": told}


def names(groups: Groups) -> list[tuple[str, list[tuple[str, list[str]]]]]:
    return [
        (g["metadata"]["name"], [(v["version"], [r["resource"] for r in v["resources"]]) for v in g["versions"]])
        for g in groups
    ]


def test_merged_discovery_is_union_of_groups_versions_and_resources() -> None:
    a = [group("apps", v1=[resource("deployments")]), group("batch", v1=[resource("jobs")])]
    b = [group("apps", v2=[resource("deployments")], v1=[resource("sets")]), group("train", v1=[resource("cars")])]
    assert names(merged({"a": a, "b": b}, "a")) == [
        ("apps", [("v2", ["deployments"]), ("v1", ["deployments", "sets"])]),
        ("batch", [("v1", ["jobs"])]),
        ("train", [("v1", ["cars"])]),
    ]


def test_resource_in_both_documents_has_union_of_verbs() -> None:
    kind = {"group": "", "version": "v1", "kind": "Binding"}
    status = {"subresource": "status", "verbs": ["get"]}
    a = [group("apps", v1=[resource("sets", "list get", singularResource="set", subresources=[status])])]
    scale = {"subresource": "scale", "responseKind": kind, "verbs": ["get"]}
    later = {"subresource": "status", "verbs": ["get", "patch"]}
    b = [group("apps", v1=[resource("sets", "watch get", singularResource="SET", subresources=[later, scale])])]
    (found,) = merged({"b": b, "a": a}, "a")[0]["versions"][0]["resources"]
    assert found == resource("sets", "get list watch", singularResource="set", subresources=[scale, later])


def test_freshness_comes_from_the_own_document() -> None:
    a, b = [group("apps", v1=[resource("x")])], [group("apps", v1=[resource("y")])]
    a[0]["versions"][0]["freshness"] = "Stale"
    assert merged({"a": a, "b": b}, "b")[0]["versions"][0]["freshness"] == "Stale"
    assert merged({"c": a, "b": b}, "b")[0]["versions"][0]["freshness"] == "Current"


def test_document_without_additions_is_returned_unchanged() -> None:
    own = [group("apps", v1=[resource("sets", "list get")])]
    assert merged({"a": own, "b": deepcopy(own)}, "a") is own
    assert merged({"a": own}, "a") is own
    assert merged({"a": own, "b": []}, "a") is own


def test_excluded_versions_are_left_out() -> None:
    groups = [group("apps", v1=[resource("x")], v2=[resource("x")]), group("train", v1=[resource("cars")])]
    assert names(without_versions(groups, {("apps", "v2"), ("train", "v1")})) == [("apps", [("v1", ["x"])])]
    assert served_resources(groups) == {("apps", "v1", "x"), ("apps", "v2", "x"), ("train", "v1", "cars")}


def test_orders_are_merged() -> None:
    assert merged_order([["a", "b", "c"], ["a", "x", "c"]]) == ["a", "b", "x", "c"]
    assert merged_order([["b", "c"], ["a", "b"]]) == ["a", "b", "c"]
    assert merged_order([["a", "b"], ["b", "a"]]) == ["a", "b"]
    assert merged_order([]) == []


LISTS = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=6), max_size=4)


@settings(max_examples=80, deadline=None)
@given(LISTS)
def test_merged_order_has_every_name_once_and_keeps_common_order(lists: list[list[str]]) -> None:
    order = merged_order(lists)
    assert sorted(order) == sorted({name for each in lists for name in each})
    before = {(x, y) for each in lists for i, x in enumerate(each) for y in each[i + 1 :]}
    while more := {(x, z) for x, y in before for y2, z in before if y == y2} - before:
        before |= more
    if not any((y, x) in before for x, y in before):
        assert all(order.index(x) < order.index(y) for x, y in before)


RESOURCE = st.builds(
    lambda name, verbs, subs: resource(
        name,
        " ".join(verbs),
        **({"subresources": [{"subresource": s, "verbs": ["get"]} for s in subs]} if subs else {}),
    ),
    st.sampled_from(["x", "y", "z"]),
    st.lists(st.sampled_from(["get", "list", "watch"]), unique=True, min_size=1),
    st.lists(st.sampled_from(["status", "scale"]), unique=True),
)
RESOURCES = st.lists(RESOURCE, unique_by=lambda r: r["resource"], max_size=3)
VERSIONS = st.dictionaries(st.sampled_from(["v1", "v2", "v1beta1"]), RESOURCES, min_size=1, max_size=3)
GROUPS = st.dictionaries(st.sampled_from(["apps", "batch", "train"]), VERSIONS, max_size=3).map(
    lambda found: [group(name, **versions) for name, versions in found.items()]
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from("abcd"), GROUPS, min_size=1), st.randoms(use_true_random=False))
def test_merged_discovery_is_independent_of_order_and_idempotent(
    documents: dict[str, Groups], shuffler: random.Random
) -> None:
    own = sorted(documents)[0]
    once = merged(documents, own)
    items = list(documents.items())
    shuffler.shuffle(items)
    assert merged(dict(items), own) == once
    for server in documents:
        assert merged(documents, server) == once
    assert merged(dict.fromkeys(documents, once), own) is once
    assert served_resources(once) == set().union(*(served_resources(each) for each in documents.values()))


def test_discovery_of_1_35_and_1_36_is_merged() -> None:
    gates = "GenericWorkload=true,DRADeviceTaintRules=true,DRADeviceTaints=true"
    found = {}
    for minor in (35, 36):
        served = Served(FeatureGates.parse(gates, minor), {"api/all": True})
        found[str(minor)] = aggregated(served.group_versions, served.kinds, root="/apis")["items"]
    union = merged(found, "35")
    assert names(union) == names(merged(found, "36")) == names(found["36"])
    assert served_resources(union) - served_resources(found["35"]) == {
        ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings"),
        ("resource.k8s.io", "v1beta2", "devicetaintrules"),
        ("scheduling.k8s.io", "v1alpha2", "podgroups"),
        ("scheduling.k8s.io", "v1alpha2", "workloads"),
    }
