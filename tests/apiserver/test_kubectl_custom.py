"""The real kubectl with custom resources: a definition, its objects, columns, explain, apply, scale."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from custom_objects import NAME, definition, training
from kubectl_runner import Kubectl, require_kubectl

RUNS = "/apis/ml.example.com/v1/namespaces/default/runs"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kubectl(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Kubectl]:
    require_kubectl()
    directory: Path = tmp_path_factory.mktemp("custom")
    runner = Kubectl(directory)
    await runner.start()
    await runner.ok("apply", "-f", "-", input=json.dumps(definition()))
    yield runner
    await runner.stop()


async def test_kubectl_waits_for_and_lists_definitions(kubectl: Kubectl) -> None:
    assert "condition met" in await kubectl.ok("wait", "--for=condition=Established", f"crd/{NAME}", "--timeout=60s")
    assert NAME in await kubectl.ok("get", "crds")
    assert "trainings" in await kubectl.ok("api-resources", "--api-group=ml.example.com")
    assert "unchanged" in await kubectl.ok("apply", "-f", "-", input=json.dumps(definition()))


async def test_kubectl_applies_shows_and_explains_custom_objects(kubectl: Kubectl) -> None:
    manifest = training("shown", labels={"a": "b"})
    assert "created" in await kubectl.ok("apply", "-f", "-", input=json.dumps(manifest))
    assert "unchanged" in await kubectl.ok("apply", "-f", "-", input=json.dumps(manifest))
    manifest["spec"]["replicas"] = 4
    assert "configured" in await kubectl.ok("apply", "-f", "-", input=json.dumps(manifest))
    head, row = (await kubectl.ok("get", "tr", "-o", "wide")).splitlines()[:2]
    assert head.split() == ["NAME", "MODEL", "REPLICAS", "READY", "AGE"]
    assert row.split()[:3] == ["shown", "llm", "4"]
    assert "ENUM" in await kubectl.ok("explain", "trainings.spec.strategy")
    assert "training.ml.example.com/shown" in await kubectl.ok("get", "all", "-o", "name")
    forced = await kubectl.ok("apply", "--server-side", "--force-conflicts", "-f", "-", input=json.dumps(manifest))
    assert "serverside-applied" in forced
    assert "scaled" in await kubectl.ok("scale", "tr/shown", "--replicas=6")
    assert await kubectl.ok("get", "tr", "shown", "-o", "jsonpath={.spec.replicas}") == "6"
    assert "patched" in await kubectl.ok("patch", "tr", "shown", "--type=merge", "-p", '{"spec":{"note":"x"}}')


async def test_kubectl_reports_custom_resource_mistakes(kubectl: Kubectl) -> None:
    wrong = await kubectl.run("apply", "-f", "-", input=json.dumps(training("wrong", replicas=99)))
    assert wrong.code == 1
    assert "spec.replicas in body should be less than or equal to 8" in wrong.err
    unknown = await kubectl.run("create", "-f", "-", input=json.dumps(training("wrong", nothing=1)))
    assert 'unknown field "spec.nothing"' in unknown.err


async def test_kubectl_deletes_definition_with_its_objects(kubectl: Kubectl) -> None:
    other = definition(names={"plural": "runs", "kind": "Run"})
    other["metadata"]["name"] = "runs.ml.example.com"
    await kubectl.ok("apply", "-f", "-", input=json.dumps(other))
    await kubectl.ok("create", "-f", "-", input=json.dumps({**training("gone"), "kind": "Run"}))
    assert "deleted" in await kubectl.ok("delete", "crd", "runs.ml.example.com", "--timeout=60s")
    assert "could not find the requested resource" in (await kubectl.run("get", "--raw", RUNS)).err
