"""FlowSchemas say whether their priority level exists."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from api_caller import Caller

FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"
SCHEMAS, LEVELS = f"{FLOW}/flowschemas", f"{FLOW}/prioritylevelconfigurations"
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


def queues_of(limited: Any) -> Iterator[int]:
    yield from (limited["nominalConcurrencyShares"], limited["lendablePercent"])
    queuing = limited["limitResponse"].get("queuing") or {}
    yield from (queuing[name] for name in ("queues", "handSize", "queueLengthLimit") if queuing)


def described(spec: Any) -> tuple[str, int, str]:
    flows = (spec.get("distinguisherMethod") or {}).get("type", "")
    return spec["priorityLevelConfiguration"]["name"], spec["matchingPrecedence"], flows
