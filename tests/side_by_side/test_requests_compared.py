"""The comparison of requests: what does not count, what is known, and that a seed makes its requests again."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from api_caller import Caller
from custom_objects import define
from object_draw import ObjectDraw
from request_answers import Answer, Versions, differences, plain, unequal
from request_clients import Clients
from request_conversions import Conversions, converted
from request_devices import FULL, in_version
from request_draw import RequestDraw
from request_nodes import NodeSituations
from request_parts import PATCHES, Request, Resource, chosen, json_patch, mark, merge_patch
from request_samples import ALL, Obj
from request_verdicts import known_cause
from request_webhooks import ANSWERS, RAW, HookServer, Webhooks
from requests_compared import Side, main

from haru.kube.decoding import strict_decode
from haru.kube.defaulting import apply_defaults
from haru.kube.gates import FeatureGates
from haru.kube.kinds import all_kinds, by_kind, known_kind
from haru.kube.patch.json_patch import apply_json_patch
from haru.kube.patch.merge_patch import apply_merge_patch
from haru.kube.validation import validate_create
from haru.kube.wire_out import encode_protobuf
from nights import tonight

_GATES = FeatureGates.accelerator_defaults()
ASKED = Request("GET", "/api/v1/namespaces/n/pods/a", "", {}, None, "pods")


def answered(value: Obj, status: int = 200) -> Answer:
    return Answer(status, {"content-type": "application/json"}, [], json.dumps(value).encode())


def pod(uid: str, version: str, **more: object) -> Obj:
    metadata = {"name": "a", "uid": f"{uid * 8}-0000-0000-0000-{uid * 12}", "resourceVersion": version}
    return {"kind": "Pod", "metadata": metadata, **more}


def test_what_a_server_chooses_does_not_count() -> None:
    sides = (Versions(), Versions())
    one, other = pod("a", "5", spec={"x": "kube-api-access-abcde"}), pod("b", "9", spec={"x": "kube-api-access-fghij"})
    assert differences(ASKED, answered(one), answered(other), sides) == []
    assert plain(one, sides[0])["metadata"] == {"name": "a", "uid": "UID", "resourceVersion": "RV0"}


def test_version_that_changed_on_one_side_only_is_a_difference() -> None:
    sides = (Versions(), Versions())
    differences(ASKED, answered(pod("a", "5")), answered(pod("b", "9")), sides)
    (line,) = differences(ASKED, answered(pod("a", "5")), answered(pod("b", "10")), sides)
    assert line == '.metadata.resourceVersion: "RV0" | "RV1"'


def test_causes_count_once_and_in_any_order() -> None:
    causes = [{"field": "a", "reason": "R", "message": "m"}, {"field": "b", "reason": "R", "message": "m"}]
    failure = {"kind": "Status", "status": "Failure", "message": "both", "details": {"causes": [*causes, causes[0]]}}
    other = {**failure, "message": "in other order", "details": {"causes": causes[::-1]}}
    assert differences(ASKED, answered(failure, 422), answered(other, 422), (Versions(), Versions())) == []
    fewer = {**failure, "details": {"causes": causes[:1]}}
    assert differences(ASKED, answered(failure, 422), answered(fewer, 422), (Versions(), Versions())) != []


def test_codes_forms_and_warnings_are_compared() -> None:
    sides = (Versions(), Versions())
    (line,) = differences(ASKED, answered({}, 200), answered({"message": "no"}, 404), sides)
    assert line == "code: 200  | 404 no"
    warned = Answer(200, {"content-type": "application/json"}, ['299 - "x"'], b"{}")
    assert differences(ASKED, warned, answered({}), sides) == ["warnings: ['299 - \"x\"'] | []"]
    raw = encode_protobuf({"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "a"}}]})
    assert raw is not None
    listed = Answer(200, {"content-type": "application/vnd.kubernetes.protobuf"}, [], raw)
    assert listed.value["items"] == [{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}]


def test_differing_values_are_named_by_their_place() -> None:
    assert unequal({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == [".a[1].b: 2 | 3"]
    assert unequal({"a": 1}, {"b": 1}) == [".a: 1 | -", ".b: - | 1"]
    assert unequal({"causes": ["a", "b"]}, {"causes": ["b", "c"]}) == ['.causes[0]: "a" | "c"']
    assert unequal(1, True) == [": 1 | true"]


@pytest.mark.parametrize(
    ("line", "is_known"),
    [
        ('code: 500 resourceVersion: Invalid value: "x": strconv | 422 ListOptions', True),
        ("code: 422 Pod | 200 ", False),
        (".items: null | []", True),
    ],
)
def test_difference_that_is_meant_has_a_cause(line: str, is_known: bool) -> None:
    assert bool(known_cause(ASKED, (answered({}), answered({})), line)) is is_known


def test_version_that_changed_as_owners_were_lost_is_known() -> None:
    one, other = answered({"metadata": {}}), answered({"metadata": {"managedFields": [{"manager": "m"}]}})
    line = '.metadata.resourceVersion: "RV1" | "RV0"'
    assert [bool(known_cause(ASKED, (one, each), line)) for each in (one, other)] == [False, True]


@pytest.mark.parametrize(
    ("method", "about", "is_known"), [("PUT", "template.", True), ("PUT", "nope", False), ("POST", "template.", False)]
)
def test_warnings_about_former_template_are_known(method: str, about: str, is_known: bool) -> None:
    asked = Request(method, "/api/v1/namespaces/n/replicationcontrollers/a", "", {}, {}, "replicationcontrollers")
    line = f"warnings: [] | ['299 - \"spec.{about}spec.containers[0].ports[0]: hostIP set without hostPort\"']"
    assert bool(known_cause(asked, (answered({}), answered({})), line)) is is_known


@pytest.mark.parametrize(
    ("line", "is_known"), [("spec.capacity.m.x", True), ("spec.capacity.m.y", False), ("spec.capacity", False)]
)
def test_path_of_unknown_field_in_a_map_is_known(line: str, is_known: bool) -> None:
    asked = Request("PATCH", "/x", "", {"Content-Type": PATCHES["strategic"]}, {}, "resourceslices")
    told = [str([f'299 - "unknown field \\"{path}\\""']) for path in ("spec.capacity.x", line)]
    assert bool(known_cause(asked, (answered({}), answered({})), f"warnings: {told[0]} | {told[1]}")) is is_known


@pytest.mark.parametrize(
    ("body", "is_known"),
    [
        ({"spec": {"list": [], "text": "x"}}, True),
        ({"spec": {"kept": {"a": 1}, "labels": {"a": "b"}}}, False),
        ({"spec": {"kept": ""}}, False),
        ([{"op": "add", "path": "/spec/list", "value": []}], True),
        ([{"op": "add", "path": "/spec/kept", "value": "x"}], False),
    ],
)
def test_next_version_is_known_only_where_an_empty_value_was_put_where_nothing_is(body: Any, is_known: bool) -> None:
    asked = Request("PATCH", "/x", "", {}, body, "pods")
    answers = answered({"kind": "Pod", "spec": {"kept": {"a": 1}}}), answered({})
    assert bool(known_cause(asked, answers, '.metadata.resourceVersion: "RV2" | "RV1"')) is is_known


def test_what_is_of_haru_alone_does_not_count_in_a_list() -> None:
    ours, others = {"metadata": {"name": "haru:x"}}, {"metadata": {"name": "x"}}
    assert plain({"items": [ours, others], "rows": [{"object": ours}]}, Versions()) == {"items": [others], "rows": []}


@pytest.mark.parametrize("sample", ALL, ids=lambda sample: f"{sample['kind']} {sample['metadata']['name']}")
def test_patches_lead_from_an_object_to_what_was_drawn(sample: Obj) -> None:
    objects = ObjectDraw(random.Random(1))
    for _ in range(20):
        new = objects.changed(sample)
        assert apply_json_patch(sample, json_patch(sample, new)) == new
        if "null" not in json.dumps(new):
            assert apply_merge_patch(sample, merge_patch(sample, new)) == new


def test_every_kind_that_is_stored_is_drawn() -> None:
    drawn = {by_kind(one["apiVersion"], one["kind"]) for one in ALL}
    kinds = {kind for kind in all_kinds() if "update" in kind.verbs}
    missing = {(kind.group, kind.plural) for kind in kinds} - {(kind.group, kind.plural) for kind in drawn if kind}
    assert missing == {("certificates.k8s.io", "podcertificaterequests"), ("networking.k8s.io", "ipaddresses")}


def test_marks_stand_for_what_a_server_chose() -> None:
    service = {
        "kind": "Service",
        "metadata": {"uid": "u"},
        "spec": {"clusterIP": "10.0.0.9", "ports": [{"nodePort": 30001}]},
    }
    assert chosen(service) == [("uid", "u"), ("clusterIP", "10.0.0.9"), ("nodePort0", 30001)]
    side = object.__new__(Side)
    side.marks = {("uid", "/a"): "u", ("nodePort0", "/a"): "30001"}
    text = json.dumps({"uid": mark("uid", "/a"), "port": mark("#nodePort0", "/a")}, ensure_ascii=False)
    assert json.loads(side.filled(text)) == {"uid": "u", "port": 30001}


async def test_requests_of_a_seed_are_the_same_and_some_are_taken(api: Caller) -> None:
    await define(api)
    await api.create("/api/v1/namespaces", {"metadata": {"name": "n7"}})
    known: dict[str, Obj] = {}
    draw, again = RequestDraw(7, known), RequestDraw(7, known)
    codes = []
    for _ in range(60):
        request = draw.next()
        assert request == again.next()
        query = quote(request.query, safe="=&%,+:")
        content_type = request.headers.get("Content-Type", "")
        answer = await api(request.method, f"{request.path}?{query}", request.body, type=content_type)
        codes.append(answer.status)
        if request.method == "POST" and answer.status == 201 and "dryRun" not in query:
            made = answer.json
            if "uid" in made["metadata"]:
                known[f"{request.path}/{made['metadata']['name']}"] = made
    assert max(codes) < 504 and len([code for code in codes if code < 300]) >= 10 and len(set(codes)) > 3


def test_scenes_are_drawn_whole_and_the_same_again() -> None:
    scenes = RequestDraw(5, {}).scenes
    drawn = [scenes.request() for _ in range(400)]
    again = RequestDraw(5, {}).scenes
    assert drawn == [again.request() for _ in range(400)]
    told = {one.resource for one in drawn}
    assert told >= {f"scene/{name}" for name in ("pod", "budget", "eviction", "token", "review", "signing")}
    pods = [one.method for one in drawn if one.resource in ("scene/pod", "scene/budget", "scene/eviction")]
    assert pods[:5] == ["POST", "PATCH", "POST", "PATCH", "POST"]
    twice = [one.body for one in drawn if isinstance(one.body, bytes)]
    assert twice and all(json.loads(body)["metadata"] for body in twice)


def test_habits_of_clients_begin_with_their_objects_and_are_the_same_again() -> None:
    drawn, again = ([draw.request() for _ in range(600)] for draw in (Clients(5, "n5"), Clients(5, "n5")))
    assert drawn == again
    told = {one.resource for one in drawn}
    assert told >= {"deployments", "pods/resize", "pods/ephemeralcontainers", "services/status", "jobs", "events"}
    for path in ("services/changing", "pods/resized", "persistentvolumeclaims/grows"):
        about = [one for one in drawn if path.partition("/")[0] in one.path and "watch" not in one.query]
        first = next(one for one in about if one.path.endswith(path) or path.endswith(str(_name_in(one))))
        assert first.method == "POST"


def test_conversions_are_drawn_in_some_seeds_and_answered_well_or_wrongly() -> None:
    drawn = [Conversions(seed, f"n{seed}") for seed in range(60)]
    assert 2 < len([one for one in drawn if one.objects()]) < 30
    asked = [drawn[0].request() for _ in range(200)]
    assert {one.method for one in asked} == {"GET", "POST", "PATCH", "DELETE"}
    obj = {"apiVersion": "g/v1", "kind": "Converted", "metadata": {"name": "a"}, "spec": {"a": "x"}}
    for way, count in (("", 1), ("twice", 2), ("missing", 0)):
        given = {**obj, "spec": {"a": "x", "way": way}}
        request = {"uid": "u", "desiredAPIVersion": "g/v2", "objects": [given]}
        status, body = converted({"apiVersion": "v1", "kind": "ConversionReview", "request": request})
        made = json.loads(body)["response"]["convertedObjects"]
        assert status == 200 and len(made) == count and all(one["spec"]["b"] == "x" for one in made)
    assert given["spec"] == {"a": "x", "way": "missing"}


def _name_in(request: Request) -> Any:
    return request.body["metadata"]["name"] if request.method == "POST" and "metadata" in request.body else ""


def test_requests_in_somebodys_name_are_drawn_with_his_roles() -> None:
    draw = RequestDraw(3, {})
    kinds = {obj["kind"] for _, obj in draw.users.roles()}
    assert {"Role", "ClusterRole", "RoleBinding"} <= kinds
    drawn = [draw.next() for _ in range(200)]
    named = [one for one in drawn if one.headers.get("Impersonate-User", "").startswith("bob")]
    asked = {one.resource for one in drawn if one.resource.endswith("Review")}
    assert named and asked >= {"SelfSubjectAccessReview", "SubjectAccessReview", "SelfSubjectRulesReview"}
    accounts = [one for one in drawn if "Authorization" in one.headers]
    side = object.__new__(Side)
    side.marks = {("token", "n3"): "secret"}
    assert side.filled(accounts[0].headers["Authorization"]) == "Bearer secret"


def test_situations_begin_with_their_objects_and_are_the_same_again() -> None:
    drawn, again = ([draw.request() for _ in range(600)] for draw in (NodeSituations(5, "n5"), NodeSituations(5, "n5")))
    assert drawn == again
    told = {one.resource.partition("/")[2] for one in drawn if one.resource.startswith("situation/")}
    assert told >= {"exec", "proxy", "page", "namespace", "held", "class", "binding", "watch", "form", "owned", "node"}
    first = next(one for one in drawn if one.path == "/api/v1/namespaces/n5/resourcequotas")
    assert drawn[drawn.index(first) + 1 :].count(first) == 0


@pytest.mark.parametrize("sample", FULL, ids=lambda sample: f"{sample['kind']} {sample['metadata']['name']}")
def test_full_objects_of_devices_and_gangs_are_valid_in_every_version(sample: Obj) -> None:
    for version in ("v1", "v1beta1", "v1beta2"):
        given = in_version(sample, version)
        kind = known_kind(given["apiVersion"], given["kind"])
        placed = {**given["metadata"], **({"namespace": "n"} if kind.namespaced else {})}
        obj, unknown = strict_decode({**given, "metadata": placed}, kind)
        assert unknown == []
        complete = apply_defaults(obj, kind, _GATES, "2026-01-02T03:04:05Z")
        assert validate_create(complete, kind, _GATES, lambda expression: None) == []


def test_webhooks_are_drawn_with_answers_that_exist() -> None:
    drawn = [Webhooks(seed, "n", [Resource(ALL[0], "n")]).objects() for seed in range(200)]
    hooks = [hook for objects in drawn for _, one in objects for hook in one["webhooks"]]
    places = {hook["clientConfig"]["url"].rpartition("/")[2] for hook in hooks}
    assert len(places) > 20 and places <= {*ANSWERS, *RAW, "slow", "no-response"}
    assert any(not objects for objects in drawn)


async def test_reviews_are_taken_once_and_in_one_order() -> None:
    server = HookServer()
    try:
        async with aiohttp.ClientSession() as session:
            for place in ("warn", "allow"):
                review = {"apiVersion": "v1", "kind": "AdmissionReview", "request": {"uid": "u"}}
                async with session.post(f"{server.url}/{place}?timeout=1s", json=review, ssl=False) as answer:
                    told = await answer.json()
                assert told["response"] == {"uid": "u", **ANSWERS[place]}
        assert [one["path"] for one in server.taken()] == ["/allow", "/warn"] and server.taken() == []
    finally:
        server.close()


def test_one_event_of_a_watch_is_an_event_and_a_bookmark_has_metadata_alone() -> None:
    metadata = {"resourceVersion": "5", "annotations": {"k8s.io/initial-events-end": "true"}}
    bookmark = {"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {}}}
    (event,) = answered(bookmark).value
    assert event["object"] == {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}
    del metadata["annotations"]
    assert answered(bookmark).value == []


@pytest.mark.nightly
@pytest.mark.host
def test_random_requests_are_answered_as_by_kube_apiserver() -> None:
    program = shutil.which("kube-apiserver")
    if not program:
        pytest.skip("kube-apiserver 1.36 is not on PATH")
    seeds, folder = tonight(range(40)), Path(program).parent
    # Of 1,600 answers some fifteen differ in something that nobody has met yet: they are printed. A fault is in more.
    options = [f"--kubernetes={folder}", f"--seed={seeds.start}", f"--count={len(seeds)}", "--allowed=25"]
    assert main(options) == 0
