from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from reference import interface_facts, needs_reference

from haru.kube.kinds import all_kinds, by_kind
from haru.kube.schema import SCALARS, MessageType, message_type, type_of

CORE = "io.k8s.api.core.v1."
ROOT = Path(__file__).parent.parent.parent


def reachable() -> dict[str, MessageType]:
    found: dict[str, MessageType] = {}
    waiting = [kind.type_name for kind in all_kinds()]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = message_type(name)
            waiting += [field.type for field in found[name].fields.values() if field.is_message]
            waiting += found[name].embedded.values()
    return found


def test_list_map_has_keys_and_patch_strategy() -> None:
    containers = message_type(CORE + "PodSpec").fields["containers"]
    assert (containers.number, containers.type, containers.container) == (2, CORE + "Container", "list")
    assert containers.required
    assert (containers.list_type, containers.list_map_keys) == ("map", ("name",))
    assert (containers.patch_merge_key, containers.patch_strategies) == ("name", ("merge",))


def test_type_facts_have_strategies_and_enums() -> None:
    pod_spec = message_type(CORE + "PodSpec").fields
    assert pod_spec["volumes"].patch_strategies == ("merge", "retainKeys")
    assert pod_spec["schedulingGroup"].number == 43
    assert pod_spec["restartPolicy"].enum == ("Always", "Never", "OnFailure")
    assert pod_spec["priority"].pointer and not pod_spec["nodeName"].pointer
    assert pod_spec["nodeSelector"].map_type == "atomic"
    assert message_type(CORE + "ContainerPort").fields["protocol"].default == "TCP"
    assert message_type(CORE + "NodeSelector").map_type == "atomic"
    meta = message_type("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").fields
    assert meta["labels"].map_type == "granular"
    assert meta["finalizers"].list_type == "set"
    certificate = message_type("io.k8s.api.certificates.v1.CertificateSigningRequestSpec").fields
    assert "client auth" in certificate["usages"].enum
    assert certificate["extra"].type == "stringList"


def test_embedded_messages_have_their_fields() -> None:
    volume = message_type(CORE + "Volume")
    assert volume.embedded == {2: CORE + "VolumeSource"}
    assert volume.fields["configMap"].number is None
    assert message_type(CORE + "VolumeSource").fields["configMap"].number == 19
    rule = message_type("io.k8s.api.admissionregistration.v1.NamedRuleWithOperations")
    assert {"resourceNames", "operations", "apiGroups", "scope"} <= set(rule.fields)


def test_every_kind_has_a_type_with_metadata() -> None:
    for kind in all_kinds():
        fields = type_of(kind).fields
        assert {"apiVersion", "kind"} <= set(fields)
    scale = by_kind("autoscaling/v1", "Scale")
    assert scale is not None and "spec" in type_of(scale).fields


def test_unknown_type_is_named() -> None:
    with pytest.raises(KeyError, match=r"no API type is named io\.k8s\.api\.core\.v1\.Nope"):
        message_type(CORE + "Nope")


@needs_reference
def test_every_type_equals_reference() -> None:
    schema, wire = interface_facts("schema"), interface_facts("wire")
    for name, message in reachable().items():
        properties = schema.get(name, {}).get("properties")
        if properties is not None:
            assert set(message.fields) >= set(properties), name
            assert {f.name for f in message.fields.values() if f.required} == set(schema[name].get("required", ())), (
                name
            )
        if name.startswith(("io.k8s.kube-aggregator.", "io.k8s.apiextensions-apiserver.")):
            continue  # the reference lacks them: test_api_services and test_protobuf_encoding have some by hand
        numbered = wire[name.replace("io.k8s.", "k8s.io.", 1)]
        numbers = {int(n): f for n, f in numbered.items()}
        assert set(numbers) == set(message.by_number) | set(message.embedded), name
        for number, field in message.by_number.items():
            json_name, wire_type, container = numbers[number]
            assert field.name.lower() == json_name.lower(), name
            assert field.container == container, (name, json_name)
            if (
                field.type in SCALARS.keys() & {"string", "bool", "int32", "int64", "double", "bytes"}
                and container != "map"
            ):
                assert field.type == wire_type, (name, json_name)


@needs_reference
def test_schema_tables_equal_output_of_derive_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "derive_tables.py"))
    tool["main"].__globals__["OUT"] = tmp_path
    tool["main"]()
    tables = ROOT / "src" / "haru" / "kube" / "tables"
    kept = {path.name: path.read_text() for path in tables.glob("*.txt") if path.name != "descriptions.txt"}
    assert {path.name: path.read_text() for path in tmp_path.glob("*.txt")} == kept
