"""The DeviceTaintRule that taints one device, and the pods that a taint affects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haru.engine.dra import DeviceId, Taint
from haru.explain.tainting import (
    ClaimUse,
    TaintTextError,
    affected,
    own_rules,
    parse_key,
    parse_taint,
    parts_beside,
    remaining_taints,
    rule_manifest,
    rule_name,
)
from haru.kube.defaulting import apply_defaults
from haru.kube.gates import FeatureGates
from haru.kube.kinds import known_kind
from haru.kube.names import format_time, is_dns1123_subdomain
from haru.kube.validation import validate_create

Obj = dict[str, Any]
GPU = DeviceId("gpu.example.com", "n1", "gpu-3")
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
V1BETA2 = "resource.k8s.io/v1beta2"

# -- texts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "taint"),
    [
        ("k:NoExecute", Taint("k", "", "NoExecute")),
        ("example.com/k=v:NoSchedule", Taint("example.com/k", "v", "NoSchedule")),
        ("k=:None", Taint("k", "", "None")),
    ],
)
def test_taint_text_is_parsed(text: str, taint: Taint) -> None:
    assert parse_taint(text) == taint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("k", "write KEY.=VALUE.:EFFECT"),
        ("k=v", "write KEY"),
        ("k:NoSchedul", 'unknown effect "NoSchedul"; did you mean NoSchedule?'),
        ("k:Soon", 'unknown effect "Soon"; it must be one of NoExecute, NoSchedule, None'),
        ("k:", 'unknown effect ""'),
        ("k:PreferNoSchedule", "unknown effect"),
        (":NoExecute", "key: "),
        ("a b:NoExecute", "key: "),
        ("k=a b:NoExecute", "value: "),
    ],
)
def test_invalid_taint_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(TaintTextError, match=message):
        parse_taint(text)


def test_taint_key_with_optional_effect_is_parsed() -> None:
    assert parse_key("example.com/k") == ("example.com/k", "", None)
    assert parse_key("k:NoExecute") == ("k", "NoExecute", None)
    assert parse_key("k=v:NoExecute") == ("k", "NoExecute", "v")
    assert parse_key("k=:NoExecute") == ("k", "NoExecute", "")
    for text, message in (("k:", "unknown effect"), ("k:noexecute", "did you mean NoExecute"), ("=v", "KEY:EFFECT")):
        with pytest.raises(TaintTextError, match=message):
            parse_key(text)


# -- the rule ----------------------------------------------------------------------------------------------------------


def test_generated_taint_rule_is_valid_and_named_after_device() -> None:
    kind = known_kind(V1BETA2, "DeviceTaintRule")
    gates = FeatureGates.accelerator_defaults()
    rule = rule_manifest(GPU, Taint("example.com/Fan", "broken", "NoExecute"), V1BETA2)
    assert validate_create(apply_defaults(rule, kind, gates), kind, gates, lambda *_: []) == []
    assert rule["metadata"]["name"].startswith("n1-gpu-3-example-com-fan-")
    assert rule["spec"]["taint"] == {"key": "example.com/Fan", "value": "broken", "effect": "NoExecute"}
    assert "value" not in rule_manifest(GPU, Taint("k", "", "None"), V1BETA2)["spec"]["taint"]


PARTS = st.text("ab-.", max_size=250).map(lambda text: f"a{text}b")
DEVICES = st.builds(DeviceId, PARTS, PARTS, PARTS)
KEYS = st.text("aB_./", max_size=60).map(lambda text: f"a{text}B")


@settings(max_examples=40)
@given(DEVICES, KEYS, DEVICES, KEYS)
def test_rule_name_is_valid_and_unique_per_device_and_key(
    device: DeviceId, key: str, other: DeviceId, other_key: str
) -> None:
    name = rule_name(device, key)
    assert is_dns1123_subdomain(name) == []
    assert name == rule_name(device, key)
    assert (name == rule_name(other, other_key)) is ((device, key) == (other, other_key))


def test_similar_device_names_and_keys_give_different_rule_names() -> None:
    alike = [DeviceId("d", "a", "b-c"), DeviceId("d", "a-b", "c"), DeviceId("d", "a/b", "c"), DeviceId("e", "a", "b-c")]
    assert len({rule_name(device, key) for device in alike for key in ("k", "K", "k.")}) == 12


def labelled(rule: Obj, **labels: str) -> Obj:
    return {**rule, "metadata": {**rule["metadata"], "labels": labels}}


def test_own_rules_are_only_those_of_exactly_this_device_and_key() -> None:
    ours = rule_manifest(GPU, Taint("k", "v", "NoExecute"), V1BETA2)
    wider = rule_manifest(GPU, Taint("k", "v", "NoExecute"), V1BETA2)
    del wider["spec"]["deviceSelector"]["device"]
    others = [
        rule_manifest(GPU, Taint("other", "v", "NoExecute"), V1BETA2),
        rule_manifest(DeviceId("gpu.example.com", "n1", "gpu-4"), Taint("k", "v", "NoExecute"), V1BETA2),
        labelled(ours),
        labelled(ours, **{"app.kubernetes.io/managed-by": "helm"}),
        wider,
    ]
    assert own_rules([*others, ours], GPU, "k") == [ours]
    assert own_rules([ours], GPU, "k", "NoExecute") == [ours]
    assert own_rules([ours], GPU, "k", "NoSchedule") == []
    assert own_rules([ours], GPU, "k", "NoExecute", ours["spec"]["taint"].get("value", "")) == [ours]
    assert own_rules([ours], GPU, "k", "NoExecute", "another") == []


def test_remaining_taints_come_from_slices_and_other_rules() -> None:
    of_driver = {"key": "xid", "value": "79", "effect": "NoExecute"}
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    slices = [
        {"metadata": {"name": driver}, "spec": {"driver": driver, "pool": pool, "devices": [{"name": "gpu-3", **more}]}}
        for driver, more in (("gpu.example.com", {"taints": [of_driver]}), ("nic.example.com", {"taints": [{}]}))
    ]
    foreign = {"key": "f", "effect": "NoSchedule"}
    rules = [
        {"metadata": {"name": "everything"}, "spec": {"deviceSelector": {}, "taint": foreign}},
        {"metadata": {"name": "nothing"}, "spec": {"taint": foreign}},
        {"metadata": {"name": "another"}, "spec": {"deviceSelector": {"device": "gpu-4"}, "taint": foreign}},
    ]
    assert remaining_taints(GPU, slices, rules) == [(of_driver, ""), (foreign, "everything")]
    assert remaining_taints(DeviceId(*GPU[:2], "gone"), slices, rules) == [(foreign, "everything")]


def test_devices_sharing_counters_are_listed() -> None:
    def device(name: str, *sets: str) -> Obj:
        return {"name": name, "consumesCounters": [{"counterSet": s, "counters": {"m": {"value": "1"}}} for s in sets]}

    devices = [device("gpu-3", "card-3"), device("gpu-3-a", "card-3"), device("gpu-4", "card-4"), device("nic")]
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    slices = [{"metadata": {"name": "s"}, "spec": {"driver": "gpu.example.com", "pool": pool, "devices": devices}}]
    assert parts_beside(GPU, slices) == ("gpu-3-a",)
    assert parts_beside(DeviceId(*GPU[:2], "gpu-3-a"), slices) == ("gpu-3",)
    assert parts_beside(DeviceId(*GPU[:2], "nic"), slices) == ()


# -- whom it affects ---------------------------------------------------------------------------------------------------


def pod(name: str, node: str = "n1", phase: str = "Running", group: str = "", **metadata: Any) -> Obj:
    spec: Obj = {"nodeName": node} if node else {}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", **metadata},
        "spec": spec,
        "status": {"phase": phase},
    }


def claim(name: str, *users: str, device: DeviceId = GPU, tolerations: Any = (), group: str = "") -> Obj:
    result = {"request": "r", **device._asdict(), **({"tolerations": list(tolerations)} if tolerations else {})}
    reserved = [{"resource": "pods", "name": user, "uid": f"uid-{user}"} for user in users]
    if group:
        reserved.append({"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": group, "uid": "g"})
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
    return {"metadata": {"name": name, "namespace": "ns"}, "status": status}


def taint(effect: str, seconds_ago: int = 5) -> Obj:
    return {"key": "k", "value": "v", "effect": effect, "timeAdded": format_time(NOW - timedelta(seconds=seconds_ago))}


def one(effect: str, tolerations: Any = (), user: Obj | None = None) -> tuple[bool, str, datetime | None]:
    """Barred, and the outcome and time of the one pod."""
    user = user or pod("p")
    [use] = affected(GPU, taint(effect), [claim("c", "p", tolerations=tolerations)], [user], NOW)
    return use.barred, use.pods[0].outcome, use.pods[0].at


ALL = [{"operator": "Exists"}]
ADDED = NOW - timedelta(seconds=5)


@pytest.mark.parametrize(
    ("effect", "tolerations", "expected"),
    [
        ("NoExecute", [], (True, "Evicted", ADDED)),
        ("NoExecute", ALL, (False, "Tolerates", None)),
        ("NoExecute", [{"key": "k", "value": "v", "effect": "NoExecute"}], (False, "Tolerates", None)),
        ("NoExecute", [{"key": "k", "value": "w"}], (True, "Evicted", ADDED)),
        ("NoExecute", [{"operator": "Exists", "effect": "NoSchedule"}], (True, "Evicted", ADDED)),
        ("NoExecute", [{**ALL[0], "tolerationSeconds": 60}], (False, "EvictedLater", ADDED + timedelta(seconds=60))),
        ("NoExecute", [{**ALL[0], "tolerationSeconds": 3}], (False, "Evicted", ADDED + timedelta(seconds=3))),
        ("NoExecute", [{**ALL[0], "tolerationSeconds": -9}], (False, "Evicted", ADDED)),
        ("NoExecute", [{**ALL[0], "tolerationSeconds": 60}, *ALL], (False, "Tolerates", None)),
        ("NoSchedule", [], (True, "Stays", None)),
        ("NoSchedule", ALL, (False, "Stays", None)),
        ("None", [], (False, "Stays", None)),
    ],
)
def test_taint_outcome_follows_effect_and_tolerations(
    effect: str, tolerations: list[Obj], expected: tuple[Any, ...]
) -> None:
    assert one(effect, tolerations) == expected


def test_unbound_terminating_and_finished_pods_have_their_outcomes() -> None:
    assert one("NoExecute", user=pod("p", node=""))[1] == "EvictedOnceBound"
    assert one("NoExecute", user=pod("p", deletionTimestamp=format_time(NOW)))[1] == "Leaving"
    for phase in ("Succeeded", "Failed"):
        [use] = affected(GPU, taint("NoExecute"), [claim("c", "p")], [pod("p", phase=phase)], NOW)
        assert use == ClaimUse("ns", "c", True, ())


def test_only_claims_of_device_count_with_all_their_pods() -> None:
    claims = [
        claim("shared", "a", "b", "unknown"),
        claim("group", group="gang"),
        claim("elsewhere", "a", device=DeviceId("gpu.example.com", "n2", "gpu-3")),
        {"metadata": {"name": "waiting", "namespace": "ns"}},
    ]
    members = [pod("m0", group="gang"), pod("m1", group="gang"), pod("x", group="other")]
    foreign = pod("m2", group="gang", namespace="elsewhere")
    found = affected(GPU, taint("NoExecute"), claims, [pod("b"), pod("a"), *members, foreign], NOW)
    assert [(use.name, [p.name for p in use.pods]) for use in found] == [
        ("group", ["m0", "m1"]),
        ("shared", ["a", "b"]),
    ]


def test_shortest_toleration_of_several_results_applies() -> None:
    both = claim("c", "p", tolerations=ALL)
    results = both["status"]["allocation"]["devices"]["results"]
    results.append({**results[0], "request": "s", "tolerations": [{**ALL[0], "tolerationSeconds": 60}]})
    [use] = affected(GPU, taint("NoExecute"), [both], [pod("p")], NOW)
    assert (use.pods[0].outcome, use.pods[0].at) == ("EvictedLater", ADDED + timedelta(seconds=60))


def test_taint_without_time_added_evicts_now() -> None:
    [use] = affected(GPU, {"key": "k", "effect": "NoExecute"}, [claim("c", "p")], [pod("p")], NOW)
    assert (use.pods[0].outcome, use.pods[0].at) == ("Evicted", NOW)
