"""FlowSchemas say whether their priority level exists."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from api_caller import Caller

from haru.apiserver import background
from haru.apiserver.bootstrap.flow_control_ensurer import ensure_flow_control, revised
from haru.kube.flow_control_defaults import flow_control_objects, mandatory_spec

FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"
SCHEMAS, LEVELS = f"{FLOW}/flowschemas", f"{FLOW}/prioritylevelconfigurations"
AUTOUPDATE = "apf.kubernetes.io/autoupdate-spec"
LEVEL = {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}


async def condition(api: Caller, status: str) -> Any:
    async with asyncio.timeout(30):
        while True:
            found = await api.get(f"{SCHEMAS}/a")
            for each in (found.get("status") or {}).get("conditions") or ():
                if each["status"] == status:
                    return each, found
            await asyncio.sleep(0.01)


async def test_flow_schema_tells_whether_its_priority_level_exists(api: Caller) -> None:
    spec = {"priorityLevelConfiguration": {"name": "level"}, "matchingPrecedence": 900}
    created = await api.create(SCHEMAS, {"metadata": {"name": "a"}, "spec": spec})
    assert created["status"] == {}
    found, schema = await condition(api, "True")
    assert (found["type"], found["reason"]) == ("Dangling", "NotFound")
    assert found["message"].endswith('named "level" but there is no such object')
    (entry,) = [each for each in schema["metadata"]["managedFields"] if each.get("subresource") == "status"]
    assert (entry["manager"], entry["operation"]) == ("api-priority-and-fairness-config-consumer-v1", "Apply")
    assert (await api("PUT", f"{SCHEMAS}/a", created)).status == 409
    await api.create(LEVELS, {"metadata": {"name": "level"}, "spec": LEVEL})
    found, _ = await condition(api, "False")
    assert (found["reason"], found["message"].rpartition(" and ")[2]) == ("Found", "it exists")


async def test_default_flow_schemas_and_levels_are_those_of_kubernetes(api: Caller) -> None:
    levels = {each["metadata"]["name"]: each["spec"] for each in (await api.get(LEVELS))["items"]}
    assert levels.pop("exempt") == {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}
    assert {level["type"] for level in levels.values()} == {"Limited"}
    assert {name: tuple(queues_of(level["limited"])) for name, level in levels.items()} == {
        "catch-all": (5, 0),
        "global-default": (20, 50, 128, 6, 50),
        "leader-election": (10, 0, 16, 4, 50),
        "node-high": (40, 25, 64, 6, 50),
        "system": (30, 33, 64, 6, 50),
        "workload-high": (40, 50, 128, 6, 50),
        "workload-low": (100, 90, 128, 6, 50),
    }
    schemas = (await api.get(SCHEMAS))["items"]
    assert {(each["metadata"]["name"], *described(each["spec"])) for each in schemas} == {
        ("exempt", "exempt", 1, ""),
        ("probes", "exempt", 2, ""),
        ("system-leader-election", "leader-election", 100, "ByUser"),
        ("system-node-high", "node-high", 400, "ByUser"),
        ("system-nodes", "system", 500, "ByUser"),
        ("kube-controller-manager", "workload-high", 800, "ByNamespace"),
        ("kube-scheduler", "workload-high", 800, "ByNamespace"),
        ("kube-system-service-accounts", "workload-high", 900, "ByNamespace"),
        ("service-accounts", "workload-low", 9000, "ByUser"),
        ("global-default", "global-default", 9900, "ByUser"),
        ("catch-all", "catch-all", 10000, "ByUser"),
    }
    found = {condition["status"] for each in schemas for condition in each["status"]["conditions"]}
    assert found == {"False"}, "of Dangling"
    table = await api("GET", SCHEMAS, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    precedences = [row["cells"][2] for row in table.json["rows"]]
    assert precedences == sorted(precedences), "in the order in which they are tried"
    managers = {entry["manager"] for each in schemas for entry in each["metadata"]["managedFields"]}
    assert managers == {f"api-priority-and-fairness-config-{who}-v1" for who in ("consumer", "producer")}


EDITS: dict[str, tuple[str, dict[str, str], bool, str]] = {
    "suggested, of a user": ("global-default", {}, False, "false"),
    "suggested, of a user who gives it back": ("global-default", {AUTOUPDATE: "true"}, True, "true"),
    "suggested, with an annotation that says nothing": (
        "global-default",
        {AUTOUPDATE: "perhaps"},
        False,
        "false",
    ),
}


@pytest.mark.parametrize("case", EDITS)
async def test_changed_default_flow_schema_gets_its_spec_back_if_it_is_the_servers(api: Caller, case: str) -> None:
    name, given, restored, annotation = EDITS[case]
    path = f"{SCHEMAS}/{name}"
    schema = await api.get(path)
    own, schema["spec"]["rules"] = schema["spec"]["rules"], []
    schema["metadata"]["annotations"] = given
    assert (await api("PUT", path, schema)).status == 200
    await ensure_flow_control(api.app.components.loopback)
    found = await api.get(path)
    assert found["spec"].get("rules", []) == (own if restored else [])
    assert found["metadata"]["annotations"] == {AUTOUPDATE: annotation}
    await ensure_flow_control(api.app.components.loopback)
    assert (await api.get(path))["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


MORE: Any = {"matchingPrecedence": 2, "limited": {"nominalConcurrencyShares": 6, "limitResponse": {"type": "Reject"}}}


@pytest.mark.parametrize("path", [f"{kinds}/{name}" for kinds in (SCHEMAS, LEVELS) for name in ("exempt", "catch-all")])
async def test_mandatory_object_cannot_be_changed_and_gets_its_annotation_back(api: Caller, path: str) -> None:
    obj = await api.get(path)
    spec, obj["spec"] = obj["spec"], {**obj["spec"], "rules": [], "type": "Limited", **MORE}
    refused = await api("PUT", path, obj)
    assert refused.status == 422 and "must equal the fixed value" in refused.json["message"]
    obj["spec"], obj["metadata"]["annotations"] = spec, {AUTOUPDATE: "false"}
    assert (await api("PUT", path, obj)).status == 200
    await ensure_flow_control(api.app.components.loopback)
    assert (await api.get(path))["metadata"]["annotations"] == {AUTOUPDATE: "true"}


def test_nothing_is_kept_of_names_that_are_validated() -> None:
    name = "-".join(("a", "name", "of", "a", "user"))
    before = sys.getrefcount(name)
    assert mandatory_spec("FlowSchema", name) is None
    assert sys.getrefcount(name) == before


async def test_mandatory_spec_of_an_older_version_is_replaced() -> None:
    (wanted,) = (
        obj for obj in flow_control_objects() if (obj["kind"], obj["metadata"]["name"]) == ("FlowSchema", "catch-all")
    )
    stored = {**wanted, "spec": {**wanted["spec"], "rules": []}, "metadata": {"name": "catch-all", "generation": 7}}
    assert revised(stored, wanted)["spec"] == wanted["spec"]


async def test_exempt_level_keeps_its_shares(api: Caller) -> None:
    path, shares = f"{LEVELS}/exempt", {"nominalConcurrencyShares": 7, "lendablePercent": 30}
    level = await api.get(path)
    level["spec"]["exempt"] = shares
    assert (await api("PUT", path, level)).status == 200
    await ensure_flow_control(api.app.components.loopback)
    assert (await api.get(path))["spec"]["exempt"] == shares


async def test_default_of_an_older_version_goes_and_flow_schemas_of_users_stay(api: Caller) -> None:
    spec = {"priorityLevelConfiguration": {"name": "catch-all"}, "matchingPrecedence": 900}
    for name, told in (("old", {AUTOUPDATE: "1"}), ("kept", {AUTOUPDATE: "false"}), ("own", {"a": "b"})):
        metadata = {"name": name, "annotations": told}
        await api.create(SCHEMAS, {"metadata": metadata, "spec": spec})
        await api.create(LEVELS, {"metadata": metadata, "spec": LEVEL})
    await ensure_flow_control(api.app.components.loopback)
    for path in (SCHEMAS, LEVELS):
        assert (await api("GET", f"{path}/old")).status == 404
        assert {(await api("GET", f"{path}/{name}")).status for name in ("kept", "own")} == {200}


async def test_deleted_defaults_return_within_a_minute_of_the_servers_own_work(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [f"{SCHEMAS}/{name}" for name in ("global-default", "catch-all")] + [f"{LEVELS}/workload-low"]
    before = [await api.get(path) for path in paths]
    for path in paths:
        assert (await api("DELETE", path)).status == 200
    assert background.PAUSE_SECONDS * background.FLOW_CONTROL_ROUNDS == 60
    monkeypatch.setattr(background, "PAUSE_SECONDS", 0.001)
    work = asyncio.create_task(api.app.components.background.run())
    async with asyncio.timeout(30):
        while {(await api("GET", path)).status for path in paths} != {200}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    work.cancel()
    for path, old in zip(paths, before, strict=True):
        new = await api.get(path)
        assert (new["spec"], new["metadata"]["annotations"]) == (old["spec"], old["metadata"]["annotations"])
        assert new["metadata"]["uid"] != old["metadata"]["uid"]


def queues_of(limited: Any) -> Iterator[int]:
    yield from (limited["nominalConcurrencyShares"], limited["lendablePercent"])
    queuing = limited["limitResponse"].get("queuing") or {}
    yield from (queuing[name] for name in ("queues", "handSize", "queueLengthLimit") if queuing)


def described(spec: Any) -> tuple[str, int, str]:
    flows = (spec.get("distinguisherMethod") or {}).get("type", "")
    return spec["priorityLevelConfiguration"]["name"], spec["matchingPrecedence"], flows
