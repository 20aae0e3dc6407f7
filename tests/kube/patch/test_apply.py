import copy
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haru.kube.errors import StatusError
from haru.kube.patch import managers
from haru.kube.patch.apply import ManagedWrite, server_side_apply, track_update
from haru.kube.patch.fieldset import EMPTY, FieldSet
from haru.kube.schema import message_type

POD = message_type("io.k8s.api.core.v1.Pod")
DEPLOYMENT = message_type("io.k8s.api.apps.v1.Deployment")
SLICE = message_type("io.k8s.api.resource.v1.ResourceSlice")


def apply(live, config, manager="a", *, force=False, subresource="", now="t1", message=DEPLOYMENT) -> dict[str, Any]:
    return server_side_apply(live, config, ManagedWrite(manager, "apps/v1", message, subresource, now), force=force)


def update(old, new, manager="u", *, subresource="", now="t1", message=DEPLOYMENT) -> dict[str, Any]:
    return track_update(old, new, ManagedWrite(manager, "apps/v1", message, subresource, now))


def body(obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "managedFields"}}


def fields_of(obj: dict[str, Any], manager: str) -> dict[str, Any] | None:
    for entry in obj["metadata"].get("managedFields", ()):
        if entry["manager"] == manager:
            return entry["fieldsV1"]
    return None


def deployment(**spec: Any) -> dict[str, Any]:
    obj = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "n"}}
    return {**obj, "spec": spec} if spec else obj


def template(*containers: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": list(containers)}}


def test_apply_creates_object_with_managed_fields() -> None:
    config = deployment(replicas=2, template=template({"name": "c", "image": "i", "ports": [{"containerPort": 80}]}))
    config["metadata"]["labels"] = {"app": "x"}
    created = apply(None, config)
    assert body(created) == config
    [entry] = created["metadata"]["managedFields"]
    assert entry == {
        "manager": "a",
        "operation": "Apply",
        "apiVersion": "apps/v1",
        "time": "t1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {
                "f:replicas": {},
                "f:template": {
                    "f:spec": {
                        "f:containers": {
                            'k:{"name":"c"}': {
                                ".": {},
                                "f:image": {},
                                "f:name": {},
                                "f:ports": {
                                    'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}
                                },
                            }
                        }
                    }
                },
            },
        },
    }


def test_create_records_managed_fields_of_update() -> None:
    obj = deployment(
        replicas=1,
        selector={"matchLabels": {"a": "b"}},
        strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
        template=template({"name": "c", "image": "i"}),
    )
    obj["metadata"].update(labels={"app": "x"}, uid="u", generation=1, creationTimestamp="t")
    created = update(None, obj)
    assert fields_of(created, "u") == {
        "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
        "f:spec": {
            "f:replicas": {},
            "f:selector": {},
            "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}, "f:type": {}},
            "f:template": {"f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}, "f:image": {}, "f:name": {}}}}},
        },
    }
    assert created["metadata"]["managedFields"][0]["operation"] == "Update"


def test_apply_conflicts_with_field_of_updater_unless_forced() -> None:
    live = update(None, deployment(replicas=1), "m")
    with pytest.raises(StatusError) as error:
        apply(live, deployment(replicas=2))
    assert error.value.code == 409 and error.value.reason == "Conflict"
    assert error.value.message == 'Apply failed with 1 conflict: conflict with "m" using apps/v1: .spec.replicas'
    assert error.value.details["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "m" using apps/v1', "field": ".spec.replicas"}
    ]
    forced = apply(live, deployment(replicas=2), force=True, now="t2")
    assert forced["spec"]["replicas"] == 2
    assert fields_of(forced, "m") is None and fields_of(forced, "a") == {"f:spec": {"f:replicas": {}}}


def test_apply_conflict_message_lists_fields_per_manager() -> None:
    live = apply(None, deployment(replicas=1, paused=True), "b")
    live = apply(live, deployment(minReadySeconds=3), "c")
    with pytest.raises(StatusError) as error:
        apply(live, deployment(replicas=2, paused=False, minReadySeconds=4))
    assert error.value.message == (
        'Apply failed with 3 conflicts: conflicts with "b":\n- .spec.paused\n- .spec.replicas\n'
        'conflicts with "c":\n- .spec.minReadySeconds'
    )


LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def client_applied(**spec: Any) -> dict[str, Any]:
    """A Deployment as `kubectl apply` creates it: what was applied is in an annotation."""
    obj = deployment(**spec)
    obj["metadata"]["annotations"] = {LAST_APPLIED: json.dumps(deployment(**spec))}
    return update(None, obj, "kubectl-client-side-apply")


def last_applied(obj: dict[str, Any]) -> Any:
    return json.loads(obj["metadata"]["annotations"][LAST_APPLIED])


def test_kubectl_applies_over_what_it_applied_at_the_client_without_conflict() -> None:
    live = client_applied(replicas=2, paused=True)
    applied = apply(live, deployment(replicas=3, paused=True), "kubectl", now="t2")
    assert applied["spec"] == {"replicas": 3, "paused": True}
    assert last_applied(applied) == deployment(replicas=3, paused=True)
    assert fields_of(applied, "kubectl") == {"f:spec": {"f:paused": {}, "f:replicas": {}}}
    theirs = fields_of(applied, "kubectl-client-side-apply")
    assert theirs == {
        "f:metadata": {"f:annotations": {".": {}, "f:" + LAST_APPLIED: {}}},
        "f:spec": {"f:paused": {}},
    }
    again = apply(applied, deployment(replicas=3, paused=True), "kubectl", now="t3")
    assert again == applied


def test_kubectl_conflicts_with_what_changed_since_the_client_applied() -> None:
    live = client_applied(replicas=2, paused=True)
    changed = copy.deepcopy(live)
    changed["spec"]["replicas"] = 5
    scaled = update(live, changed, "hpa", now="t2")
    with pytest.raises(StatusError) as error:
        apply(scaled, deployment(replicas=3, paused=False), "kubectl", now="t3")
    assert error.value.message == 'Apply failed with 1 conflict: conflict with "hpa" using apps/v1: .spec.replicas'


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"apiVersion": "apps/v1beta1"}', '{"apiVersion": "apps/v1"}'])
def test_kubectl_conflicts_where_the_annotation_tells_nothing(text: str) -> None:
    live = client_applied(replicas=2)
    live["metadata"]["annotations"][LAST_APPLIED] = text
    with pytest.raises(StatusError, match=r'conflict with "kubectl-client-side-apply" using apps/v1: \.spec\.replicas'):
        apply(live, deployment(replicas=3), "kubectl", now="t2")


def test_other_manager_conflicts_with_what_the_client_applied() -> None:
    live = client_applied(replicas=2)
    with pytest.raises(StatusError, match=r'conflict with "kubectl-client-side-apply" using apps/v1: \.spec\.replicas'):
        apply(live, deployment(replicas=3), "a", now="t2")
    forced = apply(live, deployment(replicas=3), "a", force=True, now="t2")
    assert last_applied(forced) == deployment(replicas=2)


def test_annotation_of_what_was_applied_is_escaped_bounded_and_never_new() -> None:
    odd = deployment(replicas=2)
    odd["metadata"]["annotations"] = {"b": "<&>", LAST_APPLIED: "mine"}
    applied = apply(client_applied(replicas=2), odd, "kubectl", force=True, now="t2")
    text = applied["metadata"]["annotations"][LAST_APPLIED]
    assert text.endswith(
        '"annotations":{"b":"\\u003c\\u0026\\u003e"},"name":"d","namespace":"n"},"spec":{"replicas":2}}\n'
    )
    odd["metadata"]["annotations"] = {"b": "x" * 200_000}
    large = apply(client_applied(replicas=2), odd, "kubectl", now="t2")
    assert set(large["metadata"]["annotations"]) == {"b"}
    assert "annotations" not in apply(None, deployment(replicas=2), "kubectl")["metadata"]


def test_apply_conflict_names_subresource_and_list_item() -> None:
    live = {**deployment(replicas=1, template=template({"name": "c", "image": "i"})), "status": {}}
    live = update(None, live, "m")
    live = update(live, deployment(**{**live["spec"], "replicas": 3}), "hpa", subresource="scale")
    with pytest.raises(StatusError) as error:
        apply(live, deployment(replicas=2))
    assert error.value.message == (
        'Apply failed with 1 conflict: conflict with "hpa" with subresource "scale" using apps/v1: .spec.replicas'
    )
    with pytest.raises(StatusError) as error:
        apply(live, deployment(template=template({"name": "c", "image": "j"})))
    assert error.value.details["causes"][0]["field"] == '.spec.template.spec.containers[name="c"].image'


def test_second_update_without_a_time_leaves_an_entry_without_one() -> None:
    live = update(None, deployment(replicas=1))
    for replicas in (2, 3):
        scaled = {**live, "spec": {**live["spec"], "replicas": replicas}}
        live = update(live, scaled, "hpa", subresource="scale", now="")
    assert [e for e in live["metadata"]["managedFields"] if "time" in e and not e["time"]] == []


def test_scale_that_is_written_where_nobody_owns_the_count_leaves_it_to_nobody() -> None:
    live = update(None, deployment(paused=True), "m")
    scaled = update(live, deployment(paused=True, replicas=3), "hpa", subresource="scale")
    assert scaled["metadata"]["managedFields"] == live["metadata"]["managedFields"]


def test_equal_applied_values_are_owned_by_both_managers() -> None:
    live = apply(None, deployment(replicas=1), "b")
    live = apply(live, deployment(replicas=1), "a")
    assert fields_of(live, "a") == fields_of(live, "b")
    without = apply(live, deployment(), "a", now="t2")
    assert without["spec"]["replicas"] == 1
    assert fields_of(without, "a") is None
    assert "spec" not in apply(without, deployment(), "b")


def test_field_dropped_from_applied_configuration_is_removed() -> None:
    first = deployment(
        replicas=1, template=template({"name": "a", "image": "i"}, {"name": "b", "image": "j", "tty": True})
    )
    first["metadata"]["labels"] = {"x": "1", "y": "2"}
    live = apply(None, first)
    second = deployment(template=template({"name": "b", "image": "j"}))
    second["metadata"]["labels"] = {"y": "2"}
    result = apply(live, second)
    assert body(result) == second
    assert "labels" not in apply(result, deployment())["metadata"]


def test_fields_of_other_managers_are_kept() -> None:
    live = apply(None, deployment(template=template({"name": "a", "image": "i"})))
    changed = copy.deepcopy(live)
    changed["metadata"]["labels"] = {"theirs": "1"}
    changed["spec"]["template"]["spec"]["containers"].append({"name": "side", "image": "s"})
    live = update(live, changed, "injector")
    result = apply(live, deployment(template=template({"name": "a", "image": "new"})))
    assert result["metadata"]["labels"] == {"theirs": "1"}
    assert result["spec"]["template"]["spec"]["containers"] == [
        {"name": "a", "image": "new"},
        {"name": "side", "image": "s"},
    ]
    gone = apply(result, deployment(template=template()))
    assert [c["name"] for c in gone["spec"]["template"]["spec"]["containers"]] == ["side"]


def test_object_without_managed_fields_is_owned_by_before_first_apply() -> None:
    live = deployment(replicas=1)
    with pytest.raises(StatusError, match='conflict with "before-first-apply" using apps/v1'):
        apply(live, deployment(replicas=2))
    assert fields_of(apply(live, deployment(replicas=1)), "before-first-apply") == {"f:spec": {"f:replicas": {}}}


@pytest.mark.parametrize("subresource", ["", "status"])
def test_before_first_apply_wrote_at_the_time_and_by_the_subresource_of_the_apply(subresource: str) -> None:
    live = {**deployment(replicas=1), "status": {"replicas": 1}}
    live["metadata"]["creationTimestamp"] = "t0"
    config = {**deployment(replicas=1), "status": {"replicas": 1}}
    _, entry = apply(live, config, now="t5", subresource=subresource)["metadata"]["managedFields"]
    told = (entry["manager"], entry["time"], entry.get("subresource", ""))
    assert told == ("before-first-apply", "t5", subresource)


@pytest.mark.parametrize(
    ("live", "applied", "expected"),
    [("abc", "ac", "abc"), ("abc", "ca", "bca"), ("abc", "dc", "abdc"), ("abc", "cd", "abcd"), ("ab", "zy", "abzy")],
)
def test_apply_keeps_order_of_list_items(live: str, applied: str, expected: str) -> None:
    def config(letters: str) -> dict[str, Any]:
        return deployment(template=template(*({"name": letter} for letter in letters)))

    result = apply(update(None, config(live)), config(applied))
    assert "".join(c["name"] for c in result["spec"]["template"]["spec"]["containers"]) == expected


def test_set_lists_are_merged_per_item() -> None:
    config = deployment()
    config["metadata"]["finalizers"] = ["x/b", "x/a"]
    live = apply(None, config)
    assert fields_of(live, "a") == {"f:metadata": {"f:finalizers": {'v:"x/a"': {}, 'v:"x/b"': {}}}}
    other = deployment()
    other["metadata"]["finalizers"] = ["x/c"]
    live = apply(live, other, "b")
    assert live["metadata"]["finalizers"] == ["x/b", "x/a", "x/c"]
    assert apply(live, deployment())["metadata"]["finalizers"] == ["x/c"]


def test_duplicate_list_item_in_apply_is_refused() -> None:
    with pytest.raises(StatusError) as error:
        apply(None, deployment(template=template({"name": "a"}, {"name": "a"})))
    assert error.value.code == 400
    assert error.value.message == '.spec.template.spec.containers: duplicate entries for key [name="a"]'
    nameless = apply(None, deployment(template=template({"image": "a"})))
    assert nameless["spec"]["template"]["spec"]["containers"] == [{"image": "a"}], "validation asks for the name"


def with_env(*values: str) -> dict[str, Any]:
    """A deployment whose container has the variable A once for each value, and B once."""
    env = [*({"name": "A", "value": value} for value in values), {"name": "B", "value": "2"}]
    return deployment(template=template({"name": "c", "env": env}))


def env_of(obj: dict[str, Any], manager: str) -> dict[str, Any]:
    fields = fields_of(obj, manager)
    assert fields is not None
    return fields["f:spec"]["f:template"]["f:spec"]["f:containers"]['k:{"name":"c"}']["f:env"]


WHOLE = {".": {}, "f:name": {}, "f:value": {}}
"""A variable of which everything is owned."""


def test_items_with_the_same_key_are_owned_as_one_leaf() -> None:
    created = update(None, with_env("1", "3"), "creator")
    assert env_of(created, "creator") == {".": {}, 'k:{"name":"A"}': {}, 'k:{"name":"B"}': WHOLE}
    changed = update(created, {**created, **with_env("1", "4")}, "other")
    assert env_of(changed, "other") == {'k:{"name":"A"}': {}}
    assert env_of(changed, "creator") == {".": {}, 'k:{"name":"B"}': WHOLE}


def test_items_that_become_one_or_several_change_hands_whole() -> None:
    created = update(None, with_env("1", "3"), "creator")
    single = update(created, {**body(created), **with_env("1")}, "creator")
    assert env_of(single, "creator") == {".": {}, 'k:{"name":"A"}': WHOLE, 'k:{"name":"B"}': WHOLE}
    again = update(single, {**body(single), **with_env("1", "1")}, "creator")
    assert env_of(again, "creator") == {".": {}, 'k:{"name":"A"}': {}, 'k:{"name":"B"}': WHOLE}


def test_apply_conflicts_with_items_of_the_same_key_and_replaces_them_when_forced() -> None:
    created = update(None, with_env("1", "3"), "creator")
    with pytest.raises(StatusError) as refused:
        apply(created, with_env("1"))
    path = '.spec.template.spec.containers[name="c"].env[name="A"]'
    assert refused.value.message == f'Apply failed with 1 conflict: conflict with "creator" using apps/v1: {path}'
    assert body(apply(created, with_env("1"), force=True))["spec"] == with_env("1")["spec"]


def test_applied_managed_fields_are_refused() -> None:
    config = deployment()
    config["metadata"]["managedFields"] = [{"manager": "x"}]
    with pytest.raises(StatusError, match=r"metadata\.managedFields must be nil"):
        apply(None, config)


def test_status_is_applied_only_through_its_subresource() -> None:
    live = apply(None, deployment(replicas=1))
    ignored = apply(live, {**deployment(replicas=1), "status": {"replicas": 5}})
    assert "status" not in ignored
    written = apply(live, {**deployment(replicas=7), "status": {"replicas": 5}}, "s", subresource="status")
    assert written["spec"] == {"replicas": 1} and written["status"] == {"replicas": 5}
    assert fields_of(written, "s") == {"f:status": {"f:replicas": {}}}
    assert {e.get("subresource") for e in written["metadata"]["managedFields"]} == {None, "status"}


def test_update_takes_ownership_of_changed_fields() -> None:
    live = apply(None, deployment(replicas=1, paused=True), "a", now="t1")
    changed = copy.deepcopy(live)
    changed["spec"]["replicas"] = 5
    live = update(live, changed, "u", now="t2")
    assert fields_of(live, "a") == {"f:spec": {"f:paused": {}}}
    assert fields_of(live, "u") == {"f:spec": {"f:replicas": {}}}
    assert {e["manager"]: e["time"] for e in live["metadata"]["managedFields"]} == {"a": "t1", "u": "t2"}
    removed = copy.deepcopy(live)
    del removed["spec"]["replicas"]
    assert fields_of(update(live, removed, "v"), "u") is None


def test_change_of_what_its_writer_owns_reads_no_set_of_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewed Lease: each has sets of its own, by the uid of its owner, and no cache keeps those of all nodes."""
    live = update(None, deployment(replicas=1), "kubelet", now="t1")
    live = update(live, {**live, "spec": {"replicas": 1, "paused": True}}, "other", now="t1")
    monkeypatch.setattr(managers, "parsed", None)
    monkeypatch.setattr(managers, "rendered", None)
    renewed = update(live, {**live, "spec": {"replicas": 2, "paused": True}}, "kubelet", now="t2")
    assert fields_of(renewed, "kubelet") == fields_of(live, "kubelet")
    assert {e["manager"]: e["time"] for e in renewed["metadata"]["managedFields"]} == {"kubelet": "t2", "other": "t1"}


def test_update_without_change_keeps_managed_fields() -> None:
    live = update(None, deployment(replicas=1), now="t1")
    assert update(live, copy.deepcopy(live), "other", now="t9") == live
    bare = body(live)
    assert update(live, bare, "other", now="t9") == live
    bare["metadata"]["resourceVersion"] = "7"
    assert update(live, bare, now="t9")["metadata"]["managedFields"] == live["metadata"]["managedFields"]


@pytest.mark.parametrize("cleared", [[], [{}]])
def test_empty_managed_fields_reset_ownership(cleared: list[Any]) -> None:
    live = update(None, deployment(replicas=1))
    forgotten = update(live, {**live, "metadata": {**live["metadata"], "managedFields": cleared}})
    assert "managedFields" not in forgotten["metadata"]
    again = update(forgotten, {**forgotten, "spec": {"replicas": 2}})
    assert "managedFields" not in again["metadata"]


def test_managed_fields_are_editable_only_on_main_resource() -> None:
    live = update(None, deployment(replicas=1), "u")
    edited = copy.deepcopy(live)
    edited["metadata"]["managedFields"][0]["manager"] = "renamed"
    assert fields_of(update(live, edited), "renamed") is not None
    assert fields_of(update(live, edited, subresource="status"), "renamed") is None


def test_invalid_managed_fields_are_ignored() -> None:
    live = update(None, deployment(replicas=1), "u")
    broken = copy.deepcopy(live)
    broken["metadata"]["managedFields"][0]["fieldsV1"] = {"zzz": {}}
    assert fields_of(update(live, broken), "u") is not None


def test_status_update_is_owned_through_subresource() -> None:
    live = update(None, deployment(replicas=1), "u")
    new = {**live, "status": {"replicas": 1}}
    assert fields_of(update(live, new, "c"), "c") is None
    tracked = update(live, new, "c", subresource="status")
    assert fields_of(tracked, "c") == {"f:status": {"f:replicas": {}}}


def test_oldest_update_managers_are_merged() -> None:
    live = update(None, deployment(replicas=0))
    for number in range(15):
        new = copy.deepcopy(live)
        new["metadata"].setdefault("annotations", {})[f"k{number}"] = "v"
        live = update(live, new, f"m{number:02}", now=f"t{number:02}")
    managers = [e["manager"] for e in live["metadata"]["managedFields"]]
    assert len(managers) == 10 and "ancient-changes" in managers and "m14" in managers and "m01" not in managers


def test_atomic_list_is_one_field_and_tracked_quickly() -> None:
    device = {
        "name": "gpu-0",
        "attributes": {f"a{i}": {"string": "x"} for i in range(15)},
        "capacity": {"memory": {"value": "1Gi"}},
    }
    spec = {
        "driver": "d",
        "pool": {"name": "p", "generation": 1},
        "devices": [{**device, "name": f"gpu-{i}"} for i in range(26)],
    }
    old = update(None, {"metadata": {"name": "s"}, "spec": spec}, message=SLICE)
    assert fields_of(old, "u") == {
        "f:spec": {"f:devices": {}, "f:driver": {}, "f:pool": {"f:generation": {}, "f:name": {}}}
    }
    new = {**old, "spec": {**spec, "devices": [dict(d) for d in spec["devices"]][:-1]}}
    best = 1.0
    for _ in range(20):
        start = time.process_time()
        update(old, new, "v", message=SLICE)
        best = min(best, time.process_time() - start)
    assert best < 0.0003


ELEMENTS = st.sampled_from(["f:a", "f:b", 'k:{"n":"x"}', 'v:"y"'])
PATHS = st.lists(ELEMENTS, min_size=1, max_size=4).map(tuple)
SETS = st.lists(PATHS, max_size=8).map(lambda paths: FieldSet.of(*paths))


@given(SETS, SETS, SETS)
def test_field_set_operations_equal_set_operations(a: FieldSet, b: FieldSet, c: FieldSet) -> None:
    pa, pb = set(a.paths()), set(b.paths())
    assert set((a | b).paths()) == pa | pb
    assert set((a & b).paths()) == pa & pb
    assert set((a - b).paths()) == pa - pb
    assert a | b == b | a and a & b == b & a
    assert (a | b) & c == (a & c) | (b & c)
    assert (a - b) | (a & b) == a
    assert a - a == EMPTY and not (a - a)
    assert set(a.without_subtrees(b).paths()) == {p for p in pa if not any(p[: len(q)] == q for q in pb)}


@given(SETS)
def test_field_set_round_trips_through_fields_v1(a: FieldSet) -> None:
    assert FieldSet.from_fields_v1(a.to_fields_v1()) == a
    assert len(list(a.paths())) == len(set(a.paths()))


TEXT = st.sampled_from(["x", "y"])
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("abc")}, optional={"image": TEXT, "command": st.lists(TEXT, max_size=2)}
    ),
    max_size=3,
    unique_by=lambda c: c["name"],
)
CONFIGS = st.builds(
    lambda labels, finalizers, containers, optional: {
        "metadata": {"name": "d", "labels": labels, "finalizers": finalizers},
        "spec": {**optional, "template": {"spec": {"containers": containers}}},
    },
    st.dictionaries(TEXT, TEXT, max_size=2),
    st.lists(TEXT, unique=True, max_size=2),
    CONTAINERS,
    st.fixed_dictionaries({}, optional={"replicas": st.integers(0, 2), "paused": st.booleans()}),
)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("abu"), CONFIGS), min_size=1, max_size=4), CONFIGS)
def test_second_apply_of_same_configuration_changes_nothing(
    history: list[tuple[str, dict[str, Any]]], config: dict[str, Any]
) -> None:
    live: dict[str, Any] | None = None
    for manager, obj in history:
        live = update(live, obj, manager) if manager == "u" else apply(live, obj, manager, force=True)
    before = copy.deepcopy(live)
    once = apply(live, config, "z", force=True, now="t2")
    assert apply(once, config, "z", now="t3") == once
    assert live == before
    untouched = apply(once, config, "y", now="t4")
    assert body(untouched) == body(once)


@settings(max_examples=60)
@given(CONFIGS, CONFIGS)
def test_sole_applier_gets_applied_configuration(first: dict[str, Any], second: dict[str, Any]) -> None:
    result = body(apply(apply(None, first), second, now="t2"))

    def tidy(value: Any) -> Any:
        """Without what is empty: an emptied list or map may stay or go."""
        if isinstance(value, dict):
            return {k: t for k, v in value.items() if (t := tidy(v)) not in ({}, [])}
        return value

    for listed in (result, second):
        listed["metadata"].get("finalizers", []).sort()
        listed.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []).sort(key=lambda c: c["name"])
    assert tidy(result) == tidy(second)
