"""The real kubectl with an admission policy: applied, shown, and refusing what kubectl sends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from kubectl_runner import Kubectl, require_kubectl

POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: team-label.example.com
spec:
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      operations: [CREATE, UPDATE]
      resources: [configmaps]
  variables:
  - name: labels
    expression: object.metadata.?labels.orValue({})
  validations:
  - expression: "'team' in variables.labels"
    messageExpression: "'say whose ' + object.metadata.name + ' is: it has no label team'"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: team-label.example.com
spec:
  policyName: team-label.example.com
  validationActions: [Deny]
"""


@pytest_asyncio.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    require_kubectl()
    runner = Kubectl(tmp_path)
    await runner.start()
    yield runner
    await runner.stop()


async def test_a_policy_is_applied_and_refuses(kubectl: Kubectl) -> None:
    assert (await kubectl.ok("apply", "-f", "-", input=POLICY)).count("created") == 2
    assert "binding.admissionregistration.k8s.io/team-label.example.com unchanged" in await kubectl.ok(
        "apply", "-f", "-", input=POLICY
    )
    refused = await kubectl.run("create", "configmap", "m", "--from-literal=a=b")
    assert refused.code == 1
    assert refused.err.strip() == (
        'error: failed to create configmap: configmaps "m" is forbidden: ValidatingAdmissionPolicy '
        "'team-label.example.com' with binding 'team-label.example.com' denied request: say whose m is: it has no "
        "label team"
    )
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "labels": {"team": "a"}}}
    assert "created" in await kubectl.ok("apply", "-f", "-", input=json.dumps(manifest))
    assert (await kubectl.run("label", "configmap", "m", "team-")).code == 1
    shown = await kubectl.ok("get", "validatingadmissionpolicies,validatingadmissionpolicybindings")
    head = shown.splitlines()[0].split()
    assert head[:3] == ["NAME", "VALIDATIONS", "PARAMKIND"], shown
