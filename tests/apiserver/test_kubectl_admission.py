"""The real kubectl with admission policies: applied, shown, and refusing or changing what kubectl sends."""

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


async def test_kubectl_applies_validating_policy_which_denies(kubectl: Kubectl) -> None:
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


MUTATOR = """
apiVersion: v1
kind: ConfigMap
metadata:
  name: team
data:
  team: red
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata:
  name: team.example.com
spec:
  paramKind:
    apiVersion: v1
    kind: ConfigMap
  matchConstraints:
    resourceRules:
    - apiGroups: [apps]
      apiVersions: [v1]
      operations: [CREATE, UPDATE]
      resources: [deployments]
  reinvocationPolicy: IfNeeded
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >
        Object{
          metadata: Object.metadata{labels: {"team": params.data.team}},
          spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{
            containers: [Object.spec.template.spec.containers{name: "side", image: "proxy:1"}]
          }}}
        }
  - patchType: JSONPatch
    jsonPatch:
      expression: >
        object.spec.replicas > 3 ? [JSONPatch{op: "replace", path: "/spec/replicas", value: 3}] : []
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata:
  name: team.example.com
spec:
  policyName: team.example.com
  paramRef:
    name: team
    parameterNotFoundAction: Deny
"""


async def test_kubectl_applies_mutating_policy_which_changes_objects(kubectl: Kubectl) -> None:
    assert (await kubectl.ok("apply", "--validate=strict", "-f", "-", input=MUTATOR)).count("created") == 3
    again = await kubectl.ok("apply", "-f", "-", input=MUTATOR)  # the rule has got a scope: kubectl sends it once more
    assert (again.count("unchanged"), again.count("configured")) == (2, 1)
    applied = await kubectl.ok("apply", "--server-side", "--force-conflicts", "-f", "-", input=MUTATOR)
    assert applied.count("serverside-applied") == 3
    await kubectl.ok("create", "deployment", "web", "--image=web:1", "--replicas=5")
    made = json.loads(await kubectl.ok("get", "deployment", "web", "-o", "json"))
    assert made["metadata"]["labels"] == {"app": "web", "team": "red"}
    assert made["spec"]["replicas"] == 3
    assert [c["name"] for c in made["spec"]["template"]["spec"]["containers"]] == ["web", "side"]
    # Once more changes nothing: neither kubectl nor the policy.
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "main", "image": "i:1"}]}}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "x"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}, "template": template},
    }
    for _ in range(2):
        applied = json.loads(await kubectl.ok("apply", "-o", "json", "-f", "-", input=json.dumps(manifest)))
        assert applied["metadata"]["generation"] == 1
        assert [c["name"] for c in applied["spec"]["template"]["spec"]["containers"]] == ["main", "side"]
    await kubectl.ok("delete", "configmap", "team")
    refused = await kubectl.run("scale", "deployment", "x", "--replicas=2")
    assert refused.code == 0, "the rule is not about deployments/scale"
    refused = await kubectl.run("set", "image", "deployment/x", "main=i:2")
    assert refused.code == 1
    assert refused.err.strip() == (
        "error: failed to patch image update to pod template: policy 'team.example.com' with binding "
        "'team.example.com' denied request: failed to configure binding: no params found for policy binding with "
        "`Deny` parameterNotFoundAction"
    ), refused.err
    shown = (await kubectl.ok("get", "mutatingadmissionpolicies,mutatingadmissionpolicybindings")).splitlines()
    assert shown[0].split() == ["NAME", "MUTATIONS", "PARAMKIND", "AGE"], shown
    assert shown[1].split()[1:3] == ["2", "v1/ConfigMap"], shown
    explained = await kubectl.ok("explain", "mutatingadmissionpolicy.spec.mutations.patchType")
    assert "ApplyConfiguration" in explained
    await kubectl.ok("delete", "mutatingadmissionpolicy", "team.example.com")
    await kubectl.ok("set", "image", "deployment/x", "main=i:2")
