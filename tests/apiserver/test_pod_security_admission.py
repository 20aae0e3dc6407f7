"""Pod Security over the server: refusals, warnings, notes and counters; labels, exemptions, older pods."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from api_caller import PODS, USER, Caller, Clock, make_config, pod

from haru.apiserver.admission_options import AdmissionConfigError, load_admission, parse_admission
from haru.apiserver.server import ApiServer
from haru.storage import SqliteStore

Obj = dict[str, Any]
NAMESPACES = "/api/v1/namespaces"
MERGE = "application/merge-patch+json"
PREFIX = "pod-security.kubernetes.io/"
WORDS = (
    'violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true), '
    'hostPath volumes (volume "v"), privileged (container "main" must not set securityContext.privileged=true)'
)


def bad_spec() -> Obj:
    spec = pod("x")["spec"]
    spec["containers"][0]["securityContext"] = {"privileged": True}
    return {**spec, "hostNetwork": True, "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}


def bad_pod(name: str, **spec: Any) -> Obj:
    return {**pod(name), "spec": {**bad_spec(), **spec}}


def deployment(name: str) -> Obj:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": bad_spec()}
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template}}


async def label(api: Caller, name: str = "default", **labels: str | None) -> Any:
    named = {f"{PREFIX}{key.replace('_', '-')}": value for key, value in labels.items()}
    return await api("PATCH", f"{NAMESPACES}/{name}", {"metadata": {"labels": named}}, type=MERGE)


async def test_denied_pod_has_pod_security_message(api: Caller) -> None:
    assert (await label(api, enforce="baseline")).status == 200
    answer = await api("POST", PODS, bad_pod("a"))
    assert (answer.status, answer.json["reason"]) == (403, "Forbidden")
    assert answer.json["message"] == f'pods "a" is forbidden: {WORDS}'
    assert "warning" not in answer.headers
    await api.create(PODS, pod("b"))


async def test_namespace_without_labels_is_privileged(api: Caller) -> None:
    answer = await api("POST", PODS, bad_pod("a"))
    assert answer.status == 201 and "warning" not in answer.headers


async def test_warn_label_warns_without_refusing(api: Caller) -> None:
    await label(api, warn="baseline", warn_version="v1.20")
    answer = await api("POST", PODS, bad_pod("a"))
    assert answer.status == 201
    assert 'would violate PodSecurity \\"baseline:v1.20\\": host namespaces' in answer.headers["warning"]


async def test_workloads_get_warnings_and_are_never_refused(api: Caller) -> None:
    await label(api, enforce="baseline")
    answer = await api("POST", "/apis/apps/v1/namespaces/default/deployments", deployment("d"))
    assert answer.status == 201
    assert 'would violate PodSecurity \\"baseline:latest\\": host namespaces' in answer.headers["warning"]
    changed = await api(
        "PATCH", "/apis/apps/v1/namespaces/default/deployments/d", {"spec": {"replicas": 2}}, type=MERGE
    )
    assert changed.status == 200 and "would violate" in changed.headers["warning"]
    job = {"metadata": {"name": "j"}, "spec": {"template": {"spec": {**bad_spec(), "restartPolicy": "Never"}}}}
    answer = await api("POST", "/apis/batch/v1/namespaces/default/jobs", job)
    assert answer.status == 201 and "would violate" in answer.headers["warning"]


async def test_existing_pod_may_change_labels_but_not_image(api: Caller) -> None:
    await api.create(PODS, bad_pod("a"))
    await label(api, enforce="baseline")
    labelled = await api("PATCH", f"{PODS}/a", {"metadata": {"labels": {"a": "b"}}}, type=MERGE)
    assert labelled.status == 200
    image = {"spec": {"containers": [{"name": "main", "image": "other:1"}]}}
    answer = await api("PATCH", f"{PODS}/a", image, type="application/strategic-merge-patch+json")
    assert (answer.status, answer.json["message"]) == (403, f'pods "a" is forbidden: {WORDS}')


async def test_ephemeral_containers_are_checked(api: Caller) -> None:
    await api.create(PODS, pod("a"))
    await label(api, enforce="baseline")
    debug = {"name": "d", "image": "i", "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}}
    body = {"spec": {"ephemeralContainers": [debug]}}
    answer = await api("PATCH", f"{PODS}/a/ephemeralcontainers", body, type="application/strategic-merge-patch+json")
    assert answer.status == 403
    assert 'container "d" must not include "SYS_PTRACE"' in answer.json["message"]


async def test_invalid_pod_security_labels_are_refused(api: Caller) -> None:
    answer = await label(api, enforce="strict")
    assert (answer.status, answer.json["reason"]) == (422, "Invalid")
    assert answer.json["message"] == (
        'Namespace "default" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "strict": '
        "must be one of privileged, baseline, restricted"
    )
    made = {"metadata": {"name": "n", "labels": {f"{PREFIX}warn-version": "1.2"}}}
    assert (await api("POST", NAMESPACES, made)).status == 422


async def test_stricter_label_warns_about_existing_pods(api: Caller) -> None:
    for name in ("b", "a", "c"):
        await api.create(PODS, bad_pod(name))
    await api.create(PODS, pod("d", hostPID=True))
    answer = await label(api, enforce="baseline")
    assert answer.status == 200
    told = answer.headers["warning"]
    assert "d: host namespaces" in told
    dry = await api(
        "PATCH",
        f"{NAMESPACES}/default?dryRun=All",
        {"metadata": {"labels": {f"{PREFIX}enforce": "restricted"}}},
        type=MERGE,
    )
    assert dry.status == 200 and "warning" in dry.headers
    relaxed = await label(api, enforce="privileged")
    assert relaxed.status == 200 and "warning" not in relaxed.headers


async def test_pod_security_metrics_are_counted(api: Caller) -> None:
    await label(api, enforce="baseline", audit="restricted", audit_version="v1.99")
    await api("POST", PODS, bad_pod("a"))
    await api.create(PODS, pod("b"))
    lines = (await api("GET", "/metrics")).body.decode().splitlines()
    assert (
        'pod_security_evaluations_total{decision="deny",mode="enforce",policy_level="baseline",policy_version="latest",'
        'request_operation="create",resource="pod",subresource=""} 1'
    ) in lines
    assert (
        'pod_security_evaluations_total{decision="deny",mode="audit",policy_level="restricted",policy_version="future",'
        'request_operation="create",resource="pod",subresource=""} 2'
    ) in lines


CONFIG = """
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline, enforce-version: latest}
    exemptions:
      usernames: [jane]
      runtimeClasses: [kata]
      namespaces: [kube-system]
"""


@asynccontextmanager
async def serving(file: Path) -> AsyncIterator[Caller]:
    store = SqliteStore(":memory:")
    await store.start()
    clock = Clock()
    app = ApiServer(make_config(store, clock, admission=load_admission(file)))
    await app.start()
    yield Caller(app, clock)
    await app.stop()
    await store.stop()


async def test_admission_configuration_sets_defaults_and_exemptions(tmp_path: Path) -> None:
    file = tmp_path / "admission.yaml"
    file.write_text(CONFIG)
    async with serving(file) as api:
        assert (await api("POST", PODS, bad_pod("a"))).status == 403
        await api.create("/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": "kata"}, "handler": "kata"})
        assert (await api("POST", PODS, bad_pod("b", runtimeClassName="kata"))).status == 201
        assert (await api("POST", "/api/v1/namespaces/kube-system/pods", bad_pod("c"))).status == 201
        subject = {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}
        role = {"kind": "ClusterRole", "name": "system:aggregate-to-edit", "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"metadata": {"name": "jane"}, "subjects": [subject], "roleRef": role}
        await api.create("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", binding)
        assert (await api.as_(USER)("POST", PODS, bad_pod("d"))).status == 201
        told = await label(api, "kube-system", enforce="restricted")
        assert 'namespace \\"kube-system\\" is exempt from Pod Security' in told.headers["warning"]
        assert b"pod_security_exemptions_total" in (await api("GET", "/metrics")).body


def _changed(change: Callable[[Obj], None]) -> Obj:
    from haru.kube import yaml

    config = yaml.load(CONFIG)
    change(config)
    return config


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, "it must be an object with apiVersion: apiserver.config.k8s.io/v1"),
        (_changed(lambda c: c["plugins"][0].update(name="Nothing")), 'plugins[0].name: Invalid value: "Nothing"'),
        (
            _changed(lambda c: c["plugins"][0]["configuration"]["defaults"].update(enforce="x")),
            'defaults.enforce: Invalid value: "x": must be one of privileged, baseline, restricted',
        ),
        (
            _changed(lambda c: c["plugins"][0]["configuration"]["exemptions"].update(namespaces=["A"])),
            'plugins[0].configuration.exemptions.namespaces[0]: Invalid value: "A"',
        ),
        (
            _changed(lambda c: c["plugins"][0]["configuration"]["exemptions"].update(usernames=["a", "a"])),
            'exemptions.usernames[1]: Duplicate value: "a"',
        ),
        (_changed(lambda c: c["plugins"][0]["configuration"].update(more=1)), "configuration.more: unknown field"),
    ],
)
def test_invalid_admission_configuration_is_refused(config: Obj, told: str) -> None:
    with pytest.raises(AdmissionConfigError) as caught:
        parse_admission(config, Path())
    assert told in str(caught.value)


def test_missing_admission_configuration_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(AdmissionConfigError, match=r"--admission-control-config-file: .*/nowhere: No such file"):
        load_admission(tmp_path / "nowhere")
