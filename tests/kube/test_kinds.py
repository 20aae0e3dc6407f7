from __future__ import annotations

import subprocess
import sys

import pytest
from reference import interface_facts, needs_reference

from haru.kube import kinds
from haru.kube.kinds import Kind, all_kinds, by_kind, lookup, storage_kind, subresources_of


def resource(group: str, version: str, plural: str) -> Kind:
    found = lookup(group, version, plural)
    assert found is not None
    return found


def test_kind_has_resource_names_and_scope() -> None:
    deployment = resource("apps", "v1", "deployments")
    assert by_kind("apps/v1", "Deployment") is deployment
    assert deployment.api_version == "apps/v1"
    assert deployment.list_kind == "DeploymentList"
    assert deployment.group_resource == "deployments.apps"
    assert (deployment.singular, deployment.short_names, deployment.categories) == ("deployment", ("deploy",), ("all",))
    assert deployment.namespaced and not deployment.virtual
    assert deployment.type_name == "io.k8s.api.apps.v1.Deployment"
    assert resource("", "v1", "pods").api_version == "v1"
    assert resource("", "v1", "pods").group_resource == "pods"
    assert str(deployment) == "apps/v1 Deployment"


def test_unserved_resource_is_not_found() -> None:
    assert lookup("apps", "v1beta1", "deployments") is None
    assert by_kind("v1", "Deployment") is None


@pytest.mark.parametrize(
    ("group", "version", "plural", "stored"),
    [
        ("resource.k8s.io", "v1beta1", "resourceslices", "resource.k8s.io/v1 ResourceSlice"),
        ("resource.k8s.io", "v1beta2", "resourceclaims", "resource.k8s.io/v1 ResourceClaim"),
        ("resource.k8s.io", "v1alpha3", "devicetaintrules", "resource.k8s.io/v1beta2 DeviceTaintRule"),
        (
            "resource.k8s.io",
            "v1alpha3",
            "resourcepoolstatusrequests",
            "resource.k8s.io/v1alpha3 ResourcePoolStatusRequest",
        ),
        ("autoscaling", "v1", "horizontalpodautoscalers", "autoscaling/v2 HorizontalPodAutoscaler"),
        ("events.k8s.io", "v1", "events", "v1 Event"),
        ("scheduling.k8s.io", "v1alpha2", "podgroups", "scheduling.k8s.io/v1alpha2 PodGroup"),
        ("apps", "v1", "deployments", "apps/v1 Deployment"),
    ],
)
def test_resource_is_stored_in_its_storage_version(group: str, version: str, plural: str, stored: str) -> None:
    assert str(storage_kind(resource(group, version, plural))) == stored


def test_storage_version_of_every_kind_exists() -> None:
    for kind in all_kinds():
        assert storage_kind(kind).kind == kind.kind
        assert not kind.virtual or kind.verbs == ("create",)


def test_group_versions_are_ordered_and_alpha_is_off_by_default() -> None:
    versions = kinds.group_versions()
    assert versions[0] == ("", "v1")
    resource_versions = [version for group, version in versions if group == "resource.k8s.io"]
    assert resource_versions == ["v1", "v1beta2", "v1beta1", "v1alpha3"]
    assert [version for group, version in versions if group == "autoscaling"] == ["v2", "v1"]
    on = {gv for gv in versions if kinds.enabled_by_default(*gv)}
    assert ("resource.k8s.io", "v1") in on
    assert on.isdisjoint({("resource.k8s.io", "v1beta2"), ("scheduling.k8s.io", "v1alpha2")})


def test_subresources_have_kinds_and_verbs() -> None:
    found = {sub.name: sub for sub in subresources_of(resource("", "v1", "pods"))}
    assert set(found) >= {"binding", "eviction", "log", "status", "resize", "ephemeralcontainers"}
    assert (found["eviction"].group, found["eviction"].kind, found["eviction"].verbs) == (
        "policy",
        "Eviction",
        ("create",),
    )
    assert (found["status"].kind, found["status"].verbs) == ("Pod", ("get", "patch", "update"))
    for kind in all_kinds():
        for sub in subresources_of(kind):
            assert by_kind(f"{sub.group}/{sub.version}".lstrip("/"), sub.kind) is not None


def test_request_body_kinds_are_known() -> None:
    for api_version, kind in [
        ("autoscaling/v1", "Scale"),
        ("policy/v1", "Eviction"),
        ("authentication.k8s.io/v1", "TokenRequest"),
        ("apps/v1", "DeleteOptions"),
    ]:
        found = by_kind(api_version, kind)
        assert found is not None and found not in all_kinds()
        assert found.api_version == api_version


@needs_reference
def test_scopes_and_names_equal_reference_url_paths() -> None:
    named = {}
    for path, entry in interface_facts("paths").items():
        if path.endswith("/{name}"):
            named[path.split("/")[-2], tuple(entry["gvk"])] = "{namespace}" in path
    ours = {(k.plural, (k.group, k.version, k.kind)): k.namespaced for k in all_kinds() if not k.virtual}
    assert ours.items() <= named.items()


def test_import_of_kinds_takes_less_than_50_ms() -> None:
    code = (
        "import dataclasses, pathlib, time; start = time.process_time(); import haru.kube.kinds; "
        "print(time.process_time() - start)"
    )
    times = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(times) < 0.05
