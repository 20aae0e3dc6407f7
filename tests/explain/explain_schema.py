"""The schema of docs/reference/explain.md, as a small checker: every field there is, and of which type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from haru.engine import REASON_TYPES
from haru.explain.explanation import Verdict
from haru.explain.stories.values import DeviceStatus, NodeState

Check = Callable[[Any, str], None]
STAGES = (
    "devices", "offered", "class", "selector", "node", "capacity", "taints", "free", "counters", "nodes",
    "constraints", "scattered",
)  # fmt: skip
REMEDIES = (
    "RemoveGates", "RaiseQuota", "CreatePodGroup", "TurnOnGates", "AddMembers", "CreateClaim", "CreateClaimTemplate",
    "CreateDeviceClass", "Uncordon", "Untaint", "Tolerate", "RemoveDeviceTaint", "TolerateDevices",
    "DeleteDeviceTaintRule", "GuardSelectors", "LabelNodes", "Evict", "LowerCount", "LowerMinCount", "AddNodes",
    "Combination", "RelaxSelector", "DropConstraint", "AcceptAlternative", "MoveWork", "CorrectName",
    "RelaxNodeSelector", "LowerRequest", "UseScheduler", "Resume", "ScaleDown", "Suspend", "LowerParallelism",
    "CreateVolumeClaim", "CreateVolume", "CreateServiceAccount", "CreatePriorityClass", "AddNodeSelector",
    "ProvideResource", "RaiseRequest",
)  # fmt: skip
REMEDIES_AFTER_PENDING = (
    "RaiseMemoryLimit", "CorrectCommand", "RestartPod", "ProvideImage", "TaintDevice", "CordonNode", "InspectDriver",
    "ScaleUp", "RelaxDisruptionBudget",
)  # fmt: skip


def is_a(*kinds: type) -> Check:
    def check(value: Any, path: str) -> None:
        assert isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)), f"{path}: {value!r}"

    return check


def one_of(*values: Any) -> Check:
    def check(value: Any, path: str) -> None:
        assert value in values, f"{path}: {value!r} is not one of {values}"

    return check


def many(inner: Check) -> Check:
    def check(value: Any, path: str) -> None:
        assert isinstance(value, list), f"{path}: {value!r} is no list"
        for number, item in enumerate(value):
            inner(item, f"{path}[{number}]")

    return check


def table(inner: Check) -> Check:
    def check(value: Any, path: str) -> None:
        assert isinstance(value, dict), f"{path}: {value!r} is no object"
        for name, item in value.items():
            assert isinstance(name, str), f"{path}: {name!r}"
            inner(item, f"{path}.{name}")

    return check


def record(required: dict[str, Check], optional: dict[str, Check] | None = None, open_: bool = False) -> Check:
    def check(value: Any, path: str) -> None:
        assert isinstance(value, dict), f"{path}: {value!r} is no object"
        assert required.keys() <= value.keys(), f"{path}: lacks {required.keys() - value.keys()}"
        known = {**required, **(optional or {})}
        assert open_ or value.keys() <= known.keys(), f"{path}: unknown {value.keys() - known.keys()}"
        for name, item in value.items():
            known.get(name, lambda v, p: None)(item, f"{path}.{name}")

    return check


TEXT, NUMBER, FLAG = is_a(str), is_a(int), is_a(bool)
NUMBER_OR_NONE = is_a(int, type(None))
TEXTS, COUNTS = many(TEXT), table(NUMBER)
REASON = record({"type": one_of(*REASON_TYPES), "message": TEXT}, open_=True)
HOLDER = record(
    {"workload": TEXT, "namespace": TEXT, "devices": NUMBER, "pods": TEXTS, "claims": TEXTS},
    {"priority": NUMBER, "since": TEXT, "idle": NUMBER},
)
STAGE = record(
    {"stage": one_of(*STAGES), "left": NUMBER, "dropped": NUMBER},
    {
        "expression": TEXT,
        "values": many(record({"values": table(lambda v, p: None), "devices": NUMBER})),
        "errors": NUMBER,
        "error": TEXT,
        "taints": COUNTS,
        "where": TEXTS,
        "holders": many(HOLDER),
        "moreHolders": record({"workloads": NUMBER, "devices": NUMBER}),
        "counters": COUNTS,
        "nodes": COUNTS,
    },
)
REQUEST = record(
    {
        "request": TEXT,
        "claim": TEXT,
        "claims": NUMBER,
        "count": NUMBER_OR_NONE,
        "deviceClass": TEXT,
        "selectors": TEXTS,
        "capacity": table(TEXT),
        "adminAccess": FLAG,
        "alternative": FLAG,
        "needed": NUMBER_OR_NONE,
        "free": NUMBER,
        "short": NUMBER_OR_NONE,
        "error": TEXT,
        "funnel": many(STAGE),
    },
    {"extendedResource": TEXT},
)
NODES = record(
    {"count": NUMBER, "examples": TEXTS, "text": TEXT, "reasons": many(REASON)},
    {
        "devices": record(dict.fromkeys(("selected", "tainted", "taken", "partlyTaken", "free"), NUMBER)),
        "room": NUMBER,
        "left": COUNTS,
    },
)
TARGET = record({"apiVersion": TEXT, "kind": TEXT, "metadata": record({"name": TEXT}, open_=True)}, open_=True)


def change(value: Any, path: str) -> None:
    one_of("create", "delete", "patch")(value.get("action"), f"{path}.action")
    if value["action"] == "patch":
        record({"action": TEXT, "target": TARGET, "patch": table(lambda v, p: None)})(value, path)
    else:
        record({"action": TEXT, "object": TARGET})(value, path)


REMEDY = record(
    {
        "kind": one_of(*REMEDIES, *REMEDIES_AFTER_PENDING),
        "summary": TEXT,
        "changes": many(change),
        "cost": NUMBER,
        "costs": TEXT,
        "confirmed": FLAG,
    },
    {"command": TEXT},
)
DEVICE = record(
    {"request": TEXT, "driver": TEXT, "pool": TEXT, "device": TEXT, "product": TEXT, "adminAccess": FLAG},
)
SCORE_PART = record(
    {"plugin": TEXT, "score": NUMBER, "weight": NUMBER, "points": NUMBER, "most": NUMBER, "reason": TEXT}
)
HELD = record({"claim": TEXT, "node": TEXT, "devices": many(DEVICE), "users": TEXTS}, {"since": TEXT})
EXPLANATION = record(
    {
        "apiVersion": one_of("haru.dev/v1alpha1"),
        "kind": one_of("Explanation"),
        "subject": record({"kind": TEXT, "namespace": TEXT, "name": TEXT}),
        "verdict": one_of(*get_args(Verdict)),
        "summary": TEXT,
        "reasons": many(REASON),
        "pods": many(record({"count": NUMBER, "resources": COUNTS})),
        "requests": many(REQUEST),
        "nodes": many(NODES),
        "remedies": many(REMEDY),
        "holds": many(HELD),
    },
    {
        "ageSeconds": NUMBER,
        "node": TEXT,
        "since": TEXT,
        "startsAfter": record({"pods": TEXTS}, {"until": TEXT}),
        "notRead": TEXTS,
        "scores": many(record({"node": TEXT, "score": NUMBER, "here": FLAG, "parts": many(SCORE_PART)})),
        "scoredNodes": NUMBER,
    },
)

COUNTER = record({"counter": TEXT, "needs": TEXT, "left": TEXT, "total": TEXT})
STATE = record(
    {
        "driver": TEXT,
        "pool": TEXT,
        "device": TEXT,
        "product": TEXT,
        "status": one_of(*get_args(DeviceStatus)),
        "taints": TEXTS,
        "holders": many(HOLDER),
    },
    {"counters": many(COUNTER)},
)
WANTING = record(
    {
        "kind": one_of("Pod", "PodGroup"),
        "namespace": TEXT,
        "name": TEXT,
        "pods": NUMBER,
        "priority": NUMBER,
        "takes": FLAG,
        "requests": TEXTS,
        "reasons": many(REASON),
    }
)
STORY: dict[str, Check] = {
    "apiVersion": one_of("haru.dev/v1alpha1"),
    "summary": TEXT,
    "reasons": many(REASON),
    "waiting": many(WANTING),
    "moreWaiting": NUMBER,
}
NODE_STORY = record(
    {
        **STORY,
        "kind": one_of("NodeExplanation"),
        "subject": record({"kind": one_of("Node"), "name": TEXT}),
        "state": one_of(*get_args(NodeState)),
        "resources": many(record({"resource": TEXT, "allocatable": NUMBER, "used": NUMBER, "free": NUMBER})),
        "devices": many(STATE),
        "cards": table(is_a(int, float)),
        "workloads": many(HOLDER),
    }
)
DEVICE_STORY = record(
    {
        **STORY,
        "kind": one_of("DeviceExplanation"),
        "subject": record({"kind": one_of("Device"), "driver": TEXT, "pool": TEXT, "device": TEXT}),
        "device": STATE,
        "nodes": TEXTS,
        "attributes": table(lambda v, p: None),
        "capacity": table(TEXT),
        "taintRules": table(TEXT),
        "beside": many(STATE),
    }
)


def check_story(answer: Any) -> None:
    """The shape of what is told of a node or a device; whatever is told of work has a reason."""
    (NODE_STORY if answer["kind"] == "NodeExplanation" else DEVICE_STORY)(answer, "")
    assert answer["summary"] and answer["reasons"]
    assert all(unit["reasons"] for unit in answer["waiting"])


def check_explanation(answer: Any) -> None:
    """The shape, and that the numbers of each funnel add up."""
    EXPLANATION(answer, "")
    assert answer["summary"], "an explanation without a first line"
    assert [r["cost"] for r in answer["remedies"]] == sorted(r["cost"] for r in answer["remedies"])
    for request in answer["requests"]:
        left = None
        for stage in request["funnel"]:
            assert stage["dropped"] >= 0 and stage["left"] >= 0, stage
            assert left is None or stage["left"] == left - stage["dropped"], request["funnel"]
            left = stage["left"]
            if stage["stage"] in ("class", "selector"):
                assert sum(v["devices"] for v in stage["values"]) + stage["errors"] == stage["dropped"], stage
            if stage["stage"] == "nodes":
                assert sum(stage["nodes"].values()) == stage["dropped"], stage
        assert request["free"] == left
        if request["short"] is not None:
            assert request["short"] == max(0, request["needed"] - request["free"])
