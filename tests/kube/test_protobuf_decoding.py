from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.kube.errors import StatusError
from haru.kube.kinds import by_kind
from haru.kube.wire import MAGIC, decode_protobuf

Obj = dict[str, Any]
CAPTURED = Path(__file__).parent.parent / "data" / "wire"


# A small encoder: message(1, "text"), message((2, message(...)), (3, 7)).
def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: Any) -> bytes:
    if isinstance(value, bool | int):
        return varint(number << 3) + varint(int(value))
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + bytes(data)


def message(*fields: tuple[int, Any]) -> bytes:
    return b"".join(field(number, value) for number, value in fields)


def entry(key: str, value: Any) -> bytes:
    return message((1, key), (2, value))


def envelope(api_version: str, kind: str, raw: bytes, *more: tuple[int, Any]) -> bytes:
    return MAGIC + message((1, message((1, api_version), (2, kind))), (2, raw), *more)


def decode(api_version: str, kind: str, *fields: tuple[int, Any]) -> Obj:
    obj = decode_protobuf(envelope(api_version, kind, message(*fields)))
    assert obj.pop("apiVersion") == api_version
    assert obj.pop("kind") == kind
    return obj


@pytest.mark.parametrize("name", sorted(path.stem for path in CAPTURED.glob("*.bin")))
def test_kubectl_protobuf_bodies_are_decoded(name: str) -> None:
    expected = json.loads((CAPTURED / "expected.json").read_text())[name]
    assert decode_protobuf((CAPTURED / f"{name}.bin").read_bytes()) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        # zero values: pointers and required fields keep them, others do not
        ([(2, message((1, 0), (6, 0), (5, 0)))], {"spec": {"replicas": 0, "revisionHistoryLimit": 0}}),
        ([(1, message((1, "d"), (3, ""), (7, 0), (8, b"")))], {"metadata": {"name": "d"}}),
        ([(1, message((13, message((1, ""), (3, "o"), (4, ""), (5, ""), (6, False)))))],
         {"metadata": {"ownerReferences":
                       [{"kind": "", "name": "o", "uid": "", "apiVersion": "", "controller": False}]}}),
        # empty messages are kept
        ([(2, message((4, b""))), (3, b"")], {"spec": {"strategy": {}}, "status": {}}),
        # int-or-string
        ([(2, message((4, message((2, message((1, message((1, 1), (2, 0), (3, "25%"))),
                                              (2, message((1, 0), (2, 0), (3, ""))))))))),],
         {"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": "25%", "maxSurge": 0}}}}),
        # times
        ([(1, message((8, message((1, 1_700_000_000), (2, 999_000_000)))))],
         {"metadata": {"creationTimestamp": "2023-11-14T22:13:20Z"}}),
        ([(1, message((8, message((1, -62_135_596_800)))))],
         {"metadata": {"creationTimestamp": "0001-01-01T00:00:00Z"}}),
        # negative numbers are ten bytes long
        ([(3, message((1, -1), (2, -5)))], {"status": {"observedGeneration": -1, "replicas": -5}}),
        # maps, empty keys and values
        ([(1, message((11, entry("a", "b")), (11, entry("c", "")), (11, message((1, "d"))), (11, b"")))],
         {"metadata": {"labels": {"a": "b", "c": "", "d": "", "": ""}}}),
        # unknown numbers of every wire type are passed over
        ([(900, 1), (901, "x"), (902, 1.5), (1, message((1, "d")))], {"metadata": {"name": "d"}}),
        # raw JSON
        ([(1, message((17, message((1, "m"), (6, "FieldsV1"), (7, message((1, '{"f:spec":{}}')))))))],
         {"metadata": {"managedFields": [{"manager": "m", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]}}),
    ],
)  # fmt: skip
def test_deployment_fields_are_decoded(fields: list[tuple[int, Any]], expected: Obj) -> None:
    assert decode("apps/v1", "Deployment", *fields) == expected


def test_embedded_messages_are_decoded_inline() -> None:
    volume = message((1, "v"), (2, message((19, message((1, message((1, "cm-is-19"))))))))
    volume_claim = message((1, "p"), (2, message((10, message((1, "claim"), (2, False))))))
    probe = message((1, message((2, message((1, "/"), (2, message((1, 0), (2, 80))))))), (2, 0), (4, 3))
    container = message((1, "c"), (10, probe), (19, message((2, message((1, message((1, "m"))), (2, False))))))
    ephemeral = message((1, message((1, "e"), (2, "i"))), (2, "c"))
    fields = [(1, volume), (1, volume_claim), (2, container), (34, ephemeral)]
    assert decode("v1", "Pod", (2, message(*fields)))["spec"] == {
        "volumes": [
            {"name": "v", "configMap": {"name": "cm-is-19"}},
            {"name": "p", "persistentVolumeClaim": {"claimName": "claim"}},
        ],
        "containers": [{
            "name": "c",
            "livenessProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 3},
            "envFrom": [{"configMapRef": {"name": "m", "optional": False}}],
        }],
        "ephemeralContainers": [{"name": "e", "image": "i", "targetContainerName": "c"}],
    }  # fmt: skip


def test_resource_slice_is_decoded() -> None:
    device = message(
        (1, "gpu-0"),
        (2, entry("model", message((4, "H100")))),
        (2, entry("index", message((2, 0)))),
        (2, entry("ecc", message((3, False)))),
        (2, entry("numa", message((6, 0), (6, -1)))),
        (3, entry("memory", message((1, message((1, "80Gi")))))),
        (7, False),
        (8, message((1, "t"), (2, ""), (3, "NoSchedule"), (4, message((1, 1_700_000_000))))),
    )
    pool = message((1, "n"), (2, 1), (3, 1))
    spec = message((1, "d"), (2, pool), (3, ""), (5, False), (6, device))
    obj = decode("resource.k8s.io/v1", "ResourceSlice", (2, spec))
    assert obj["spec"] == {
        "driver": "d",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "",
        "allNodes": False,
        "devices": [{
            "name": "gpu-0",
            "attributes": {
                "model": {"string": "H100"}, "index": {"int": 0}, "ecc": {"bool": False}, "numa": {"ints": [0, -1]},
            },
            "capacity": {"memory": {"value": "80Gi"}},
            "allNodes": False,
            "taints": [{"key": "t", "effect": "NoSchedule", "timeAdded": "2023-11-14T22:13:20Z"}],
        }],
    }  # fmt: skip


def test_packed_numbers_are_decoded() -> None:
    packed = message((6, varint(3) + varint(-1)), (7, varint(1) + varint(0)))
    device = message((1, "g"), (2, entry("n", packed)))
    obj = decode("resource.k8s.io/v1", "ResourceSlice", (2, message((6, device))))
    assert obj["spec"]["devices"][0]["attributes"] == {"n": {"ints": [3, -1], "bools": [True, False]}}


def test_bytes_become_base64() -> None:
    assert decode("v1", "Secret", (2, entry("k", b"\x00\xff")), (3, ""), (5, False)) == {
        "data": {"k": "AP8="},
        "immutable": False,
    }


def test_micro_time_extra_and_raw_extension_are_decoded() -> None:
    lease = decode("coordination.k8s.io/v1", "Lease", (2, message((1, ""), (4, message((1, 1), (2, 1_000_000))))))
    assert lease["spec"] == {"holderIdentity": "", "renewTime": "1970-01-01T00:00:01.001000Z"}
    review = message((3, "u"), (5, entry("k", message((1, "a"), (1, "b")))))
    assert decode("authorization.k8s.io/v1", "SubjectAccessReview", (2, review))["spec"] == {
        "user": "u",
        "extra": {"k": ["a", "b"]},
    }
    parameters = message((1, '{"kind":"GpuConfig","x":[null]}'))
    config = message((1, message((1, message((1, "d"), (2, parameters))))))
    assert decode("resource.k8s.io/v1", "DeviceClass", (2, message((2, config))))["spec"] == {
        "config": [{"opaque": {"driver": "d", "parameters": {"kind": "GpuConfig", "x": [None]}}}]
    }


@pytest.mark.parametrize("api_version", ["v1", "apps/v1", "meta.k8s.io/v1"])
def test_delete_options_are_decoded_in_any_version(api_version: str) -> None:
    fields = [(1, 0), (2, message((1, "u"))), (4, "Background")]
    assert decode(api_version, "DeleteOptions", *fields) == {
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u"},
        "propagationPolicy": "Background",
    }


def test_eviction_scale_and_binding_are_decoded() -> None:
    assert decode("policy/v1", "Eviction", (1, message((1, "p")))) == {"metadata": {"name": "p"}}
    assert decode("autoscaling/v1", "Scale", (2, message((1, 0)))) == {"spec": {}}
    assert decode("v1", "Binding", (2, message((1, "Node"), (3, "n")))) == {"target": {"kind": "Node", "name": "n"}}


def test_json_in_protobuf_envelope_is_decoded() -> None:
    data = envelope("v1", "ConfigMap", b'{"data":{"a":"b"}}', (4, "application/json"))
    assert decode_protobuf(data) == {"kind": "ConfigMap", "apiVersion": "v1", "data": {"a": "b"}}


@pytest.mark.parametrize(
    ("data", "message_text"),
    [
        (b"{}", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
        (MAGIC + b"\x0a\xff", "unable to decode the protobuf envelope: unexpected EOF"),
        (envelope("v1", "", b""), "Object 'kind' is missing in the protobuf envelope"),
        (envelope("", "Pod", b""), "Object 'apiVersion' is missing in the protobuf envelope"),
        (envelope("v1", "Pud", b""), 'no kind "Pud" is registered for version "v1" in the served API'),
        (envelope("nope.io/v9", "Pod", b""), 'no kind "Pod" is registered for version "nope.io/v9" in the served API'),
        (envelope("../v1", "Pod", b""), 'no kind "Pod" is registered for version "../v1" in the served API'),
        (envelope("v1", "Pod", b"\x12\x05a"), 'Pod in version "v1" cannot be handled as a Pod: unexpected EOF'),
        (envelope("v1", "Pod", b"\x0b"), "proto: illegal wireType 3"),
        (envelope("v1", "Pod", b"\x00\x01"), "proto: illegal tag 0"),
        (envelope("v1", "Pod", b"\xff" * 11), "proto: integer overflow"),
        (envelope("v1", "Pod", message((1, 5))), "proto: wrong wireType = 0 for a length-delimited field"),
        (envelope("apps/v1", "Deployment", message((2, message((1, "x"))))), "proto: wrong wireType = 2 for a number"),
        (envelope("v1", "Pod", message((1, message((8, message((1, 1 << 60))))))), "outside the years 1 to 9999"),
        (envelope("apps/v1", "ControllerRevision", message((2, message((1, "{"))))), "raw JSON inside the object"),
        (envelope("v1", "Pod", b"[" * 99999 + b"]" * 99999, (4, "application/json")), "nested too deeply"),
        (envelope("v1", "Pod", b"[]", (4, "application/json")), "the JSON in the envelope is not an object"),
        (
            envelope("v1", "Node", message((3, message((1, entry("cpu", message((1, "")))))))),
            "quantities must match the regular expression",
        ),
        (envelope("v1", "Pod", b"", (3, "gzip")), 'content encoding "gzip" is not supported'),
    ],
)  # fmt: skip
def test_malformed_protobuf_is_a_bad_request(data: bytes, message_text: str) -> None:
    with pytest.raises(StatusError) as error:
        decode_protobuf(data)
    assert error.value.code == 400
    assert message_text in error.value.message


@given(st.binary(max_size=200), st.sampled_from([("v1", "Pod"), ("resource.k8s.io/v1", "ResourceSlice")]))
def test_any_bytes_are_decoded_or_a_bad_request(data: bytes, kind: tuple[str, str]) -> None:
    assert by_kind(*kind) is not None
    try:
        decode_protobuf(envelope(*kind, data))
    except StatusError as error:
        assert error.code == 400


@given(st.data())
def test_damaged_body_is_decoded_or_a_bad_request(data: st.DataObject) -> None:
    body = bytearray((CAPTURED / "deployment.bin").read_bytes())
    position = data.draw(st.integers(4, len(body) - 1))
    body[position] = data.draw(st.integers(0, 255))
    try:
        decode_protobuf(bytes(body))
    except StatusError as error:
        assert error.code == 400
