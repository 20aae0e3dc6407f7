from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from recorder import KUBECTL, recorder
from reference import interface_facts, needs_reference

from haru.kube.kinds import all_kinds, group_versions
from haru.kube.openapi import openapi_hash, openapi_v3_document, openapi_v3_index

Obj = dict[str, Any]
CORE = "io.k8s.api.core.v1."


def document(group: str, version: str) -> Obj:
    return openapi_v3_document(group, version, all_kinds())


def schemas(group: str, version: str) -> Obj:
    found: Obj = document(group, version)["components"]["schemas"]
    return found


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref" and isinstance(inner, str):  # JSONSchemaProps has a member of that name
                yield inner
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_openapi_v3_index_lists_documents_with_hash() -> None:
    assert openapi_v3_index([("", "v1"), ("apps", "v1")], lambda group, version: f"{group}-{version}") == {
        "paths": {
            "api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=-v1"},
            "apis/apps/v1": {"serverRelativeURL": "/openapi/v3/apis/apps/v1?hash=apps-v1"},
        }
    }


def test_openapi_hash_changes_with_served_kinds() -> None:
    everything = all_kinds()
    fewer = [kind for kind in everything if kind.plural != "pods"]
    assert openapi_hash("", "v1", everything) == openapi_hash("", "v1", everything)
    assert openapi_hash("", "v1", everything) != openapi_hash("", "v1", fewer)
    assert openapi_hash("apps", "v1", everything) == openapi_hash("apps", "v1", fewer)


@pytest.mark.parametrize(("group", "version"), group_versions())
def test_openapi_documents_have_no_dangling_references(group: str, version: str) -> None:
    whole = document(group, version)
    names = {"#/components/schemas/" + name for name in whole["components"]["schemas"]}
    assert set(references(whole)) <= names
    operations = [item[method] for item in whole["paths"].values() for method in item if method != "parameters"]
    ids = [operation["operationId"] for operation in operations]
    assert len(ids) == len(set(ids))
    for path, item in whole["paths"].items():
        declared = {p["name"] for p in item["parameters"] if p["in"] == "path"}
        assert declared == {segment[1:-1] for segment in path.split("/") if segment.startswith("{")}


def empty_lists(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, list) and not value:
        yield path
    for name, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from empty_lists(inner, f"{path}.{name}")


@pytest.mark.parametrize(("group", "version"), group_versions())
def test_openapi_documents_have_no_empty_lists_which_clients_would_lose(group: str, version: str) -> None:
    assert list(empty_lists(document(group, version))) == []


def test_patch_parameters_include_field_validation() -> None:
    paths = document("", "v1")["paths"]
    patch = paths["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert "fieldValidation" in {parameter["name"] for parameter in patch["parameters"]}
    assert patch["x-kubernetes-group-version-kind"] == {"group": "", "kind": "Pod", "version": "v1"}
    assert patch["x-kubernetes-action"] == "patch"
    assert "fieldValidation" in {p["name"] for p in paths["/api/v1/namespaces/{name}"]["patch"]["parameters"]}


def test_success_status_codes_are_documented() -> None:
    paths = document("apps", "v1")["paths"]
    one = paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]
    many = paths["/apis/apps/v1/namespaces/{namespace}/deployments"]
    codes = {method: sorted(one[method]["responses"]) for method in one if method != "parameters"}
    assert codes == {
        "get": ["200", "401"],
        "put": ["200", "201", "401"],
        "patch": ["200", "201", "401"],
        "delete": ["200", "202", "401"],
    }
    assert sorted(many["post"]["responses"]) == ["200", "201", "202", "401"]
    assert sorted(many["delete"]["responses"]) == ["200", "401"]
    assert many["post"]["responses"]["201"]["content"] == many["post"]["responses"]["200"]["content"]


def test_schemas_have_kinds_and_formats() -> None:
    found = schemas("", "v1")
    pod = found[CORE + "Pod"]
    assert pod["x-kubernetes-group-version-kind"] == [{"group": "", "kind": "Pod", "version": "v1"}]
    assert pod["properties"]["spec"]["allOf"] == [{"$ref": f"#/components/schemas/{CORE}PodSpec"}]
    containers = found[CORE + "PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["items"] == {"allOf": [{"$ref": f"#/components/schemas/{CORE}Container"}], "default": {}}
    volumes = found[CORE + "PodSpec"]["properties"]["volumes"]
    assert volumes["x-kubernetes-patch-strategy"] == "merge,retainKeys"
    assert found[CORE + "PodSpec"]["required"] == ["containers"]
    assert found[CORE + "Volume"]["properties"]["emptyDir"]["description"]
    assert found[CORE + "ContainerPort"]["properties"]["protocol"]["default"] == "TCP"
    assert found[CORE + "ResourceRequirements"]["properties"]["limits"]["additionalProperties"]["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"}
    ]
    assert found[CORE + "PodList"]["required"] == ["items"]
    assert found[CORE + "Secret"]["properties"]["data"]["additionalProperties"]["format"] == "byte"


DESCRIBED = ("resource.k8s.io", "scheduling.k8s.io", "batch", "apps")
OLD_VOLUMES = (
    "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "flexVolume", "flocker", "gcePersistentDisk",
    "gitRepo", "glusterfs", "photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos",
    "vsphereVolume", "fc", "iscsi",
)  # fmt: skip


def undescribed(found: Obj, names: Iterable[str]) -> list[str]:
    return [
        f"{name}.{field}"
        for name in names
        for field, inner in {"": found[name], **found[name].get("properties", {})}.items()
        if not inner.get("description")
    ]


@pytest.mark.parametrize(("group", "version"), [gv for gv in group_versions() if gv[0] in DESCRIBED])
def test_every_field_of_apis_for_accelerated_work_has_a_description(group: str, version: str) -> None:
    found = schemas(group, version)
    prefix = f"io.k8s.api.{group.split('.')[0]}.{version}."
    assert undescribed(found, [name for name in found if name.startswith(prefix)]) == []


def test_every_field_of_a_pod_and_of_a_quota_has_a_description_but_for_old_volumes() -> None:
    found = schemas("", "v1")
    reached, rest = set(), [CORE + "Pod", CORE + "ResourceQuota"]
    while rest:
        name = rest.pop()
        if name not in reached and name.startswith(CORE):
            reached.add(name)
            fields = found[name].get("properties", {}).items()
            rest += [
                each.rpartition("/")[2]
                for field, inner in fields
                if field not in OLD_VOLUMES
                for each in references(inner)
            ]
    missing = undescribed(found, sorted(reached))
    assert [each for each in missing if each.rpartition(".")[2] not in OLD_VOLUMES] == []


@needs_reference
@pytest.mark.parametrize(("group", "version"), group_versions())
def test_schemas_equal_reference_list_types_and_keys(group: str, version: str) -> None:
    reference = interface_facts("schema")
    keys = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
            "x-kubernetes-patch-merge-key", "x-kubernetes-patch-strategy", "type", "format")  # fmt: skip
    for name, schema in schemas(group, version).items():
        if name.endswith((".Quantity", ".IntOrString", ".Patch")):
            continue
        assert sorted(schema.get("required", ())) == sorted(reference[name].get("required", ())), name
        wanted = reference[name].get("properties", {})
        assert set(schema.get("properties", ())) >= set(wanted), name
        for field, facts in wanted.items():
            ours = schema["properties"][field]
            for key in keys:
                if key != "x-kubernetes-map-type" or facts.get(key) != "granular":
                    assert ours.get(key) == facts.get(key), (name, field, key)


@needs_reference
def test_paths_and_actions_equal_reference() -> None:
    served = set(group_versions())
    ours = {path: item for group, version in served for path, item in document(group, version)["paths"].items()}
    for path, facts in interface_facts("paths").items():
        segments = path.strip("/").split("/")
        group_version = ("", segments[1]) if segments[0] == "api" else (segments[1], segments[2])
        if group_version in served and "componentstatuses" not in path:
            actions = {ours[path][m]["x-kubernetes-action"] for m in ours[path] if m != "parameters"}
            assert actions == set(facts["actions"]), path


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
def test_kubectl_explain_and_create_use_the_documents(tmp_path: Path) -> None:
    with recorder() as server:
        explained = server.kubectl(tmp_path, "explain", "pod.spec.containers.resources")
        assert (explained.returncode, explained.stderr) == (0, "")
        assert "FIELD: resources <ResourceRequirements>" in explained.stdout
        assert "limits\t<map[string]Quantity>" in explained.stdout
        recursive = server.kubectl(tmp_path, "explain", "resourceclaim.spec", "--recursive")
        assert recursive.returncode == 0
        assert "firstAvailable\t<[]DeviceSubRequest>" in recursive.stdout
        listed = server.kubectl(tmp_path, "api-resources", "--api-group=scheduling.k8s.io", "-o", "name")
        assert set(listed.stdout.split()) == {
            "podgroups.scheduling.k8s.io",
            "priorityclasses.scheduling.k8s.io",
            "workloads.scheduling.k8s.io",
        }
        manifest = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}'
        created = server.kubectl(tmp_path, "create", "-f", "-", stdin=manifest)
        assert "recorded" in created.stderr
        assert server.bodies[0][0].endswith("fieldValidation=Strict")
