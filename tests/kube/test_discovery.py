from __future__ import annotations

from haru.kube import discovery
from haru.kube.kinds import all_kinds, group_versions


def test_api_group_list_has_versions_and_preferred_version() -> None:
    groups = discovery.api_group_list(group_versions())["groups"]
    assert [group["name"] for group in groups[:2]] == ["apiregistration.k8s.io", "apps"]
    for group in groups:
        assert group["preferredVersion"] == group["versions"][0]
        assert group["preferredVersion"] is not group["versions"][0]
    one = discovery.api_group("resource.k8s.io", ["v1", "v1beta2"])
    assert one["kind"] == "APIGroup"
    assert one["versions"][1] == {"groupVersion": "resource.k8s.io/v1beta2", "version": "v1beta2"}


def test_api_versions_document_has_v1() -> None:
    assert discovery.api_versions("127.0.0.1:6443") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}],
    }


def test_resource_list_has_verbs_and_subresources() -> None:
    listed = discovery.api_resource_list("", "v1", all_kinds())
    assert listed["groupVersion"] == "v1"
    resources = {resource["name"]: resource for resource in listed["resources"]}
    assert list(resources) == sorted(resources)
    pods = resources["pods"]
    assert (pods["singularName"], pods["kind"], pods["namespaced"]) == ("pod", "Pod", True)
    assert (pods["shortNames"], pods["categories"]) == (["po"], ["all"])
    assert pods["verbs"] == ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    assert resources["pods/eviction"] == {
        "name": "pods/eviction",
        "singularName": "",
        "namespaced": True,
        "group": "policy",
        "version": "v1",
        "kind": "Eviction",
        "verbs": ["create"],
    }
    assert "group" not in resources["pods/status"]
    assert resources["serviceaccounts/token"]["group"] == "authentication.k8s.io"
    assert "shortNames" not in resources["secrets"]
    assert all(r["singularName"] for r in listed["resources"] if "/" not in r["name"])
    scale = discovery.api_resource_list("apps", "v1", all_kinds())["resources"]
    assert next(r for r in scale if r["name"] == "deployments/scale")["kind"] == "Scale"


def test_storage_version_hash_follows_stored_version() -> None:
    hashes = {
        version: {r["name"]: r.get("storageVersionHash") for r in
                  discovery.api_resource_list("resource.k8s.io", version, all_kinds())["resources"]}
        for version in ("v1", "v1beta1")
    }  # fmt: skip
    assert hashes["v1"]["resourceclaims"] == hashes["v1beta1"]["resourceclaims"]
    assert hashes["v1"]["resourceclaims"] != hashes["v1"]["deviceclasses"]


def test_aggregated_discovery_has_resources_and_subresources() -> None:
    core = discovery.aggregated(group_versions(), all_kinds(), root="/api")
    assert [item["metadata"] for item in core["items"]] == [{}]
    named = discovery.aggregated(
        group_versions(), all_kinds(), root="/apis", stale=frozenset({("scheduling.k8s.io", "v1alpha2")})
    )
    groups = {item["metadata"]["name"]: item["versions"] for item in named["items"]}
    assert [v["version"] for v in groups["resource.k8s.io"]] == ["v1", "v1beta2", "v1beta1", "v1alpha3"]
    assert {v["version"]: v["freshness"] for v in groups["scheduling.k8s.io"]} == {"v1": "Current", "v1alpha2": "Stale"}
    claims = next(r for r in groups["resource.k8s.io"][0]["resources"] if r["resource"] == "resourceclaims")
    assert claims["scope"] == "Namespaced"
    assert claims["responseKind"] == {"group": "", "version": "", "kind": "ResourceClaim"}
    scale = next(r for r in groups["apps"][0]["resources"] if r["resource"] == "deployments")["subresources"][0]
    assert scale["responseKind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert list(groups).index("resource.k8s.io") < list(groups).index("flowcontrol.apiserver.k8s.io")
    assert claims["subresources"] == [
        {"subresource": "status", "responseKind": claims["responseKind"], "verbs": ["get", "patch", "update"]}
    ]


def test_only_served_groups_are_listed() -> None:
    served = [kind for kind in all_kinds() if (kind.group, kind.version) == ("apps", "v1")]
    document = discovery.aggregated([("", "v1"), ("apps", "v1")], served, root="/apis")
    assert [item["metadata"]["name"] for item in document["items"]] == ["apps"]
    assert discovery.api_resource_list("", "v1", served)["resources"] == []
