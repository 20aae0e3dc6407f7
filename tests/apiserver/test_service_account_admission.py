"""ServiceAccounts of pods: tokens, secrets, mirror pods."""

from __future__ import annotations

from typing import Any

import pytest
from api_caller import PODS, Caller, pod

Obj = dict[str, Any]
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
PATH = "/var/run/secrets/kubernetes.io/serviceaccount"


def mounts(made: Obj, member: str = "containers") -> list[list[str]]:
    return [[mount["mountPath"] for mount in c.get("volumeMounts") or ()] for c in made["spec"][member]]


async def test_containers_get_service_account_token_volume(api: Caller) -> None:
    made = await api.create(PODS, pod("a", initContainers=[{"name": "i", "image": "x"}]))
    (volume,) = made["spec"]["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    token, authority, namespace = volume["projected"]["sources"]
    assert volume["projected"]["defaultMode"] == 420
    assert token == {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    assert authority == {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    assert namespace["downwardAPI"]["items"][0]["fieldRef"]["fieldPath"] == "metadata.namespace"
    assert mounts(made) == mounts(made, "initContainers") == [[PATH]]
    (mount,) = made["spec"]["containers"][0]["volumeMounts"]
    assert mount == {"name": volume["name"], "readOnly": True, "mountPath": PATH}
    other = await api.create(PODS, pod("b", initContainers=[{"name": "i", "image": "x"}]))
    assert other["spec"]["volumes"] == made["spec"]["volumes"], "pods that are alike stay alike"


@pytest.mark.parametrize(
    ("of_account", "of_pod", "mounted"),
    [(None, None, True), (False, None, False), (False, True, True), (True, False, False), (None, False, False)],
)
async def test_automount_setting_of_pod_overrides_account(
    api: Caller, of_account: bool | None, of_pod: bool | None, mounted: bool
) -> None:
    said = {} if of_account is None else {"automountServiceAccountToken": of_account}
    await api.create(ACCOUNTS, {"metadata": {"name": "robot"}, **said})
    more = {} if of_pod is None else {"automountServiceAccountToken": of_pod}
    made = await api.create(PODS, pod("a", serviceAccountName="robot", **more))
    assert bool(made["spec"].get("volumes")) == mounted == (mounts(made) == [[PATH]])


async def test_existing_mount_at_token_path_is_kept(api: Caller) -> None:
    own = {"name": "v", "mountPath": PATH}
    given = pod("a", volumes=[{"name": "v", "emptyDir": {}}])
    given["spec"]["containers"][0]["volumeMounts"] = [own]
    made = await api.create(PODS, given)
    assert [volume["name"] for volume in made["spec"]["volumes"]] == ["v"] and mounts(made) == [[PATH]]


async def test_pod_update_without_token_volume_is_refused(api: Caller) -> None:
    stored = await api.create(PODS, pod("a"))
    assert (await api("PUT", f"{PODS}/a", pod("a"))).status == 422
    stored["metadata"]["labels"] = {"a": "b"}
    answer = await api("PUT", f"{PODS}/a", stored)
    assert answer.status == 200, answer.body
    assert mounts(answer.json) == [[PATH]] and answer.json["metadata"]["labels"] == {"a": "b"}


async def test_image_pull_secrets_come_from_service_account(api: Caller) -> None:
    await api.create(ACCOUNTS, {"metadata": {"name": "robot"}, "imagePullSecrets": [{"name": "p"}]})
    made = await api.create(PODS, pod("a", serviceAccountName="robot"))
    assert made["spec"]["imagePullSecrets"] == [{"name": "p"}]
    made = await api.create(PODS, pod("b", serviceAccountName="robot", imagePullSecrets=[{"name": "own"}]))
    assert made["spec"]["imagePullSecrets"] == [{"name": "own"}]


SECRET = (
    'referencing secret.secretName="other" is not allowed because service account robot does not reference that secret'
)


def using(**container: Any) -> Obj:
    return {"containers": [{"name": "main", "image": "x", **container}]}


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (
            {"volumes": [{"name": "v", "secret": {"secretName": "other"}}]},
            'volume with secret.secretName="other" is not allowed because service account robot does not reference '
            "that secret",
        ),
        (
            using(env=[{"name": "E", "valueFrom": {"secretKeyRef": {"name": "other", "key": "k"}}}]),
            f"container main with envVar E {SECRET}",
        ),
        (using(envFrom=[{"secretRef": {"name": "other"}}]), f"container main with envFrom {SECRET}"),
        (
            {"imagePullSecrets": [{"name": "own"}, {"name": "other"}]},
            'imagePullSecrets[1].name="other" is not allowed because service account robot does not reference that '
            "imagePullSecret",
        ),
    ],
)
async def test_service_account_may_restrict_mountable_secrets(api: Caller, spec: Obj, told: str) -> None:
    annotations = {"kubernetes.io/enforce-mountable-secrets": "true"}
    account = {"metadata": {"name": "robot", "annotations": annotations}, "secrets": [{"name": "own"}]}
    await api.create(ACCOUNTS, {**account, "imagePullSecrets": [{"name": "own"}]})
    answer = await api("POST", PODS, pod("a", serviceAccountName="robot", **spec))
    assert (answer.status, answer.json["message"]) == (403, f'pods "a" is forbidden: {told}')
    await api.create(
        PODS, pod("b", serviceAccountName="robot", volumes=[{"name": "v", "secret": {"secretName": "own"}}])
    )
    debug = {"name": "d", "image": "i", "envFrom": [{"secretRef": {"name": "other"}}]}
    body = {"spec": {"ephemeralContainers": [debug]}}
    answer = await api("PATCH", f"{PODS}/b/ephemeralcontainers", body, type="application/strategic-merge-patch+json")
    assert answer.status == 403 and f"ephemeral container d with envFrom {SECRET}" in answer.json["message"]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"serviceAccountName": "default"}, "a mirror pod may not reference service accounts"),
        ({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, "a mirror pod may not reference secrets"),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
            "a mirror pod may not use ServiceAccountToken volume projections",
        ),
    ],
)
async def test_mirror_pod_gets_no_service_account(api: Caller, spec: Obj, told: str) -> None:
    made = pod("m", **spec)
    made["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    answer = await api("POST", PODS, made)
    assert (answer.status, answer.json["message"]) == (403, f'pods "m" is forbidden: {told}')
    plain = pod("n", nodeName="node-1")
    plain["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert "volumes" not in (await api.create(PODS, plain))["spec"]
