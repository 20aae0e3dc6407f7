"""Cases for kubelets: what is done to a namespace, step by step; after each its pods come to rest.

A step is a list of objects to create and of words for kubectl. The file names only what is particular: a pod is written
as its spec, bound to the node, and named as its case; a container is `main`, sleeps, and has the image of the tests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml
from manifests import Obj

from containerd_process import IMAGE

Step = list[list[str] | Obj]
NODE: Final = "NODEPLACE"
"""Stands for the name of the node that is tried."""
DIRECTORY: Final = "/HOST"
"""Stands for a directory of this machine that is the node's own."""


def _container(short: Obj) -> Obj:
    whole = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", **short}
    script = whole.pop("script", "exec sleep 1000")
    return {"command": ["sh", "-c", script], **whole}


def _expanded(case: str, change: Any) -> list[str] | Obj:
    if isinstance(change, list) or "pod" not in change:
        return change  # type: ignore[no-any-return]
    given = change["pod"]
    spec = {"nodeName": NODE, "terminationGracePeriodSeconds": 2, "automountServiceAccountToken": False, **given}
    for member in ("initContainers", "containers"):
        listed = given.get(member, [{}] if member == "containers" else [])
        spec |= {member: [_container(one) for one in listed]} if listed else {}
    metadata = {"name": change.get("name", case), **change.get("metadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _read() -> dict[str, list[Step]]:
    given = yaml.safe_load((Path(__file__).parent / "kubelet_cases.yaml").read_text())
    return {case: [[_expanded(case, change) for change in step] for step in steps] for case, steps in given.items()}


CASES: Final = _read()
