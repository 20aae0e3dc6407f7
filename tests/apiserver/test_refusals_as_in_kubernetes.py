"""Refusals of kube-apiserver 1.36.2 that were read off it, side by side: texts, their order, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from api_caller import MAPS, PODS, Caller, config_map, pod

NAMESPACE = "/api/v1/namespaces/default"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


def causes(answer: Any) -> list[tuple[str, str]]:
    return [(cause["field"], cause["message"]) for cause in answer.json["details"]["causes"]]


def pod_with(container: Any = None, **spec: Any) -> Any:
    made = pod("p")
    made["spec"]["containers"][0] |= container or {}
    return {**made, "spec": {**made["spec"], **spec}}


SPREAD = {"maxSkew": 0, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 0}
REPEATED = {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
POLICY = {"resourceName": "foo", "restartPolicy": "NotRequired"}
CLAIMS = [{"name": "b", "resourceClaimName": "x"}, {"name": "a", "resourceClaimName": "x"}]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            pod_with({"resources": {"claims": [{"name": "z"}]}}),
            [
                'spec.containers[0].resources.claims[0]: Not found: "z": must be one of the names in '
                "pod.spec.resourceClaims which is empty"
            ],
        ),
        (
            pod_with({"resources": {"claims": [{"name": "z"}]}}, resourceClaims=CLAIMS),
            [
                'spec.containers[0].resources.claims[0]: Not found: "z": must be one of the names in '
                "pod.spec.resourceClaims: a, b"
            ],
        ),
        (
            pod_with({"terminationMessagePolicy": "Foo"}),
            [
                'spec.containers[0].terminationMessagePolicy: Unsupported value: "Foo": supported values: "File", '
                '"FallbackToLogsOnError"'
            ],
        ),
        (
            pod_with({"resizePolicy": [POLICY, POLICY]}),
            [
                'spec.containers[0].resizePolicy: Unsupported value: "foo": supported values: "cpu", "memory"',
                'spec.containers[0].resizePolicy[1]: Duplicate value: "foo"',
            ],
        ),
        (
            pod_with(tolerations=[{"key": "a", "effect": "Foo"}, {"key": "a", "operator": "Gt", "value": "1"}]),
            [
                'spec.tolerations[0].effect: Unsupported value: "Foo": supported values: "NoSchedule", '
                '"PreferNoSchedule", "NoExecute"',
                'spec.tolerations[1].operator: Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", '
                '"Gt"',
            ],
        ),
        (
            pod_with(topologySpreadConstraints=[SPREAD, REPEATED]),
            [
                "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
                "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "
                '"{a, DoNotSchedule}"',
                "spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: must be greater than zero",
            ],
        ),
        (
            pod_with(securityContext={"sysctls": [{"name": "a b", "value": "1"}]}),
            [
                'spec.securityContext.sysctls[0].name: Invalid value: "a b": must have at most 253 characters and '
                "match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
            ],
        ),
        (
            pod_with(dnsConfig={"searches": ["A B"]}),
            [
                'spec.dnsConfig.searches[0]: Invalid value: "A B": a lowercase RFC 1123 subdomain must consist of '
                "lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric "
                "character (e.g. 'example.com', regex used for validation is "
                "'_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"
            ],
        ),
    ],
)
async def test_pod_is_refused_in_the_words_and_order_of_kubernetes(api: Caller, body: Any, told: list[str]) -> None:
    answer = await api("POST", PODS, body)
    listed = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    assert (answer.status, answer.json["message"]) == (422, f'Pod "p" is invalid: {listed}')


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        (
            {"min": {"cpu": "1"}, "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}},
            ("spec.limits[0].default[cpu]", 'Invalid value: "1": min value 1 is greater than default value 500m'),
        ),
        (
            {"max": {"cpu": "1"}, "default": {"cpu": "2"}},
            ("spec.limits[0].default[cpu]", 'Invalid value: "1": default value 2 is greater than max value 1'),
        ),
    ],
)
async def test_limit_shows_the_value_that_is_broken(api: Caller, limit: Any, told: tuple[str, str]) -> None:
    body = {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", **limit}]}}
    assert causes(await api("POST", f"{NAMESPACE}/limitranges", body))[-1] == told


async def test_quota_scope_that_takes_no_operator_names_the_one_it_takes(api: Caller) -> None:
    selector = {"matchExpressions": [{"scopeName": "Terminating", "operator": "In", "values": ["a"]}]}
    body = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}, "scopeSelector": selector}}
    answer = await api("POST", f"{NAMESPACE}/resourcequotas", body)
    assert "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, " in answer.json["message"]


async def test_unknown_action_for_missing_parameters_is_told_those_that_there_are(api: Caller) -> None:
    reference = {"name": "a", "parameterNotFoundAction": "Foo"}
    body = {
        "metadata": {"name": "b"},
        "spec": {"policyName": "p", "validationActions": ["Deny"], "paramRef": reference},
    }
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    told = 'Unsupported value: "Foo": supported values: "Deny", "Allow"'
    assert causes(await api("POST", path, body)) == [("spec.paramRef.parameterNotFoundAction", told)]


def definition(names: Any = None, **version: Any) -> Any:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": schema, **version}]
    spec = {"group": "e.io", "scope": "Namespaced", "names": {"plural": "ws", "kind": "W", **(names or {})}}
    return {"metadata": {"name": "ws.e.io"}, "spec": {**spec, "versions": versions}}


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (definition(name="V1"), ["spec.versions[0].name", "spec.version"]),
        (definition({"listKind": "W", "categories": ["A"]}), ["spec.names.listKind", "spec.names.categories[0]"]),
    ],
)
async def test_definition_is_judged_in_the_order_of_kubernetes(api: Caller, body: Any, fields: list[str]) -> None:
    assert [field for field, _ in causes(await api("POST", DEFINITIONS, body))] == fields


@pytest.mark.parametrize(
    ("deprecated", "warning", "told"),
    [
        (True, "é\n", "must only contain printable UTF-8 characters; non-printable character found at index 2"),
        (True, "é" * 129, "must be <= 256 characters long"),
        (False, "\n", "can only be set for deprecated versions"),
    ],
)
async def test_warning_of_a_deprecated_version_can_be_shown(
    api: Caller, deprecated: bool, warning: str, told: str
) -> None:
    answer = await api("POST", DEFINITIONS, definition(deprecated=deprecated, deprecationWarning=warning))
    assert [message.rpartition('": ')[2] for _, message in causes(answer)] == [told]


async def test_path_of_replicas_starts_with_a_dot(api: Caller) -> None:
    scale = {"specReplicasPath": "spec", "statusReplicasPath": "x", "labelSelectorPath": "y"}
    answer = await api("POST", DEFINITIONS, definition(subresources={"scale": scale}))
    why = "must be a simple json path starting with ."
    assert [message for _, message in causes(answer)] == [f'Invalid value: "{path}": {why}' for path in scale.values()]


async def test_metadata_of_one_object_is_not_that_of_a_list(api: Caller) -> None:
    await api.create(MAPS, config_map("a"))
    one = await api("GET", f"{MAPS}/a", accept=METADATA_LIST)
    many = await api("GET", MAPS, accept=METADATA)
    asked = "you requested PartialObjectMetadata"
    assert [(answer.status, answer.json["reason"], answer.json["message"]) for answer in (one, many)] == [
        (406, "NotAcceptable", f"{asked}List, but the requested object is not a list (*core.ConfigMap)"),
        (406, "NotAcceptable", f"{asked}, but the requested object is a list (*core.ConfigMapList)"),
    ]


async def test_deleted_collection_is_answered_as_it_was_asked_for(api: Caller) -> None:
    await api.create(MAPS, config_map("a", {"k": "v"}))
    answer = await api("DELETE", MAPS, accept=METADATA_LIST)
    (item,) = (item for item in answer.json["items"] if item["metadata"]["name"] == "a")
    assert (answer.json["kind"], item["kind"], "data" in item) == (
        "PartialObjectMetadataList",
        "PartialObjectMetadata",
        False,
    )


async def test_name_of_an_object_that_is_going_is_taken_and_says_so(api: Caller) -> None:
    await api.create(MAPS, {"metadata": {"name": "a", "finalizers": ["a.b/c"]}})
    taken = await api("POST", MAPS, config_map("a"))
    await api("DELETE", f"{MAPS}/a")
    going = await api("POST", MAPS, config_map("a"))
    assert (taken.json["message"], going.json["message"]) == (
        'configmaps "a" already exists',
        'object is being deleted: configmaps "a" already exists',
    )


async def test_patch_with_too_many_operations_is_too_large(api: Caller) -> None:
    await api.create(MAPS, config_map("a"))
    operation = {"op": "add", "path": "/data", "value": {}}
    answer = await api("PATCH", f"{MAPS}/a", [operation] * 10_001, type=JSON_PATCH)
    why = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    assert (answer.status, answer.json["message"]) == (413, why)


@pytest.mark.parametrize(
    ("name", "options", "status", "message"),
    [
        ("", {}, 400, "name in URL does not match name in Eviction object"),
        ("other", {}, 400, "name in URL does not match name in Eviction object"),
        ("p", {"propagationPolicy": "Foo"}, 422, 'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsu'),
        (
            "p",
            {"preconditions": {"uid": "x"}},
            409,
            'Operation cannot be fulfilled on Pod "p": the UID in the precondition (x) does not match the UID in ',
        ),
        (
            "p",
            {"ignoreStoreReadErrorWithClusterBreakingPotential": True},
            422,
            'Eviction.policy "p" is invalid: deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential: Invalid ',
        ),
    ],
)
async def test_eviction_with_odd_options_is_refused(
    api: Caller, name: str, options: Any, status: int, message: str
) -> None:
    await api.create(PODS, pod("p"))
    body = {"metadata": {"name": name} if name else {}, "deleteOptions": options}
    answer = await api("POST", f"{PODS}/p/eviction", body)
    assert (answer.status, answer.json["message"][: len(message)]) == (status, message)
    assert "deletionTimestamp" not in (await api.get(f"{PODS}/p"))["metadata"]


INGRESS = "status.loadBalancer.ingress"
BALANCED = {"type": "LoadBalancer", "ports": [{"port": 80}]}
SCALED = {"maxReplicas": 1, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}


@pytest.mark.parametrize(
    ("path", "spec", "status", "fields"),
    [
        (
            BUDGETS,
            {"minAvailable": 1},
            {"disruptionsAllowed": -1, "currentHealthy": -1, "desiredHealthy": -1, "expectedPods": -1},
            [f"status.{name}" for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")],
        ),
        (
            BUDGETS,
            {"minAvailable": 1},
            {"conditions": [{"type": "x"}]},
            [f"status.conditions[0].{name}" for name in ("status", "lastTransitionTime", "reason")],
        ),
        (
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            SCALED,
            {"currentReplicas": -1, "desiredReplicas": -1},
            ["status.currentReplicas", "status.desiredReplicas"],
        ),
        (
            f"{NAMESPACE}/services",
            {"ports": [{"port": 80}]},
            {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}},
            [INGRESS],
        ),
        (
            f"{NAMESPACE}/services",
            BALANCED,
            {"loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ipMode": "Foo"}, {"hostname": "A B", "ipMode": "VIP"}]}},
            [f"{INGRESS}[0].ipMode", f"{INGRESS}[1].ipMode", f"{INGRESS}[1].hostname"],
        ),
    ],
)
async def test_status_that_contradicts_itself_is_refused(
    api: Caller, path: str, spec: Any, status: Any, fields: list[str]
) -> None:
    await api.create(path, {"metadata": {"name": "x"}, "spec": spec})
    answer = await api("PATCH", f"{path}/x/status", {"status": status}, type=MERGE)
    assert (answer.status, [field for field, _ in causes(answer)]) == (422, fields)


@pytest.mark.parametrize(("policy", "status"), [("Recursive", 201), ("MountOption", 422), ("", 422)])
async def test_labels_of_volumes_are_changed_by_mounting_only_where_the_gate_is_on(
    api: Caller, policy: str, status: int
) -> None:
    answer = await api("POST", PODS, pod_with(securityContext={"seLinuxChangePolicy": policy}))
    assert answer.status == status
    if status == 422:
        told = f'Unsupported value: "{policy}": supported values: "Recursive"'
        assert causes(answer) == [("spec.securityContext.seLinuxChangePolicy", told)]


@pytest.mark.parametrize(("stored", "status"), [("", 422), ("Recursive", 200)])
async def test_stored_policy_of_the_template_lets_volumes_be_changed_by_mounting(
    api: Caller, stored: str, status: int
) -> None:
    def deployment(policy: str) -> Any:
        spec = {**pod_with()["spec"], "securityContext": {"seLinuxChangePolicy": policy} if policy else {}}
        template = {"metadata": {"labels": {"app": "x"}}, "spec": spec}
        # An annotation of that name says nothing of it.
        metadata = {"name": "x", "annotations": {"seLinuxChangePolicy": "Recursive"}}
        return {"metadata": metadata, "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template}}

    path = "/apis/apps/v1/namespaces/default/deployments"
    await api.create(path, deployment(stored))
    answer = await api("PUT", f"{path}/x", deployment("MountOption"))
    assert answer.status == status


@pytest.mark.parametrize(("body", "status"), [({}, 400), ({"metadata": {"name": "other"}}, 400)])
async def test_scale_has_to_say_whose_it_is(api: Caller, body: Any, status: int) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("p")["spec"]}
    path = "/apis/apps/v1/namespaces/default/deployments"
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    await api.create(path, {"metadata": {"name": "d"}, "spec": spec})
    assert (await api("PUT", f"{path}/d/scale", body)).status == status
    patched = await api("PATCH", f"{path}/d/scale", {"metadata": {"name": "zz"}}, type=MERGE)
    assert patched.json["message"] == "the name of the object (zz) does not match the name on the URL (d)"


async def test_conditions_of_a_policy_are_judged(api: Caller) -> None:
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["nothing"]}]
    spec = {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "true"}]}
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    await api.create(path, {"metadata": {"name": "v"}, "spec": spec})
    conditions = {"status": {"conditions": [{"type": "A", "status": "True"}]}}
    answer = await api("PATCH", f"{path}/v/status", conditions, type=MERGE)
    places = [f"status.conditions[0].{name}" for name in ("lastTransitionTime", "reason")]
    assert [field for field, _ in causes(answer)] == places


async def test_kinds_behind_gates_that_are_off_are_not_served(api: Caller) -> None:
    for resource in ("clustertrustbundles", "podcertificaterequests"):
        assert (await api("GET", f"/apis/certificates.k8s.io/v1beta1/{resource}")).status == 404


DEFAULT = "spec.validation.openAPIV3Schema.properties[a].default"


@pytest.mark.parametrize(
    ("schema", "place", "told"),
    [
        ({"type": "integer", "default": "x"}, "", '"string":  in body must be of type integer: "string"'),
        ({"type": "integer", "default": 99, "maximum": 10}, "", "99:  in body should be less than or equal to 10"),
        (
            {"type": "object", "default": {"b": "x"}, "properties": {"b": {"type": "integer"}}},
            ".b",
            '"string": b in body must be of type integer: "string"',
        ),
        (
            {"type": "object", "default": {"q": "x"}, "additionalProperties": {"type": "integer"}},
            ".q",
            '"string": .q in body must be of type integer: "string"',
        ),
        (
            {"type": "array", "default": ["a", 1], "items": {"type": "string"}},
            ".[1]",
            '"integer": [1] in body must be of type string: "integer"',
        ),
    ],
)
async def test_default_that_is_no_value_of_its_schema_is_named_by_its_place_in_the_default(
    api: Caller, schema: Any, place: str, told: str
) -> None:
    whole = {"openAPIV3Schema": {"type": "object", "properties": {"a": schema}}}
    assert causes(await api("POST", DEFINITIONS, definition(schema=whole))) == [
        (f"{DEFAULT}{place}", f"Invalid value: {told}")
    ]


async def test_taint_that_comes_twice_is_told_whole(api: Caller) -> None:
    taint = {"key": "a", "effect": "NoExecute"}
    answer = await api("POST", "/api/v1/nodes", {"metadata": {"name": "n"}, "spec": {"taints": [taint, taint]}})
    told = 'Duplicate value: {"key":"a","effect":"NoExecute"}: taints must be unique by key and effect pair'
    assert causes(answer) == [("metadata.taints[1]", told)]


@pytest.mark.parametrize("amount", ["-1", "0"])
async def test_claim_for_no_storage_is_refused(api: Caller, amount: str) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": amount}}}
    answer = await api("POST", f"{NAMESPACE}/persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": spec})
    assert causes(answer) == [("spec.resources[storage]", f'Invalid value: "{amount}": must be greater than zero')]


async def test_selector_of_a_stateful_set_that_cannot_be_read_is_shown_without_a_word(api: Caller) -> None:
    selector = {"matchLabels": {"a": "b c"}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("p")["spec"]}
    spec = {"selector": selector, "template": template, "serviceName": "s"}
    path = "/apis/apps/v1/namespaces/default/statefulsets"
    answer = await api("POST", path, {"metadata": {"name": "s"}, "spec": spec})
    assert ("spec.selector", 'Invalid value: {"matchLabels":{"a":"b c"}}') in causes(answer)


async def test_effect_of_a_node_taint_is_told_those_that_there_are_in_their_order(api: Caller) -> None:
    taints = [{"key": "a", "effect": "Foo"}, {"key": "b"}]
    answer = await api("POST", "/api/v1/nodes", {"metadata": {"name": "n"}, "spec": {"taints": taints}})
    told = 'Unsupported value: "Foo": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"'
    assert causes(answer) == [("metadata.taints[0].effect", told), ("metadata.taints[1].effect", "Required value")]


async def test_key_of_three_parts_is_no_label_key(api: Caller) -> None:
    answer = await api("POST", MAPS, {"metadata": {"name": "m", "annotations": {"d/e/f": "v"}}})
    assert causes(answer)[0][1].startswith('Invalid value: "d/e/f": a valid label key must consist of ')


@pytest.mark.parametrize("left_out", [("serviceAccountName", "serviceAccount"), ("volumes",)])
async def test_pod_that_is_replaced_without_what_admission_added_is_refused(
    api: Caller, left_out: tuple[str, ...]
) -> None:
    """`kubectl replace` with the manifest that made the pod: only tolerations are added again."""
    stored = await api.create(PODS, pod("p"))
    spec = {name: value for name, value in stored["spec"].items() if name not in (*left_out, "tolerations")}
    if "volumes" in left_out:
        spec["containers"] = [{**spec["containers"][0], "volumeMounts": []}]
    answer = await api("PUT", f"{PODS}/p", {**stored, "spec": spec})
    assert answer.status == 422 and causes(answer)[-1][0] == "spec"
    replaced = {name: value for name, value in stored["spec"].items() if name != "tolerations"}
    assert (await api("PUT", f"{PODS}/p", {**stored, "spec": replaced})).status == 200


async def test_what_is_wrong_with_a_cron_job_is_told_in_the_order_of_its_schedule_template_and_limits(
    api: Caller,
) -> None:
    spec = {
        "schedule": "x",
        "startingDeadlineSeconds": -1,
        "timeZone": "Foo/Bar",
        "concurrencyPolicy": "Foo",
        "successfulJobsHistoryLimit": -1,
        "failedJobsHistoryLimit": -1,
        "jobTemplate": {"spec": {"template": {}}},
    }
    answer = await api("POST", "/apis/batch/v1/namespaces/default/cronjobs", {"metadata": {"name": "c"}, "spec": spec})
    template = "jobTemplate.spec.template.spec."
    assert [field.removeprefix("spec.") for field, _ in causes(answer)] == [
        "schedule",
        "startingDeadlineSeconds",
        "timeZone",
        "concurrencyPolicy",
        f"{template}containers",
        f"{template}restartPolicy",
        "successfulJobsHistoryLimit",
        "failedJobsHistoryLimit",
    ]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"reclaimPolicy": ""}, ["reclaimPolicy"]),
        ({"provisioner": "A b"}, ["provisioner", "provisioner"]),
        ({"parameters": {"": "x"}}, ["parameters", "parameters"]),
        ({"volumeBindingMode": ""}, ["volumeBindingMode", "volumeBindingMode"]),
    ],
)
async def test_changed_storage_class_is_judged_whole(api: Caller, change: Any, found: list[str]) -> None:
    classes = "/apis/storage.k8s.io/v1/storageclasses"
    await api.create(classes, {"metadata": {"name": "s"}, "provisioner": "a.b/c"})
    answer = await api("PATCH", f"{classes}/s", change, type=MERGE)
    assert [cause["field"] for cause in answer.json["details"]["causes"]] == found
