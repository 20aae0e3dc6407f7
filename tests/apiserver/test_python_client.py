"""The official Python client, unmodified: typed, dynamic, watching."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kubectl_runner import Kubectl

kubernetes = pytest.importorskip("kubernetes")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Kubectl]:
    running = Kubectl(tmp_path)
    await running.start()
    yield running
    await running.stop()


def connect(server: Kubectl) -> Any:
    return kubernetes.config.new_client_from_config(str(server.directory / "config"))


def pod(name: str) -> Any:
    container = {"name": "main", "image": "busybox"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


async def test_python_client_typed_calls(server: Kubectl) -> None:
    def calls() -> None:
        with connect(server) as client:
            core = kubernetes.client.CoreV1Api(client)
            created = core.create_namespaced_pod("default", pod("a"))
            assert created.metadata.creation_timestamp.tzinfo is not None
            assert [p.metadata.name for p in core.list_namespaced_pod("default").items] == ["a"]
            core.patch_namespaced_pod("a", "default", {"metadata": {"labels": {"x": "y"}}})
            assert core.read_namespaced_pod("a", "default").metadata.labels == {"x": "y"}
            status = {"status": {"phase": "Running"}}
            assert core.patch_namespaced_pod_status("a", "default", status).status.phase == "Running"
            target = kubernetes.client.V1ObjectReference(kind="Node", name="n1")
            body = kubernetes.client.V1Binding(metadata=kubernetes.client.V1ObjectMeta(name="a"), target=target)
            core.create_namespaced_pod_binding("a", "default", body, _preload_content=False)
            assert core.read_namespaced_pod("a", "default").spec.node_name == "n1"
            core.delete_namespaced_pod("a", "default", grace_period_seconds=0)
            with pytest.raises(kubernetes.client.ApiException) as caught:
                core.read_namespaced_pod("a", "default")
            assert caught.value.status == 404
            client.rest_client.pool_manager.clear()

    await asyncio.to_thread(calls)


async def test_python_client_watch(server: Kubectl) -> None:
    def calls() -> None:
        with connect(server) as client:
            core = kubernetes.client.CoreV1Api(client)
            core.create_namespaced_pod("default", pod("a"))
            seen = []
            for event in kubernetes.watch.Watch().stream(core.list_namespaced_pod, "default", timeout_seconds=60):
                seen.append((event["type"], event["object"].metadata.name))
                if len(seen) == 2:
                    break
                core.create_namespaced_pod("default", pod("b"))
            assert seen == [("ADDED", "a"), ("ADDED", "b")]
            client.rest_client.pool_manager.clear()

    await asyncio.to_thread(calls)


async def test_python_client_dynamic_calls(server: Kubectl) -> None:
    def calls() -> None:
        with connect(server) as client:
            dynamic = kubernetes.dynamic.DynamicClient(client)
            maps = dynamic.resources.get(api_version="v1", kind="ConfigMap")
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}}
            maps.create(body=body, namespace="default")
            applied = maps.server_side_apply(
                body | {"data": {"n": "1"}}, namespace="default", field_manager="tests", force_conflicts=True
            )
            assert applied.data.to_dict() == {"k": "1", "n": "1"}
            slices = dynamic.resources.get(api_version="resource.k8s.io/v1", kind="ResourceSlice")
            assert slices.get().items == []
            client.rest_client.pool_manager.clear()

    await asyncio.to_thread(calls)


async def test_python_client_mutating_policy(server: Kubectl) -> None:
    def calls() -> None:
        with connect(server) as client:
            dynamic = kubernetes.dynamic.DynamicClient(client)
            group = "admissionregistration.k8s.io/v1"
            policies = dynamic.resources.get(api_version=group, kind="MutatingAdmissionPolicy")
            bindings = dynamic.resources.get(api_version=group, kind="MutatingAdmissionPolicyBinding")
            rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            expression = 'Object{spec: Object.spec{schedulerName: "haru"}}'
            spec = {
                "matchConstraints": {"resourceRules": [rule]},
                "reinvocationPolicy": "Never",
                "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
            }
            kind = {"apiVersion": group, "metadata": {"name": "p.example.com"}}
            policies.create(body={**kind, "kind": "MutatingAdmissionPolicy", "spec": spec})
            bound = {"policyName": "p.example.com"}
            bindings.create(body={**kind, "kind": "MutatingAdmissionPolicyBinding", "spec": bound})
            core = kubernetes.client.CoreV1Api(client)
            assert core.create_namespaced_pod("default", pod("a")).spec.scheduler_name == "haru"
            changed = [{"op": "replace", "path": "/spec/mutations/0/applyConfiguration/expression", "value": "1"}]
            with pytest.raises(kubernetes.client.ApiException) as caught:
                policies.patch(name="p.example.com", body=changed, content_type="application/json-patch+json")
            assert caught.value.status == 422
            assert "must evaluate to Object but got int" in str(caught.value.body)
            policies.delete(name="p.example.com")
            assert core.create_namespaced_pod("default", pod("b")).spec.scheduler_name == "default-scheduler"
            client.rest_client.pool_manager.clear()

    await asyncio.to_thread(calls)
