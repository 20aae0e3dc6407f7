"""Options of requests that kube-apiserver 1.36.2 was seen to refuse, and in what order it looks at them."""

from __future__ import annotations

from typing import Any

import pytest
from api_caller import MAPS, PODS, Caller, config_map, pod

MERGE = "application/merge-patch+json"
NO_DRY_RUN = 'dryRun: Unsupported value: [""]: supported values: "All"'
NO_STRICTNESS = 'fieldValidation: Unsupported value: "x": supported values: "", "Ignore", "Strict", "Warn"'


@pytest.mark.parametrize(
    ("method", "url", "body", "kind", "message"),
    [
        ("POST", f"{MAPS}?dryRun=", {"metadata": {"name": 1}}, "CreateOptions", NO_DRY_RUN),
        ("PUT", f"{MAPS}/a?dryRun=&fieldValidation=x", {}, "UpdateOptions", f"[{NO_DRY_RUN}, {NO_STRICTNESS}]"),
        ("PATCH", f"{MAPS}/a?dryRun=", {"data": 1}, "PatchOptions", NO_DRY_RUN),
        (
            "PATCH",
            f"{MAPS}/a?force=&fieldValidation=x",
            {},
            "PatchOptions",
            f"[force: Forbidden: may not be specified for non-apply patch, {NO_STRICTNESS}]",
        ),
        ("DELETE", f"{MAPS}/a?dryRun=", None, "DeleteOptions", NO_DRY_RUN),
    ],
)
async def test_options_are_refused_together_before_the_body_is_read(
    api: Caller, method: str, url: str, body: Any, kind: str, message: str
) -> None:
    await api.create(MAPS, config_map("a"))
    answer = await api(method, url, body, type=MERGE if method == "PATCH" else "application/json")
    assert (answer.status, answer.json["message"]) == (422, f'{kind}.meta.k8s.io "" is invalid: {message}')


@pytest.mark.parametrize("url", [f"{MAPS}/a?propagationPolicy=", f"{MAPS}/a"])
async def test_empty_propagation_policy_is_none_that_there_is(api: Caller, url: str) -> None:
    await api.create(MAPS, config_map("a"))
    answer = await api("DELETE", url, None if "?" in url else {"propagationPolicy": ""})
    (cause,) = answer.json["details"]["causes"]
    assert (answer.status, cause["field"], cause["reason"]) == (422, "propagationPolicy", "FieldValueNotSupported")


async def test_query_does_not_count_beside_the_options_of_a_deletion(api: Caller) -> None:
    await api.create(MAPS, config_map("a"))
    assert (await api("DELETE", f"{MAPS}/a?dryRun=x", {"dryRun": ["All"]})).status == 200
    assert (await api("GET", f"{MAPS}/a")).status == 200


async def test_type_of_a_patch_is_looked_at_before_its_options(api: Caller) -> None:
    await api.create(PODS, pod("p"))
    answer = await api("PATCH", f"{PODS}/p?dryRun=x", {}, type="application/json")
    assert answer.status == 415


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("limit=x&labelSelector=a in (&resourceVersionMatch=x", 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("limit=", 400, 'strconv.ParseInt: parsing "": invalid syntax'),
        ("labelSelector=a in (&resourceVersionMatch=x", 400, "unable to parse requirement: "),
        ("fieldSelector=zz=1&resourceVersionMatch=x", 422, 'ListOptions.meta.k8s.io "" is invalid: '),
        ("fieldSelector=zz=1", 400, '"zz" is not a known field selector: '),
    ],
)
@pytest.mark.parametrize("watch", ["", "watch=1&"])
async def test_numbers_then_selectors_then_combinations_then_fields_are_looked_at(
    api: Caller, watch: str, query: str, code: int, message: str
) -> None:
    answer = await api("GET", f"{MAPS}?{watch}{query.replace(' ', '%20')}")
    assert (answer.status, answer.json["message"][: len(message)]) == (code, message)


async def test_selectors_are_looked_at_before_the_options_of_a_deletion(api: Caller) -> None:
    answer = await api("DELETE", f"{MAPS}?limit=x", {"propagationPolicy": "x"})
    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")


async def test_text_of_a_secret_is_written_as_its_data(api: Caller) -> None:
    path = "/api/v1/namespaces/default/secrets"
    made = await api.create(path, {"metadata": {"name": "a"}, "data": {"k": "eA=="}, "stringData": {"s": "x"}})
    (entry,) = made["metadata"]["managedFields"]
    assert entry["fieldsV1"]["f:data"] == {".": {}, "f:k": {}, "f:s": {}}
    assert "f:stringData" not in entry["fieldsV1"]


@pytest.mark.parametrize(("method", "code"), [("POST", 415), ("PUT", 422)])
async def test_type_of_a_new_object_is_looked_at_before_the_options(api: Caller, method: str, code: int) -> None:
    path = MAPS if method == "POST" else f"{MAPS}/a"
    assert (await api(method, f"{path}?dryRun=x", config_map("a"), type="text/plain")).status == code
