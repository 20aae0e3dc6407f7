"""Pod templates inside objects of other projects are checked as pods are, and the findings name the outer object."""

from __future__ import annotations

import textwrap

import pytest

from haru.lint import lint_texts

POD = """\
spec:
  containers: [{name: c, image: i, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpuu}]
"""
CLAIMS = """\
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
"""


def manifest(api_version: str, kind: str, spec: str, template: str, pod: str = POD) -> str:
    """An object whose spec has a pod template at the word TEMPLATE."""
    head = f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: x}}\nspec:\n"
    before, _, after = textwrap.indent(spec, "  ").partition("TEMPLATE")
    depth = len(before.rpartition("\n")[2]) + 2
    return f"{head}{before}{template}:\n{textwrap.indent(pod, ' ' * depth)}{after}{CLAIMS}"


JOBS = "replicatedJobs:\n- name: w\n  replicas: 2\n  template:\n    spec:\n      parallelism: 2\n      TEMPLATE"
SHAPES = [
    ("jobset.x-k8s.io/v1alpha2", "JobSet", JOBS, "template", "spec.replicatedJobs[0].template.spec.template"),
    (
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        "leaderWorkerTemplate:\n  size: 3\n  TEMPLATE",
        "workerTemplate",
        "spec.leaderWorkerTemplate.workerTemplate",
    ),
    ("ray.io/v1", "RayCluster", "headGroupSpec:\n  TEMPLATE", "template", "spec.headGroupSpec.template"),
    (
        "ray.io/v1",
        "RayJob",
        "rayClusterSpec:\n  workerGroupSpecs:\n  - groupName: g\n    TEMPLATE",
        "template",
        "spec.rayClusterSpec.workerGroupSpecs[0].template",
    ),
    ("ray.io/v1", "RayJob", "TEMPLATE", "submitterPodTemplate", "spec.submitterPodTemplate"),
    (
        "ray.io/v1",
        "RayService",
        "rayClusterConfig:\n  headGroupSpec:\n    TEMPLATE",
        "template",
        "spec.rayClusterConfig.headGroupSpec.template",
    ),
    (
        "kubeflow.org/v1",
        "PyTorchJob",
        "pytorchReplicaSpecs:\n  Worker:\n    replicas: 2\n    TEMPLATE",
        "template",
        "spec.pytorchReplicaSpecs.Worker.template",
    ),
    (
        "kubeflow.org/v2beta1",
        "MPIJob",
        "mpiReplicaSpecs:\n  Launcher:\n    TEMPLATE",
        "template",
        "spec.mpiReplicaSpecs.Launcher.template",
    ),
    (
        "trainer.kubeflow.org/v1alpha1",
        "ClusterTrainingRuntime",
        f"template:\n  spec:\n{textwrap.indent(JOBS, '    ')}",
        "template",
        "spec.template.spec.replicatedJobs[0].template.spec.template",
    ),
    (
        "kueue.x-k8s.io/v1beta2",
        "Workload",
        "podSets:\n- name: main\n  count: 2\n  TEMPLATE",
        "template",
        "spec.podSets[0].template",
    ),
]


@pytest.mark.parametrize(("api_version", "kind", "spec", "word", "path"), SHAPES, ids=lambda value: value[:30])
def test_wrong_template_name_is_found_and_fixed(api_version: str, kind: str, spec: str, word: str, path: str) -> None:
    text = manifest(api_version, kind, spec, word)
    report = lint_texts({"f.yaml": text})
    (finding,) = report.findings
    assert (finding.check, finding.place.object) == ("reference-missing", f"{kind}/x")
    assert finding.path == f"{path}.spec.resourceClaims[0].resourceClaimTemplateName"
    assert text.splitlines()[finding.place.line - 1].strip().startswith("resourceClaims:")
    assert finding.suggestion == 'did you mean "one-gpu"?' and finding.edits[0].path == finding.path
    assert report.unchecked == () and report.objects == 2
    assert lint_texts({"f.yaml": text.replace("one-gpuu", "one-gpu")}).findings == ()


def test_claim_that_all_pods_of_template_share_is_told() -> None:
    pod = POD.replace("resourceClaimTemplateName: one-gpuu", "resourceClaimName: shared")
    claim = CLAIMS.replace("ResourceClaimTemplate", "ResourceClaim").replace("one-gpu", "shared")
    claim = claim.replace("spec: {spec: {devices", "spec: {devices").replace("}]}}}", "}]}}")
    text = manifest("jobset.x-k8s.io/v1alpha2", "JobSet", JOBS, "template", pod).replace(CLAIMS, claim)
    report = lint_texts({"f.yaml": text})
    (finding,) = (*report.findings, *report.notices)
    assert finding.check == "claim-shared" and finding.message == "all 4 pods use the same devices"


def test_misspelt_field_in_template_is_found() -> None:
    pod = POD.replace("one-gpuu", "one-gpu").replace("resourceClaims:", "resourceClaimz:")
    report = lint_texts({"f.yaml": manifest("ray.io/v1", "RayCluster", SHAPES[2][2], "template", pod)})
    assert any(finding.path.endswith("template.spec.resourceClaimz") for finding in report.findings)


@pytest.mark.parametrize("spec", ["[]", "{replicatedJobs: 3}", "{replicatedJobs: [1, {template: x}]}", "text"])
def test_object_of_unexpected_shape_has_no_findings(spec: str) -> None:
    text = f"apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {{name: x}}\nspec: {spec}\n"
    assert lint_texts({"f.yaml": text}).findings == ()


def test_pod_that_names_missing_pod_group_of_coscheduling_is_told() -> None:
    text = """\
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: train}
spec: {minMember: 4}
---
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {scheduling.x-k8s.io/pod-group: trian}}
spec: {containers: [{name: c, image: i}]}
"""
    (finding,) = lint_texts({"f.yaml": text}).findings
    assert finding.check == "reference-missing" and finding.message == 'no PodGroup "trian" is in the files'
    assert finding.path == "metadata.labels[scheduling.x-k8s.io/pod-group]" and finding.place.line == 8
    assert lint_texts({"f.yaml": text.replace("trian", "train")}).findings == ()
