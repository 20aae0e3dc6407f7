import copy

import pytest

from haru.kube.errors import StatusError
from haru.kube.patch.strategic import apply_strategic_merge_patch
from haru.kube.schema import message_type

POD = message_type("io.k8s.api.core.v1.Pod")
DEPLOYMENT = message_type("io.k8s.api.apps.v1.Deployment")


def pod(**spec: object) -> dict:
    return {"metadata": {"name": "p"}, "spec": spec}


def names(*items: str) -> list[dict]:
    return [{"name": item, "image": item} for item in items]


ABC = pod(containers=names("a", "b", "c"))
LISTS = {
    "patch one": ([{"name": "b", "image": "x"}], [*names("a"), {"name": "b", "image": "x"}, *names("c")]),
    "null in an item": ([{"name": "b", "image": None}], [*names("a"), {"name": "b"}, *names("c")]),
    "new items stand first": (names("d"), names("d", "a", "b", "c")),
    "delete": ([{"name": "b", "$patch": "delete"}], names("a", "c")),
    "delete what is absent": ([{"name": "z", "$patch": "delete"}], names("a", "b", "c")),
    "replace": ([{"$patch": "replace"}, *names("z")], names("z")),
    "replace by what else is there": ([{"$patch": "replace", **names("x")[0]}, *names("z")], names("z")),
    "order of the patch": (names("c", "a"), names("b", "c", "a")),
    "item replaced": (
        [{"name": "b", "$patch": "delete"}, {"name": "b", "tty": True}],
        [{"name": "b", "tty": True}, *names("a", "c")],
    ),
}


@pytest.mark.parametrize("case", LISTS)
def test_lists_with_merge_key_are_merged_by_key(case: str) -> None:
    patch, expected = LISTS[case]
    before = copy.deepcopy(ABC)
    result = apply_strategic_merge_patch(ABC, {"spec": {"containers": patch}}, POD)
    assert result["spec"]["containers"] == expected
    assert before == ABC


def key_order(items: list[dict]) -> str:
    return "".join(item["name"] for item in items)


@pytest.mark.parametrize(
    ("patch", "order", "expected"),
    [
        (None, "cba", "cba"),
        (None, "ca", "bca"),
        (names("d"), "dabc", "dabc"),
        (names("d"), "abcd", "abcd"),
        (names("d"), "acd", "abcd"),
        ([{"name": "b", "$patch": "delete"}], "ca", "ca"),
    ],
)
def test_set_element_order_directive_orders_list(patch, order: str, expected: str) -> None:
    spec: dict = {"$setElementOrder/containers": [{"name": letter} for letter in order]}
    if patch is not None:
        spec["containers"] = patch
    result = apply_strategic_merge_patch(ABC, {"spec": spec}, POD)
    assert key_order(result["spec"]["containers"]) == expected
    assert not any(key.startswith("$") for key in result["spec"])


def test_primitive_lists_are_merged_and_deleted_from() -> None:
    live = {"metadata": {"finalizers": ["a", "b", "c"]}}
    merge = apply_strategic_merge_patch(live, {"metadata": {"finalizers": ["d", "a"]}}, POD)
    assert sorted(merge["metadata"]["finalizers"]) == ["a", "b", "c", "d"]
    gone = apply_strategic_merge_patch(live, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["b", "z"]}}, POD)
    assert gone["metadata"]["finalizers"] == ["a", "c"]
    both = {
        "$setElementOrder/finalizers": ["c", "d", "a"],
        "$deleteFromPrimitiveList/finalizers": ["b"],
        "finalizers": ["d"],
    }
    assert apply_strategic_merge_patch(live, {"metadata": both}, POD)["metadata"]["finalizers"] == ["c", "d", "a"]


@pytest.mark.parametrize(
    ("live", "patch", "expected"),
    [
        (pod(nodeSelector={"a": "1"}), {"spec": {"nodeSelector": {"b": "2"}}}, {"nodeSelector": {"a": "1", "b": "2"}}),
        (pod(nodeSelector={"a": "1"}), {"spec": {"nodeSelector": {"a": None}}}, {"nodeSelector": {}}),
        (
            pod(nodeSelector={"a": "1"}),
            {"spec": {"nodeSelector": {"$patch": "replace", "b": "2"}}},
            {"nodeSelector": {"b": "2"}},
        ),
        (pod(nodeSelector={"a": "1"}), {"spec": {"$patch": "delete"}}, {}),
        (pod(hostname="h"), {"spec": {"$patch": "replace", "subdomain": "s"}}, {"subdomain": "s"}),
        (pod(tolerations=[{"key": "a"}]), {"spec": {"tolerations": [{"key": "b"}]}}, {"tolerations": [{"key": "b"}]}),
        (pod(), {"spec": {"nodeSelector": {"a": "1", "b": None}}}, {"nodeSelector": {"a": "1"}}),
        (
            pod(),
            {"spec": {"containers": [{"name": "a", "$patch": "delete"}, {"name": "b"}]}},
            {"containers": [{"name": "b"}]},
        ),
        (
            pod(volumes=[{"name": "v", "emptyDir": {}}]),
            {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}},
            {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]},
        ),
    ],
)
def test_maps_are_merged_replaced_and_deleted(live, patch, expected) -> None:
    assert apply_strategic_merge_patch(live, patch, POD)["spec"] == expected


def test_nested_lists_are_merged_by_key() -> None:
    live = pod(containers=[{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}])
    patch = {
        "spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "3"}], "ports": [{"containerPort": 80}]}]}
    }
    [container] = apply_strategic_merge_patch(live, patch, POD)["spec"]["containers"]
    assert container == {
        "name": "a",
        "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "3"}],
        "ports": [{"containerPort": 80}],
    }


def test_retain_keys_removes_other_strategy_fields() -> None:
    live = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert apply_strategic_merge_patch(live, patch, DEPLOYMENT)["spec"]["strategy"] == {"type": "Recreate"}


def test_conditions_merge_by_type() -> None:
    live = {"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Other", "status": "True"}]}}
    patch = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert apply_strategic_merge_patch(live, patch, POD)["status"]["conditions"] == [
        {"type": "Ready", "status": "True"},
        {"type": "Other", "status": "True"},
    ]


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ({"spec": {"containers": [{"image": "x"}]}}, 422),
        ({"spec": {"containers": [{"name": "a", "$patch": "explode"}]}}, 400),
        ({"spec": {"$patch": "explode"}}, 400),
        ({"spec": {"$patch": "merge", "hostname": "h"}}, 400),
        ({"spec": {"$setElementOrder/containers": [{}]}}, 422),
        ({"spec": {"containers": [{"name": "a", "$patch": "merge"}]}}, 400),
        ({"spec": {"$retainKeys": ["a"], "hostname": "h"}}, 400),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": "x"}}, 400),
        ({"spec": {"$setElementOrder/containers": [{"name": "a"}], "containers": names("b")}}, 400),
        ({"finalizers": True, "$setElementOrder/finalizers": [{"a": 1}]}, 400),
        ({"spec": {"containers": "x", "$setElementOrder/containers": ["x"]}}, 400),
        ([], 400),
    ],
)
def test_invalid_strategic_patch_is_refused_with_code(patch, code: int) -> None:
    live = {"metadata": {"finalizers": ["a"]}, **ABC}
    with pytest.raises(StatusError) as error:
        apply_strategic_merge_patch(live, patch, POD)
    assert error.value.code == code


def test_first_of_items_with_one_key_is_merged() -> None:
    ports = [{"containerPort": 53, "protocol": one} for one in ("UDP", "TCP")]
    live = pod(containers=[{"name": "a", "ports": ports}])
    patch = {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 53, "hostPort": 5}]}]}}
    found = apply_strategic_merge_patch(live, patch, POD)["spec"]["containers"][0]["ports"]
    assert found == [{**ports[0], "hostPort": 5}, ports[1]]


def test_item_without_its_key_is_told_as_go_shows_it() -> None:
    live = {"spec": {"template": {"spec": {"containers": [{"name": "a"}]}}}}
    patch = {"spec": {"template": {"spec": {"containers": [{"image": "b", "args": ["c", 1]}]}}}}
    with pytest.raises(
        StatusError, match=r"^map: map\[args:\[c 1\] image:b\] does not contain declared merge key: name$"
    ):
        apply_strategic_merge_patch(live, patch, DEPLOYMENT)
