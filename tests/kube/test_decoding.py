from __future__ import annotations

import copy
import time
from typing import Any

import pytest

from haru.kube.decoding import strict_decode, suggest
from haru.kube.errors import StatusError
from haru.kube.kinds import by_kind, known_kind
from haru.kube.repeated_names import duplicate_fields, in_order

Obj = dict[str, Any]


def decode(obj: Any, api_version: str = "v1", kind: str = "Pod", known: Obj | None = None) -> tuple[Obj, list[str]]:
    found = by_kind(api_version, kind)
    assert found is not None
    return strict_decode(obj, found, known)


def pod(**spec: Any) -> Obj:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}


def slice_of(devices: int) -> Obj:
    device = {
        f"{domain}{i}": {"string": "x"} if i % 2 else {"int": 5}
        for domain in ("a.example.com/k", "k")
        for i in range(12)
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s", "labels": {"a": "b"}, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": f"gpu-{i}",
                    "attributes": device,
                    "capacity": {"memory": {"value": "80Gi"}, "sm": {"value": "132"}},
                    "consumesCounters": [{"counterSet": "c", "counters": {"slots": {"value": "7"}}}],
                }
                for i in range(devices)
            ],
        },
    }


def test_object_without_changes_is_returned_itself() -> None:
    obj = pod(containers=[{"name": "c", "image": "i", "resources": {"limits": {"cpu": "500m"}}}], priority=0)
    assert decode(obj)[0] is obj


@pytest.mark.parametrize(
    "change",
    [
        {"status": {"phase": "Running"}},
        {"status": {"phase": None, "unknown": 1}},
        {"metadata": {"name": "a", "labels": {"k": None}, "foo": {}}},
        {"status": {"conditions": [{"type": "Ready", "status": "True", "who": "me"}]}},
        {"spec": None},
        {"more": {}},
    ],
)
def test_object_that_shares_parts_with_a_known_one_is_decoded_like_any_other(change: Obj) -> None:
    known = pod(containers=[{"name": "c"}]) | {"status": {"phase": "Pending"}}
    changed = {**known, **change}
    assert decode(changed, known=known) == decode(copy.deepcopy(changed))


def test_time_that_is_written_as_null_is_no_reason_for_a_second_look() -> None:
    condition = {"type": "Ready", "status": "True", "lastProbeTime": None}
    stored = pod(containers=[{"name": "c"}]) | {"status": {"conditions": [condition]}}
    assert decode(stored)[0] is stored


def test_nulls_are_dropped_and_input_is_unchanged() -> None:
    obj = pod(containers=[{"name": "c", "env": None}], nodeSelector=None, schedulingGroup={"podGroupName": None})
    before = copy.deepcopy(obj)
    pruned, unknown = decode(obj)
    assert pruned["spec"] == {"containers": [{"name": "c"}], "schedulingGroup": {}}
    assert unknown == []
    assert obj == before


def test_null_list_element_becomes_zero_value() -> None:
    obj = pod(containers=[None], tolerations=[None])
    obj["metadata"]["labels"] = {"a": None}
    pruned, _ = decode(obj)
    assert pruned["spec"] == {"containers": [{}], "tolerations": [{}]}
    assert pruned["metadata"]["labels"] == {"a": ""}


@pytest.mark.parametrize(
    ("api_version", "kind", "obj", "unknown"),
    [
        (
            "resource.k8s.io/v1",
            "ResourceClaim",
            {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClasName": "gpu"}}]}}},
            ['unknown field "spec.devices.requests[0].exactly.deviceClasName"'],
        ),
        (
            "resource.k8s.io/v1beta1",
            "ResourceSlice",
            {
                "spec": {
                    "devices": [{"name": "d", "basic": {"attributes": {"gpu.nvidia.com.productName": {"text": "x"}}}}]
                }
            },
            ['unknown field "spec.devices[0].basic.attributes.gpu.nvidia.com.productName.text"'],
        ),
        (
            "v1",
            "Pod",
            {"Spec": {}, "spec": {"nodename": "n"}},
            ['unknown field "Spec"', 'unknown field "spec.nodename"'],
        ),
        (
            "v1",
            "Pod",
            {"spec": {"volumes": [{"name": "v", "emptyDri": {}}]}},
            ['unknown field "spec.volumes[0].emptyDri"'],
        ),
        ("v1", "Pod", {"metadata": {"clusterName": None}}, ['unknown field "metadata.clusterName"']),
    ],
)
def test_unknown_fields_are_listed_with_path(api_version: str, kind: str, obj: Obj, unknown: list[str]) -> None:
    assert decode(obj, api_version, kind)[1] == unknown


def test_unknown_fields_are_dropped() -> None:
    pruned, _ = decode(pod(containers=[{"name": "c", "imagePulPolicy": "x"}], gpu=1))
    assert pruned["spec"] == {"containers": [{"name": "c"}]}


def test_fields_of_embedded_types_are_known() -> None:
    obj = pod(
        containers=[
            {
                "name": "c",
                "envFrom": [{"configMapRef": {"name": "m", "optional": True}}],
                "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 3},
            }
        ],
        ephemeralContainers=[{"name": "e", "targetContainerName": "c", "image": "i"}],
        volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    )
    assert decode(obj) == (obj, [])


@pytest.mark.parametrize(
    ("api_version", "kind", "obj", "message"),
    [
        (
            "v1",
            "Pod",
            {"spec": {"containers": "x"}},
            "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            "apps/v1",
            "Deployment",
            {"spec": {"replicas": "3"}},
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "apps/v1",
            "Deployment",
            {"spec": {"replicas": 1.5}},
            "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "apps/v1",
            "Deployment",
            {"spec": {"replicas": 1 << 31}},
            "json: cannot unmarshal number 2147483648 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "v1",
            "Pod",
            {"spec": {"containers": [{"env": [{"value": True}]}]}},
            "json: cannot unmarshal bool into Go struct field EnvVar.spec.containers.env.value of type string",
        ),
        (
            "v1",
            "ConfigMap",
            {"data": {"a": 1}},
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            "v1",
            "Pod",
            {"metadata": {"labels": ["a"]}},
            "json: cannot unmarshal array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
        ),
        ("v1", "Secret", {"data": {"a": "%%"}}, "illegal base64 data at input byte 0"),
        (
            "v1",
            "Pod",
            {"spec": {"containers": [{"resources": {"limits": {"cpu": "lots"}}}]}},
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "v1",
            "Pod",
            {"metadata": {"creationTimestamp": "yesterday"}},
            'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"',
        ),
        (
            "v1",
            "Pod",
            {"metadata": {"creationTimestamp": "2026-13-01T00:00:00Z"}},
            'parsing time "2026-13-01T00:00:00Z": month out of range',
        ),
        (
            "coordination.k8s.io/v1",
            "Lease",
            {"spec": {"renewTime": "2026-01-01T00:00:00Z"}},
            'parsing time "2026-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000"',
        ),
        ("v1", "Pod", [], "json: cannot unmarshal array into Go value of type v1.Pod"),
    ],
)
def test_wrong_type_is_refused_with_go_message(api_version: str, kind: str, obj: Any, message: str) -> None:
    with pytest.raises(StatusError) as error:
        decode(obj, api_version, kind)
    version = api_version.rpartition("/")[2]
    assert error.value.code == 400
    assert error.value.message == f'{kind} in version "{version}" cannot be handled as a {kind}: {message}'


@pytest.mark.parametrize(
    ("given", "stored"),
    [("0.5", "500m"), ("1024Mi", "1Gi"), (2, "2"), (0.1, "100m"), ("1000m", "1"), ("1e3", "1e3"), ("80Gi", "80Gi")],
)
def test_quantities_become_canonical(given: Any, stored: str) -> None:
    pruned, _ = decode(pod(containers=[{"name": "c", "resources": {"limits": {"cpu": given}}}]))
    assert pruned["spec"]["containers"][0]["resources"]["limits"]["cpu"] == stored


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.999Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05Z"),
    ],
)
def test_times_become_canonical(given: str, stored: str) -> None:
    pruned, _ = decode({"metadata": {"creationTimestamp": given}})
    assert pruned["metadata"]["creationTimestamp"] == stored


def test_int_or_string_accepts_both_types() -> None:
    for value in (1, "25%"):
        obj = {"spec": {"strategy": {"rollingUpdate": {"maxSurge": value}}}}
        assert decode(obj, "apps/v1", "Deployment")[0] is obj


def test_raw_extension_is_unchanged() -> None:
    parameters = {"kind": "GpuConfig", "anything": [None, {"x": None}]}
    obj = {"spec": {"config": [{"opaque": {"driver": "d", "parameters": parameters}}]}}
    assert decode(obj, "resource.k8s.io/v1", "DeviceClass") == (obj, [])


def definition_of(schema: Obj) -> Obj:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {"spec": {"group": "a.b", "names": {"kind": "A", "plural": "as"}, "scope": "Cluster", "versions": [version]}}


def decoded_schema(schema: Obj) -> tuple[Any, list[str]]:
    obj, unknown = decode(definition_of(schema), "apiextensions.k8s.io/v1", "CustomResourceDefinition")
    return obj["spec"]["versions"][0]["schema"]["openAPIV3Schema"], unknown


def test_json_schema_or_bool_is_decoded_as_schema() -> None:
    good: Obj = {"type": "array", "items": {"type": "object", "additionalProperties": True}}
    assert decoded_schema(good) == (good, [])
    odd = {"items": {"type": "object", "x": 1, "properties": {"a": {"nullable": None}}}, "additionalProperties": False}
    told = {"items": {"type": "object", "properties": {"a": {}}}, "additionalProperties": False}
    assert decoded_schema(odd) == (told, [])
    assert decoded_schema({"items": 5}) == ({}, [])
    assert decoded_schema({"items": [{"type": "string", "x": 1}]}) == ({"items": [{"type": "string"}]}, [])


def test_whole_numbers_in_a_schema_are_written_without_a_point() -> None:
    inner = {"type": "object", "default": {"a": [1e3, 0.5]}, "enum": [2.0], "maximum": 3.0, "minimum": 0.5}
    read = {"type": "object", "default": {"a": [1000, 0.5]}, "enum": [2], "maximum": 3, "minimum": 0.5}
    for given in ({"properties": {"a": inner}}, {"additionalProperties": inner}, {"items": inner}):
        schema, unknown = decoded_schema(given)
        (found,) = schema.values()
        assert repr(found.get("a", found)) == repr(read) and not unknown


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"maximum": "a"}, "cannot unmarshal string into Go struct field JSONSchemaProps"),
        ({"items": {"properties": {"a": 1.5}}}, "cannot unmarshal number"),
        ({"items": {"items": {"type": []}}}, "cannot unmarshal array"),
        ({"additionalProperties": 5}, "boolean or JSON schema expected"),
        ({"additionalProperties": {"required": "a"}}, "cannot unmarshal string"),
    ],
)
def test_invalid_value_for_schema_is_refused(schema: Obj, message: str) -> None:
    with pytest.raises(StatusError) as refused:
        decoded_schema(schema)
    assert refused.value.code == 400 and message in refused.value.message


def test_unknown_field_suggests_similar_name() -> None:
    assert suggest("imagePulPolicy", ["image", "imagePullPolicy"]) == "imagePullPolicy"
    assert suggest("nodename", ["nodeName", "nodeSelector"]) == "nodeName"
    assert suggest("replica", ["replicas", "selector"]) == "replicas"
    assert suggest("abc", ["replicas"]) == ""


def test_duplicate_fields_are_listed() -> None:
    text = '{"kind":"Pod","spec":{"a":1,"a":2,"l":[{"x":1},{"x":1,"x":1,"x":2}]},"kind":"Pod"}'
    assert duplicate_fields(text) == [
        'duplicate field "spec.a"',
        'duplicate field "spec.l[1].x"',
        'duplicate field "kind"',
    ]
    assert duplicate_fields(b'{"a":[1,{"b":{}}]}') == []


def test_what_stands_in_an_unknown_field_is_not_told() -> None:
    text = '{"x":{"a":1,"a":1},"spec":{"b":1,"b":1},"x":[{"c":1,"c":1}],"xy":1,"xy":2}'
    assert in_order(text, ['unknown field "x"']) == [
        'unknown field "x"',
        'duplicate field "spec.b"',
        'duplicate field "xy"',
    ]


def test_names_within_any_json_may_repeat() -> None:
    revision = known_kind("apps/v1", "ControllerRevision").message_type
    text = '{"metadata":{"name":"a","name":"b"},"data":{"a":1,"a":1},"revision":1,"revision":2}'
    assert in_order(text, [], revision) == ['duplicate field "metadata.name"', 'duplicate field "revision"']


def test_many_unknown_and_repeated_fields_are_told_in_a_time_that_grows_with_the_text() -> None:
    def seconds(count: int) -> float:
        text = "{" + ",".join([f'"x{number}":{{}},"data":{{}}' for number in range(count)]) + "}"
        unknown = [f'unknown field "x{number}"' for number in range(count)]
        best = 60.0
        for _ in range(3):
            start = time.process_time()
            found = in_order(text, unknown)
            best = min(best, time.process_time() - start)
        assert found == ['unknown field "x0"', *unknown[1:2], 'duplicate field "data"', *unknown[2:]]
        return best

    assert seconds(8_000) < 64 * seconds(500)


def test_large_slice_is_decoded_quickly() -> None:
    obj = slice_of(26)
    decode(obj, "resource.k8s.io/v1", "ResourceSlice")
    best = 1.0
    for _ in range(20):
        start = time.process_time()
        result, unknown = decode(obj, "resource.k8s.io/v1", "ResourceSlice")
        best = min(best, time.process_time() - start)
    assert result is obj and unknown == []
    assert best < 0.002
