"""Changes of pods by policies after which defaults and built-in plugins need not run again."""

from __future__ import annotations

from typing import Any

import pytest
from api_caller import Caller

from haru.apiserver.admission.reinvocation import POD_SPEC, nothing_new
from haru.kube.cloning import clone
from haru.kube.defaulting import apply_defaults, stays_complete
from haru.kube.defaulting.pods import FREE, SET
from haru.kube.kinds import Kind, known_kind, lookup
from haru.kube.schema import Field, message_type

Obj = dict[str, Any]

SPEC = message_type("io.k8s.api.core.v1.PodSpec")
SAMPLES: Obj = {
    "string": "word",
    "bool": True,
    "int32": 7,
    "int64": 7,
    "double": 1.5,
    "quantity": "3",
    "bytes": "",
    "intOrString": 8,
    "time": "2026-01-02T03:04:05Z",
    "microTime": "2026-01-02T03:04:05.000000Z",
    "json": {},
    "fieldsV1": {},
    "stringList": ["word"],
}
CONTAINER: Obj = {"name": "main", "image": "busybox"}
PODS: dict[str, Obj] = {
    "small": {"spec": {"containers": [CONTAINER]}},
    "of a class": {"spec": {"containers": [CONTAINER], "priorityClassName": "high", "runtimeClassName": "sandboxed"}},
    "of an account": {
        "spec": {"containers": [CONTAINER], "initContainers": [CONTAINER], "serviceAccountName": "robot"}
    },
    "on the host": {
        "spec": {
            "containers": [{**CONTAINER, "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1"}}}],
            "hostNetwork": True,
            "volumes": [{"name": "v"}, {"name": "c", "configMap": {"name": "m"}}],
        }
    },
    "a mirror": {
        "metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}},
        "spec": {"containers": [CONTAINER], "nodeName": "n"},
    },
}
CLUSTER: list[Obj] = [
    {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": "default"},
        "spec": {"limits": [{"type": "Container", "default": {"memory": "1Gi"}, "defaultRequest": {"cpu": "10m"}}]},
    },
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 7,
        "preemptionPolicy": "Never",
    },
    {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "sandboxed"},
        "handler": "h",
        "overhead": {"podFixed": {"cpu": "1"}},
        "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "t"}]},
    },
    {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "robot", "namespace": "default"},
        "imagePullSecrets": [{"name": "s"}],
    },
]


def sample(field: Field, depth: int = 3) -> Any:
    """A value with everything in it."""
    if field.is_message:
        fields = message_type(field.type).fields.items() if depth else ()
        one: Any = {name: sample(inner, depth - 1) for name, inner in fields}
    else:
        one = SAMPLES[field.type]
    return [one] if field.container == "list" else {"key": one} if field.container == "map" else one


def pods_kind() -> Kind:
    found = lookup("", "v1", "pods")
    assert found is not None
    return found


def with_member(pod: Obj, name: str, value: Any) -> Obj:
    """The pod with another member in its spec, sharing all else; without it for None."""
    spec = {key: each for key, each in pod["spec"].items() if key != name}
    return {**pod, "spec": spec if value is None else {**spec, name: value}}


@pytest.mark.parametrize("which", PODS)
async def test_skipped_plugins_would_change_nothing(api: Caller, which: str) -> None:
    loopback, kind = api.app.components.loopback, pods_kind()
    gates, admission = api.app.objects.gates, loopback.admission
    for each in CLUSTER:
        await loopback.ensure(clone(each))
    given = clone(PODS[which])
    given["metadata"] = {"name": "p", "namespace": "default", **given.get("metadata", {})}
    pod = apply_defaults({"apiVersion": "v1", "kind": "Pod", **given}, kind, gates)
    call = loopback.call(pod, "create", named=False)
    await admission.admit_create(call, pod)
    done = clone(pod)
    assert apply_defaults(clone(done), kind, gates) == done, "plugins leave nothing for defaults"
    for name in POD_SPEC | FREE | SET:
        changes = [sample(SPEC.fields[name])] + ([None] if name not in SET else [])
        for changed in (with_member(done, name, value) for value in changes):
            if name in FREE | SET:
                assert stays_complete(changed, done, kind), name
                assert apply_defaults(clone(changed), kind, gates) == changed, name
            if name in POD_SPEC:
                assert nothing_new(call, done, changed), name
                again = clone(changed)
                await admission.admit_create(call, again)
                assert again == changed, name
    labelled = {**done, "metadata": {**done["metadata"], "labels": {"a": "b"}}}
    assert nothing_new(call, done, labelled) and stays_complete(labelled, done, kind)


async def test_changed_members_are_examined_again(api: Caller) -> None:
    loopback, kind = api.app.components.loopback, pods_kind()
    gates = api.app.objects.gates
    pod: Obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}}
    pod = apply_defaults({**pod, **clone(PODS["small"])}, kind, gates)
    call = loopback.call(pod, "create", named=False)
    for name, field in SPEC.fields.items():
        value = sample(field, 1)
        changed, same = with_member(pod, name, value), value is pod["spec"].get(name)
        assert nothing_new(call, pod, changed) is (same or name in POD_SPEC), name
        assert stays_complete(changed, pod, kind) is (same or name in FREE | SET), name
    for name in SET:
        gone = with_member(pod, name, None)
        assert not stays_complete(gone, pod, kind) and not stays_complete(with_member(pod, name, ""), pod, kind)
    mirror = {**pod["metadata"], "annotations": {"kubernetes.io/config.mirror": "x"}}
    assert not nothing_new(call, pod, {**pod, "metadata": mirror})
    assert not nothing_new(call, pod, {**pod, "metadata": {**pod["metadata"], "finalizers": ["f"]}})
    assert not stays_complete({"kind": "Secret"}, {"kind": "Secret", "type": "Opaque"}, kind), "a member that went"


def test_pod_of_which_the_status_alone_changed_lacks_no_default() -> None:
    """Its type is an equal text, but not the same one: the request has texts of its own."""
    kind = known_kind("v1", "Pod")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}, "status": {}}
    changed = {**pod, "apiVersion": "/v1"[1:], "kind": "/Pod"[1:], "status": {"phase": "Running"}}
    assert stays_complete(changed, pod, kind)
