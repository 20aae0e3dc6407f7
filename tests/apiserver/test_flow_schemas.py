"""FlowSchemas say whether their priority level exists."""

from __future__ import annotations

import asyncio
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
