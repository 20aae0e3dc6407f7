"""Read the manifests of `deploy/` as `kubectl kustomize` does, as far as these files use it.

The files are packaged with the wheel; in a working tree they are read where they are. Source: kustomize, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import haru
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj
from haru.kube.yaml import load, load_all

MODES = {
    "second-scheduler": "beside kube-scheduler: pods with schedulerName haru",
    "default-scheduler": "in place of kube-scheduler",
    "dashboard": "the dashboard for the people of the cluster, and haru explain in its pod: schedules nothing",
    "explain-api": "explain.haru.dev, the resident answer for tenants: schedules nothing",
    "explain-publish": "haru explain --publish, beside another scheduler: annotates pods that wait, schedules nothing",
}
SCHEDULERS = ("second-scheduler", "default-scheduler")
"""The modes that schedule."""
_FIELDS = {"apiVersion", "kind", "resources", "labels", "images"}
_FIRST = ("Namespace", "ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "ConfigMap")


def deploy_folder() -> Path:
    """The folder of the manifests. Raises FileNotFoundError."""
    package = Path(haru.__file__).parent
    for folder in (package / "install" / "deploy", package.parents[1] / "deploy"):
        if (folder / "overlays").is_dir():
            return folder
    raise FileNotFoundError(f"{package / 'install' / 'deploy'}: this installation has no manifests")


def manifests_of(mode: str, image: str | None = None, folder: Path | None = None) -> list[Obj]:
    """The objects of a mode in the order in which they are applied; `image` in place of theirs. Raises OSError,
    ValueError."""
    found = list(_built((folder or deploy_folder()) / "overlays" / mode))
    if image:
        found = [_with_image(obj, image) for obj in found]
    return sorted(found, key=lambda obj: _FIRST.index(obj["kind"]) if obj["kind"] in _FIRST else len(_FIRST))


def kind_of(obj: Mapping[str, Any]) -> Kind:
    """The kind of a manifest's object."""
    return known_kind(obj["apiVersion"], obj["kind"])


def reference(obj: Mapping[str, Any]) -> str:
    """`kind/name`, with the namespace where there is one."""
    metadata = obj["metadata"]
    where = f" in {metadata['namespace']}" if metadata.get("namespace") else ""
    return f"{obj['kind'].lower()}/{metadata['name']}{where}"


def identity(obj: Mapping[str, Any]) -> tuple[str, str, str]:
    """What makes an object the same one: kind, namespace, name."""
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _built(folder: Path) -> Iterator[Obj]:
    """The objects of a folder with a kustomization."""
    file = folder / "kustomization.yaml"
    body = load(file.read_text())
    if unknown := set(body) - _FIELDS:
        raise ValueError(f"{file}: {', '.join(sorted(unknown))}: not read here")
    labels = {key: text for entry in body.get("labels") or () for key, text in entry["pairs"].items()}
    tags = {
        entry["name"]: f"{entry.get('newName', entry['name'])}:{entry['newTag']}" for entry in body.get("images") or ()
    }
    for resource in body["resources"]:
        path = (folder / resource).resolve()
        objects = _built(path) if path.is_dir() else (obj for obj in load_all(path.read_text()) if obj)
        for obj in objects:
            yield _with_tags(_labelled(obj, labels), tags)


def _labelled(obj: Obj, labels: Mapping[str, str]) -> Obj:
    if not labels:
        return obj
    metadata = obj["metadata"]
    return {**obj, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}}


def _with_tags(obj: Obj, tags: Mapping[str, str]) -> Obj:
    image = next((container["image"] for container in _containers(obj)), "")
    return _with_image(obj, tags[image]) if image in tags else obj


def _with_image(obj: Obj, image: str) -> Obj:
    containers = _containers(obj)
    if not containers:
        return obj
    spec, template = obj["spec"], obj["spec"]["template"]
    pod = {**template["spec"], "containers": [{**container, "image": image} for container in containers]}
    return {**obj, "spec": {**spec, "template": {**template, "spec": pod}}}


def _containers(obj: Obj) -> list[Obj]:
    found: list[Obj] = (obj["spec"]["template"]["spec"]["containers"]) if obj["kind"] == "Deployment" else []
    return found
