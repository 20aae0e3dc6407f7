"""The manifests of `deploy/`: read as kubectl reads them, whole, and strict where security asks for it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from haru.install.manifests import MODES, deploy_folder, identity, manifests_of
from haru.version import __version__

Obj = dict[str, Any]
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mode", MODES)
def test_manifests_are_those_of_kubectl_kustomize(mode: str, kubectl: str) -> None:
    command = [kubectl, "kustomize", str(deploy_folder() / "overlays" / mode)]
    built = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    expected = {identity(obj): obj for obj in yaml.safe_load_all(built)}
    assert {identity(obj): obj for obj in manifests_of(mode)} == expected


@pytest.mark.parametrize("mode", MODES)
def test_every_object_is_labelled_and_applied_after_what_it_needs(mode: str) -> None:
    objects = manifests_of(mode)
    assert all(obj["metadata"]["labels"]["app.kubernetes.io/part-of"] == "haru" for obj in objects)
    kinds = [obj["kind"] for obj in objects]
    assert kinds[0] == "Namespace"
    assert kinds.index("ServiceAccount") < kinds.index("Deployment")
    assert len(set(map(identity, objects))) == len(objects)


@pytest.mark.parametrize("mode", MODES)
def test_image_has_version_and_can_be_replaced(mode: str) -> None:
    assert images(manifests_of(mode)) == {f"haru:{__version__}"}
    assert images(manifests_of(mode, "mirror.example/haru@sha256:0")) == {"mirror.example/haru@sha256:0"}


def images(objects: list[Obj]) -> set[str]:
    deployments = [obj for obj in objects if obj["kind"] == "Deployment"]
    assert deployments
    return {c["image"] for obj in deployments for c in obj["spec"]["template"]["spec"]["containers"]}


@pytest.mark.parametrize("mode", MODES)
def test_pods_are_restricted(mode: str) -> None:
    for obj in manifests_of(mode):
        if obj["kind"] == "Deployment":
            spec = obj["spec"]["template"]["spec"]
            assert spec["securityContext"]["runAsNonRoot"] is True
            for container in spec["containers"]:
                context = container["securityContext"]
                assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
                assert context["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("mode", MODES)
def test_roles_have_no_wildcards_and_no_secrets(mode: str) -> None:
    for obj in manifests_of(mode):
        for rule in obj.get("rules") or ():
            assert "*" not in [*rule["verbs"], *rule.get("apiGroups", ()), *rule.get("resources", ())]
            assert "secrets" not in rule.get("resources", ())


def test_unknown_field_of_kustomization_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "overlays" / "dashboard"
    folder.mkdir(parents=True)
    (folder / "kustomization.yaml").write_text("resources: []\nnamePrefix: x-\n")
    with pytest.raises(ValueError, match="namePrefix: not read here"):
        manifests_of("dashboard", folder=tmp_path)
