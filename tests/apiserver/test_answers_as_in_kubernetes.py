"""Answers that kube-apiserver 1.36.2 was seen to give to odd requests, which no recording has."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from api_caller import MAPS, PODS, Caller, Obj, config_map, pod
from custom_objects import DEFINITIONS, NAME, TRAININGS, define

from haru.kube.custom.types import custom_kinds

WIDGETS = "/apis/e.io/v1/namespaces/default/widgets"
NAMESPACE = "/api/v1/namespaces/default"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        (f"{MAPS}?watch=1&limit=x&timeoutSeconds=1", 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        (f"{MAPS}?continue=abc", 400, "invalid continue token: continue key is not valid: "),
        (f"{MAPS}?timeoutSeconds=x", 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        (f"{MAPS}?fieldSelector=zz%3D1", 400, '"zz" is not a known field selector: only "metadata.name", "metadata.n'),
        (f"{PODS}?fieldSelector=zz%3D1", 400, "field label not supported: zz"),
        (
            f"{MAPS}?resourceVersion=x",
            400,
            'invalid resource version: resourceVersion: Invalid value: "x": strconv.Par',
        ),
        (
            f"{MAPS}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            422,
            'ListOptions.meta.k8s.io "" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden'
            " unless resourceVersion is provided, sendInitialEvents: Forbidden: sendInitialEvents is forbidden for",
        ),
    ],
)
async def test_list_with_odd_options_is_refused(api: Caller, path: str, code: int, message: str) -> None:
    answer = await api("GET", path)
    assert (answer.status, answer.json["message"][: len(message)]) == (code, message)


@pytest.mark.parametrize(("text", "watched"), [("x", True), ("2", True), ("", True), ("0", False), ("FALSE", False)])
async def test_flag_is_true_unless_it_is_0_or_false(api: Caller, text: str, watched: bool) -> None:
    answer = await api("GET", f"{MAPS}?watch={text}&timeoutSeconds=1&resourceVersion=1")
    assert (b'"ConfigMapList"' not in answer.body) is watched


@pytest.mark.parametrize(
    ("preconditions", "why"),
    [
        ({"uid": "x"}, "the UID in the precondition (x) does not match the UID in record ("),
        (
            {"resourceVersion": "1"},
            "the ResourceVersion in the precondition (1) does not match the ResourceVersion in ",
        ),
    ],
)
async def test_deletion_of_another_object_is_a_conflict(api: Caller, preconditions: Any, why: str) -> None:
    await api.create(MAPS, config_map("a"))
    answer = await api("DELETE", f"{MAPS}/a", {"preconditions": preconditions})
    assert (answer.status, answer.json["details"]) == (409, {"name": "a", "kind": "ConfigMap"})
    assert answer.json["message"].startswith(f'Operation cannot be fulfilled on ConfigMap "a": {why}')


async def test_unknown_propagation_policy_is_told_those_that_there_are(api: Caller) -> None:
    answer = await api("DELETE", f"{MAPS}/a", {"propagationPolicy": "Foo"})
    (cause,) = answer.json["details"]["causes"]
    listed = 'supported values: "Foreground", "Background", "Orphan", "nil"'
    assert (answer.status, cause["message"]) == (422, f'Unsupported value: "Foo": {listed}')


async def test_binding_of_another_pod_is_a_conflict_of_pods(api: Caller) -> None:
    await api.create(PODS, pod("p"))
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p", "uid": "x"}, "target": {"name": "n"}}
    answer = await api("POST", f"{PODS}/p/binding", body)
    assert (answer.status, answer.json["details"]["kind"]) == (409, "pods")
    assert "StorageError: invalid object, Code: 4, Key: /registry/pods/default/p, " in answer.json["message"]


async def test_conflict_about_a_scale_tells_the_version_of_scales(api: Caller) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    await api.create(path, {"metadata": {"name": "d"}, "spec": spec})
    await api("PATCH", f"{path}/d/scale?fieldManager=one", {"spec": {"replicas": 3}}, type=MERGE)
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 4}}
    answer = await api("PATCH", f"{path}/d/scale?fieldManager=two", scale, type=APPLY)
    assert answer.status == 409
    assert 'conflict with "one" with subresource "scale" using autoscaling/v1: .spec.replicas' in answer.json["message"]
    negative = {**scale, "spec": {"replicas": -1}}
    assert (await api("PATCH", f"{path}/d/scale?fieldManager=two", negative, type=APPLY)).status == 409
    assert (await api("PATCH", f"{path}/d/scale?fieldManager=two&force=1", negative, type=APPLY)).status == 422


async def test_finalizing_a_namespace_writes_its_metadata(api: Caller) -> None:
    await api.create("/api/v1/namespaces", {"metadata": {"name": "n", "finalizers": ["a.b/c"]}})
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": {"a": "b"}}, "spec": {}}
    answer = await api("PUT", "/api/v1/namespaces/n/finalize", body)
    metadata = answer.json["metadata"]
    assert (answer.status, "finalizers" in metadata) == (200, False)
    assert metadata["labels"] == {"a": "b", "kubernetes.io/metadata.name": "n"}


async def test_finalizer_that_is_no_name_is_told_by_the_list(api: Caller) -> None:
    answer = await api("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}, "spec": {"finalizers": ["x"]}})
    assert [cause["field"] for cause in answer.json["details"]["causes"]] == ["spec.finalizers"]


async def test_token_cannot_be_bound_to_any_kind(api: Caller) -> None:
    await api.create(f"{NAMESPACE}/serviceaccounts", {"metadata": {"name": "a"}})
    spec = {"boundObjectRef": {"kind": "Pod", "apiVersion": "apps/v1", "name": "p"}}
    answer = await api("POST", f"{NAMESPACE}/serviceaccounts/a/token", {"spec": spec})
    assert (answer.status, answer.json["message"]) == (400, "cannot bind token to object of type apps/v1, Kind=Pod")


async def test_token_of_another_namespace_is_a_bad_request(api: Caller) -> None:
    await api.create(f"{NAMESPACE}/serviceaccounts", {"metadata": {"name": "a"}})
    answer = await api("POST", f"{NAMESPACE}/serviceaccounts/a/token", {"metadata": {"namespace": "x"}, "spec": {}})
    why = "the namespace of the provided object does not match the namespace sent on the request"
    assert (answer.status, answer.json["message"]) == (400, why)


async def test_table_with_unknown_rows_is_refused(api: Caller) -> None:
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    answer = await api("GET", f"{MAPS}?includeObject=Foo", accept=accept)
    why = "includeObject: Invalid value: \"Foo\": must be 'Metadata', 'Object', 'None', or empty"
    assert (answer.status, answer.json["message"]) == (400, f"Unable to convert to Table as requested: {why}")


@pytest.fixture
async def widgets(api: Caller) -> Caller:
    """A server that serves Widgets, whose list is a set."""
    names = {"plural": "widgets", "kind": "Widget"}
    items = {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}
    schema = {"type": "object", "properties": {"items": items}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "e.io", "scope": "Namespaced", "names": names, "versions": [version]}
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    await api.create(definitions, {"metadata": {"name": "widgets.e.io"}, "spec": spec})
    await api.create(WIDGETS, {"apiVersion": "e.io/v1", "kind": "Widget", "metadata": {"name": "u"}})
    return api


@pytest.mark.parametrize(
    ("named", "code", "message"),
    [
        ({}, 400, "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing"),
        (
            {"apiVersion": "e.io/v1"},
            400,
            "the object provided is unrecognized (must be of type Widget): Object 'Kind' ",
        ),
        ({"kind": "Widget"}, 400, "the API version in the data () does not match the expected API version (e.io/v1)"),
        (
            {"apiVersion": "e.io/v1", "kind": "Z"},
            422,
            'Z.e.io "n" is invalid: kind: Invalid value: "Z": must be Widget',
        ),
    ],
)
async def test_custom_resource_says_of_what_kind_it_is(widgets: Caller, named: Any, code: int, message: str) -> None:
    answer = await widgets("POST", WIDGETS, {**named, "metadata": {"name": "n"}})
    assert (answer.status, answer.json["message"][: len(message)]) == (code, message)


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (
            {"apiVersion": "e.io/v2"},
            'Widget.e.io "u" is invalid: apiVersion: Invalid value: "e.io/v2": must be e.io/v1',
        ),
        ({"kind": "Z"}, 'Z.e.io "u" is invalid: kind: Invalid value: "Z": must be Widget'),
    ],
)
async def test_patch_of_custom_resource_leaves_its_kind(widgets: Caller, patch: Any, message: str) -> None:
    answer = await widgets("PATCH", f"{WIDGETS}/u", patch, type=MERGE)
    assert (answer.status, answer.json["message"]) == (422, message)


async def test_item_of_a_set_that_is_there_three_times_is_told_once(widgets: Caller) -> None:
    body = {"apiVersion": "e.io/v1", "kind": "Widget", "metadata": {"name": "n"}, "items": ["a", "a", "a", "b", "b"]}
    answer = await widgets("POST", WIDGETS, body)
    assert [cause["field"] for cause in answer.json["details"]["causes"]] == ["items[1]", "items[4]"]


@pytest.mark.parametrize(("service", "status"), [("1abc", 201), ("a.b", 422)])
async def test_ingress_leads_to_a_service_whose_name_begins_with_a_digit(
    api: Caller, service: str, status: int
) -> None:
    """As such a Service may be there: RelaxedServiceNameValidation."""
    spec = {"defaultBackend": {"service": {"name": service, "port": {"number": 1}}}}
    path = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
    assert (await api("POST", path, {"metadata": {"name": "i"}, "spec": spec})).status == status


async def test_refused_strategic_patch_shows_the_patch_and_not_the_whole_object(api: Caller) -> None:
    await api.create(PODS, pod("p"))
    patch = {"spec": {"activeDeadlineSeconds": "a"}}
    answer = await api("PATCH", f"{PODS}/p", patch, type="application/strategic-merge-patch+json")
    (cause,) = answer.json["details"]["causes"]
    shown = 'Invalid value: "map[spec:map[activeDeadlineSeconds:a]]": '
    assert (answer.status, cause["message"][: len(shown)]) == (422, shown)


async def test_log_is_asked_for_since_a_time_or_for_some_seconds(api: Caller) -> None:
    await api.create(PODS, pod("p"))
    answer = await api("GET", f"{PODS}/p/log?sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z")
    why = "[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"
    assert (answer.status, answer.json["message"]) == (422, f'PodLogOptions "p" is invalid: {why}')


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("batch/v1/jobs?fieldSelector=a%3Db", 'field label "a" not supported for Job'),
        (
            "resource.k8s.io/v1/resourceslices?fieldSelector=metadata.namespace%3Db",
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: metadata.namespace",
        ),
        (
            "certificates.k8s.io/v1/certificatesigningrequests?fieldSelector=metadata.namespace%3Db",
            "field label not supported: metadata.namespace",
        ),
    ],
)
async def test_kind_that_cannot_be_selected_by_a_field_says_so(api: Caller, path: str, why: str) -> None:
    answer = await api("GET", f"/apis/{path}")
    assert (answer.status, answer.json["message"]) == (400, why)


async def test_versions_of_the_core_group_tell_the_address_that_is_listened_on(api: Caller) -> None:
    api.app.components.address.listening = ("127.0.0.1", 7443)
    (place,) = (await api.get("/api"))["serverAddressByClientCIDRs"]
    assert place["serverAddress"] == "127.0.0.1:7443"


async def test_address_with_leading_zeros_is_told_as_such(api: Caller) -> None:
    answer = await api("POST", PODS, pod("p", hostAliases=[{"ip": "1.2.3.04", "hostnames": ["x"]}]))
    (cause,) = answer.json["details"]["causes"]
    assert (answer.status, cause["message"]) == (422, 'Invalid value: "1.2.3.04": must not have leading 0s')


async def test_addresses_of_a_service_with_leading_zeros_are_told_as_such(api: Caller) -> None:
    spec = {"ports": [{"port": 80}], "externalIPs": ["1.2.3.04", "1.2.3"]}
    answer = await api("POST", f"{NAMESPACE}/services", {"metadata": {"name": "s"}, "spec": spec})
    first, second = (cause["message"] for cause in answer.json["details"]["causes"])
    assert (answer.status, first) == (422, 'Invalid value: "1.2.3.04": must not have leading 0s')
    assert second.startswith('Invalid value: "1.2.3": must be a valid IP address, (e.g. ')


async def test_volume_with_a_deprecated_annotation_is_warned_of(api: Caller) -> None:
    key = "volume.beta.kubernetes.io/mount-options"
    spec = {"capacity": {"storage": "1"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
    body = {"metadata": {"name": "v", "annotations": {key: "x"}}, "spec": spec}
    answer = await api("POST", "/api/v1/persistentvolumes", body)
    why = 'deprecated since v1.31; use \\"mountOptions\\" attribute instead'
    assert (answer.status, answer.headers["warning"]) == (201, f'299 - "metadata.annotations[{key}]: {why}"')


@pytest.mark.parametrize(
    ("deprecated", "others", "told"),
    [
        ("v1beta1", {"v1": {}}, "e.io/v1beta1 Widget is deprecated; use e.io/v1 Widget"),
        ("v1beta1", {"v2": {}, "v1": {}, "foo": {}}, "e.io/v1beta1 Widget is deprecated; use e.io/v2 Widget"),
        ("v1", {"v1beta1": {}, "v2": {"deprecated": True}, "v3": {"served": False}}, "e.io/v1 Widget is deprecated"),
    ],
)
def test_deprecated_version_of_a_definition_names_the_newest_better_one(
    deprecated: str, others: dict[str, Any], told: str
) -> None:
    versions = [{"name": deprecated, "served": True, "storage": True, "deprecated": True}]
    versions += [{"name": name, "served": True, **rest} for name, rest in others.items()]
    names = {"plural": "widgets", "kind": "Widget"}
    spec = {"group": "e.io", "scope": "Namespaced", "names": names, "versions": versions}
    kinds = custom_kinds({"metadata": {"name": "widgets.e.io"}, "spec": spec, "status": {"acceptedNames": names}})
    assert {kind.version: kind.custom.warning for kind in kinds if kind.custom}[deprecated] == told


async def test_rules_of_masters_are_those_of_their_roles(api: Caller) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    status = (await api("POST", path, {"spec": {"namespace": "default"}})).json["status"]
    assert [rule["nonResourceURLs"] for rule in status["nonResourceRules"]].count(["*"]) == 1


@pytest.mark.parametrize(
    ("text", "profile", "warned"),
    [
        ("unconfined", {"type": "Unconfined"}, True),
        ("runtime/default", None, False),  # as the whole pod has it
        ("localhost/x", {"type": "Localhost", "localhostProfile": "x"}, True),
    ],
)
async def test_apparmor_annotation_of_a_new_pod_becomes_the_field(
    api: Caller, text: str, profile: Any, warned: bool
) -> None:
    key = "container.apparmor.security.beta.kubernetes.io/main"
    new = pod("p", securityContext={"appArmorProfile": {"type": "RuntimeDefault"}})
    new["metadata"]["annotations"] = {key: text}
    answer = await api("POST", PODS, new)
    context = answer.json["spec"]["containers"][0].get("securityContext") or {}
    assert (answer.status, context.get("appArmorProfile")) == (201, profile)
    why = f'metadata.annotations[{key}]: deprecated since v1.30; use the \\"appArmorProfile\\" field instead'
    assert answer.headers.get("warning") == (f'299 - "{why}"' if warned else None)


async def test_log_of_a_pod_on_a_node_that_does_not_exist_is_not_found(api: Caller) -> None:
    await api.create(PODS, pod("p", nodeName="gone"))
    answer = await api("GET", f"{PODS}/p/log")
    assert (answer.status, answer.json["message"]) == (404, 'pods "gone" not found')
    assert answer.json["details"] == {"name": "gone", "kind": "pods"}


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ({"orphanDependents": False}, ["foregroundDeletion"]),
        ({"orphanDependents": True}, ["orphan"]),
        ({"propagationPolicy": "Foreground"}, ["foregroundDeletion"]),
        ({}, []),
    ],
)
async def test_namespace_is_deleted_in_the_foreground_where_others_are_not(api: Caller, policy: Obj, left: Any) -> None:
    await api.create("/api/v1/namespaces", {"metadata": {"name": "gone"}})
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"], **policy}
    answer = await api("DELETE", "/api/v1/namespaces/gone", options)
    assert answer.json["metadata"].get("finalizers", []) == left


async def test_definition_is_deleted_in_one_way(api: Caller) -> None:
    await define(api)
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"], "propagationPolicy": "Foreground"}
    answer = await api("DELETE", f"{DEFINITIONS}/{NAME}", options)
    assert answer.json["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]


async def test_list_of_custom_resources_says_that_it_does_not_go_on(api: Caller) -> None:
    await define(api)
    for path in (TRAININGS, f"{TRAININGS}?fieldSelector=metadata.name%3Dx"):
        assert (await api("GET", path)).json["metadata"]["continue"] == ""
    partial = {"accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
    assert "continue" not in (await api("GET", TRAININGS, **partial)).json["metadata"]


async def test_empty_metadata_of_a_review_is_left_out(api: Caller) -> None:
    metadata: Obj = {"name": "", "generateName": "", "labels": {}, "annotations": {}, "namespace": "x"}
    review: Obj = {"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "metadata": metadata}
    review["spec"] = {"token": "x"}
    answer = await api("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
    assert list(answer.json["metadata"]) == ["managedFields"]
    assert list(answer.json["metadata"]["managedFields"][0]["fieldsV1"]) == ["f:spec"]


async def test_scale_is_shown_as_the_client_wants_it(api: Caller) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    path = "/apis/apps/v1/namespaces/default/deployments"
    made = await api.create(path, {"metadata": {"name": "d"}, "spec": spec})
    partial = {"accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
    answer = await api("GET", f"{path}/d/scale", **partial)
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    assert answer.json["kind"] == "PartialObjectMetadata"
    assert answer.json["metadata"] == {name: made["metadata"][name] for name in names}


async def test_list_of_the_future_waits_for_it_but_for_events(api: Caller) -> None:
    answer = await asyncio.wait_for(api("GET", f"{NAMESPACE}/events?resourceVersion=99999999"), 2)
    assert answer.status == 504 and "retryAfterSeconds" not in answer.json["details"]
    now = int((await api.get(MAPS))["metadata"]["resourceVersion"])
    for more in ("&resourceVersionMatch=Exact", "&limit=1"):
        asked = asyncio.create_task(api("GET", f"{MAPS}?resourceVersion={now + 1}{more}"))
        await asyncio.sleep(0.1)
        now = int((await api.create(MAPS, config_map(f"at{now}")))["metadata"]["resourceVersion"])
        assert (await asked).status == 200
    late = await api("GET", f"{MAPS}?resourceVersion={now + 99}&limit=1")
    assert late.status == 504 and late.json["details"]["retryAfterSeconds"] == 1


async def test_event_at_a_version_that_is_none_is_a_bad_request(api: Caller) -> None:
    answer = await api("GET", f"{NAMESPACE}/events/x?resourceVersion=x")
    assert (answer.status, answer.json["message"][:25]) == (400, "invalid resource version:")


async def test_writer_is_warned_of_repeated_owners_even_if_he_was_too_late(api: Caller) -> None:
    await api.create(MAPS, config_map("a"))
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "u"}
    body = {"metadata": {"ownerReferences": [owner, owner], "resourceVersion": "1"}}
    answer = await api("PATCH", f"{MAPS}/a", body, type=MERGE)
    assert answer.status == 409 and "contains duplicate entries" in answer.headers["warning"]


async def test_object_that_goes_at_once_is_shown_as_it_was(api: Caller) -> None:
    path = "/apis/resource.k8s.io/v1/deviceclasses"
    await api.create(path, {"metadata": {"name": "c", "finalizers": ["orphan"]}, "spec": {}})
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
    assert (await api("DELETE", f"{path}/c", options)).json["metadata"]["finalizers"] == ["orphan"]
    assert (await api("GET", f"{path}/c")).status == 404


async def test_ephemeral_containers_of_a_pod_come_with_its_own_metadata(api: Caller) -> None:
    await api.create(PODS, pod("p"))
    body = {"metadata": {"deletionGracePeriodSeconds": 5}}
    answer = await api("PATCH", f"{PODS}/p/ephemeralcontainers", body, type=MERGE)
    assert (answer.status, answer.json["details"]["causes"][0]["field"]) == (422, "metadata.deletionGracePeriodSeconds")


async def test_owners_of_a_version_that_the_kind_has_not_are_dropped(api: Caller) -> None:
    entry = {"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:handler": {}}}
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    await api.create(path, {"metadata": {"name": "c"}, "handler": "h"})
    for version, left in (("v1", []), ("node.k8s.io/v1", ["m"])):
        body = {"metadata": {"managedFields": [{**entry, "apiVersion": version}]}}
        answer = await api("PATCH", f"{path}/c", body, type=MERGE)
        assert [one["manager"] for one in answer.json["metadata"].get("managedFields", [])] == left


async def test_discovery_in_a_form_that_is_not_there_is_not_acceptable(api: Caller) -> None:
    for accept in ("text/html", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"):
        for path in ("/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1"):
            assert (await api("GET", path, accept=accept)).status == 406
            assert (await api("GET", path, accept=f"{accept},application/json")).status == 200


async def test_watch_with_rows_that_cannot_be_is_refused_before_it_begins(api: Caller) -> None:
    answer = await api("GET", f"{MAPS}?watch=1&includeObject=x", accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")


async def test_addresses_of_a_service_are_not_changed_behind_its_address(api: Caller) -> None:
    path = f"{NAMESPACE}/services"
    await api.create(path, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    answer = await api("PATCH", f"{path}/s", {"spec": {"clusterIPs": ["10.96.9.9"]}}, type=MERGE)
    assert answer.status == 422 and "first value must match `clusterIP`" in answer.json["message"]


async def test_status_of_a_review_is_its_writers(api: Caller) -> None:
    review = {"spec": {"token": "x"}, "status": {"error": "y", "audiences": ["z"]}}
    answer = await api("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
    fields = answer.json["metadata"]["managedFields"][0]["fieldsV1"]
    assert fields["f:status"] == {"f:audiences": {}, "f:error": {}}


async def test_version_of_a_patch_is_looked_at_before_its_uid(api: Caller) -> None:
    await api.create(MAPS, config_map("a"))
    for version, status in (("1", 409), ("", 422)):
        body = {"metadata": {"uid": "x", "resourceVersion": version or None}}
        assert (await api("PATCH", f"{MAPS}/a", body, type=MERGE)).status == status


async def test_bytes_may_be_a_list_of_numbers(api: Caller) -> None:
    data = {"a": [], "b": [104, 105]}
    made = await api.create(f"{NAMESPACE}/secrets", {"metadata": {"name": "s"}, "data": data})
    assert made["data"] == {"a": "", "b": "aGk="}
    refused = await api("POST", f"{NAMESPACE}/secrets", {"metadata": {"name": "t"}, "data": {"a": [256]}})
    assert refused.status == 400


async def test_new_service_with_addresses_alone_is_refused(api: Caller) -> None:
    spec = {"ports": [{"port": 80}], "clusterIPs": ["10.96.9.9"]}
    answer = await api("POST", f"{NAMESPACE}/services", {"metadata": {"name": "s"}, "spec": spec})
    assert answer.status == 422 and "must be empty when `clusterIP` is not specified" in answer.json["message"]


async def test_service_of_one_family_with_two_is_told_of_its_policy_alone(api: Caller) -> None:
    spec = {"ports": [{"port": 80}], "ipFamilies": ["IPv4", "IPv6"]}
    answer = await api("POST", f"{NAMESPACE}/services", {"metadata": {"name": "s"}, "spec": spec})
    assert [one["field"] for one in answer.json["details"]["causes"]] == ["spec.ipFamilyPolicy"]


@pytest.mark.parametrize("kind", ["MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicyBinding"])
async def test_binding_of_a_policy_that_loses_its_policy_is_refused(api: Caller, kind: str) -> None:
    path = f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}s"
    spec: Obj = {"policyName": "p"} | ({} if kind.startswith("M") else {"validationActions": ["Deny"]})
    await api.create(path, {"metadata": {"name": "b"}, "spec": spec})
    body = {"spec": {"policyName": None, "paramRef": {"name": "x", "parameterNotFoundAction": "Deny"}}}
    answer = await api("PATCH", f"{path}/b", body, type=MERGE)
    assert (answer.status, answer.json["details"]["causes"][0]["field"]) == (422, "spec.policyName")
