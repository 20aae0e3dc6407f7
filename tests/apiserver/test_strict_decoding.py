"""What is told of fields that are unknown or repeated, and in which order: read off kube-apiserver 1.36.2."""

from __future__ import annotations

import json
from typing import Any

import pytest
from api_caller import MAPS, PODS, Caller, config_map, pod
from custom_objects import TRAININGS, define

STRICT = "?fieldValidation=Strict&dryRun=All"
MERGE = "application/merge-patch+json"
TEXT = (
    '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","name":"p","labels":{"a":"1","a":"2"}},'
    '"spec":{"zz":{"x":1,"x":2},"zz":2,"containers":[{"name":"c","image":"i","image":"i","unk":1}]},"aa":1}'
)
YAML = """
apiVersion: v1
kind: Pod
metadata:
  name: p
  name: p
  labels: {a: "1", a: "2"}
zz: 1
spec:
  qq: 1
  containers:
  - {name: c, image: i, image: i}
aa: 1
"""


def told(answer: Any) -> str:
    """What follows the words that all refusals of strict decoding begin with."""
    return str(answer.json["message"]).partition("strict decoding error: ")[2]


async def test_problems_in_json_are_told_in_its_order_without_those_inside_of_unknown_fields(api: Caller) -> None:
    answer = await api("POST", PODS + STRICT, TEXT.encode())
    assert (answer.status, told(answer)) == (
        400,
        'duplicate field "metadata.name", duplicate field "metadata.labels.a", unknown field "spec.zz", '
        'duplicate field "spec.containers[0].image", unknown field "spec.containers[0].unk", unknown field "aa"',
    )


async def test_repeated_keys_of_yaml_are_one_problem_before_unknown_fields_by_name(api: Caller) -> None:
    answer = await api("POST", PODS + STRICT, YAML.encode(), type="application/yaml")
    repeated = [(6, "name"), (7, "a"), (12, "image")]
    lines = "".join(f'\n  line {line}: key "{key}" already set in map' for line, key in repeated)
    unknown = "".join(f', unknown field "{name}"' for name in ("aa", "spec.qq", "zz"))
    assert (answer.status, told(answer)) == (400, f"yaml: unmarshal errors:{lines}{unknown}")


async def test_yaml_with_repeated_keys_is_taken_with_a_warning_for_each_by_default(api: Caller) -> None:
    known = "\n".join(line for line in YAML.splitlines() if line.strip() not in ("zz: 1", "qq: 1", "aa: 1"))
    answer = await api("POST", PODS, known.encode(), type="application/yaml")
    assert (answer.status, answer.json["metadata"]["labels"]) == (201, {"a": "2"})
    last = '299 - "line 10: key \\"image\\" already set in map"'
    assert answer.headers["warning"] == last
    applied = await api("PATCH", f"{PODS}/p?fieldManager=m", known.encode(), type="application/apply-patch+yaml")
    assert (applied.status, applied.headers["warning"]) == (200, last)


async def test_of_a_custom_object_all_repeated_names_are_told_before_the_unknown_ones(api: Caller) -> None:
    await define(api)
    metadata, spec = '{"name":"u","name":"u","yy":1,"yy":2}', '{"model":"llm","xx":1,"model":"abc"}'
    head = '"kind":"Training","apiVersion":"ml.example.com/v1"'
    body = f'{{"zz":{{"q":1,"q":2}},{head},"metadata":{metadata},"spec":{spec},"spec2":1}}'.encode()
    answer = await api("POST", TRAININGS + STRICT, body)
    repeated = [f'duplicate field "{name}"' for name in ("zz.q", "metadata.name", "metadata.yy", "spec.model")]
    unknown = [f'unknown field "{name}"' for name in ("metadata.yy", "spec.xx", "spec2", "zz")]
    assert (answer.status, told(answer)) == (400, ", ".join([*repeated, *unknown]))


async def test_names_that_occur_twice_in_a_configuration_are_told_as_of_yaml(api: Caller) -> None:
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"k":"1","k":"2"}}'
    path, line = "/api/v1/namespaces/default/configmaps/m?fieldManager=m", 'line 1: key "k" already set in map'
    warned = await api("PATCH", path, body, type="application/apply-patch+yaml")
    assert (warned.status, warned.headers["warning"].replace("\\", "")) == (201, f'299 - "{line}"')
    refused = await api("PATCH", f"{path}&fieldValidation=Strict", body, type="application/apply-patch+yaml")
    why = f"error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {line}"
    assert (refused.status, refused.json["message"]) == (400, why)


@pytest.mark.parametrize(
    ("media", "patch", "problems"),
    [
        (
            MERGE,
            '{"zz":1,"aa":2,"metadata":{"zz":1,"aa":1},"data":{"a":"1","a":"2"}}',
            'duplicate field "data.a", unknown field "aa", unknown field "metadata.aa", unknown field "metadata.zz", '
            'unknown field "zz"',
        ),
        (
            "application/json-patch+json",
            '[{"op":"add","path":"/zz","value":1,"value":2},{"op":"add","path":"/aa","value":1,"foo":1}]',
            'json patch duplicate field "[0].value", json patch unknown field "[1].foo", unknown field "aa", '
            'unknown field "zz"',
        ),
    ],
)
async def test_problems_of_a_patch_come_before_those_of_its_result_by_name(
    api: Caller, media: str, patch: str, problems: str
) -> None:
    await api.create(MAPS, config_map("x"))
    answer = await api("PATCH", f"{MAPS}/x{STRICT}", patch.encode(), type=media)
    assert (answer.status, told(answer)) == (422, problems)


async def test_fields_of_a_list_are_told_by_index_not_by_its_text(api: Caller) -> None:
    await api.create(PODS, pod("p"))
    containers = [{"name": f"c{index}", "image": "i", "zz": 1} for index in range(11)]
    answer = await api("PATCH", f"{PODS}/p{STRICT}", {"spec": {"containers": containers}}, type=MERGE)
    places = [part.split(chr(34))[1] for part in told(answer).split(", ")]
    assert places == [f"spec.containers[{index}].zz" for index in range(11)]


async def test_what_is_not_declared_is_told_before_what_is_repeated_in_an_applied_object(api: Caller) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "zz": 1})
    text = text[:-1] + ', "data": {"b": "1", "b": "2"}}'
    path = f"{MAPS}/x{STRICT}&fieldManager=m"
    answer = await api("PATCH", path, text.encode(), type="application/apply-patch+yaml")
    assert answer.status == 500 and ".zz: field not declared in schema" in answer.json["message"]
