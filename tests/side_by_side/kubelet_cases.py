"""Cases for kubelets: what is done to a namespace, step by step; after each its pods come to rest.

A step is a list of objects to create and of words for kubectl. The file names only what is particular: a pod is written
as its spec, bound to the node, and named as its case; a container is `main`, sleeps, and has the image of the tests.
"""

from __future__ import annotations

import re
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
PORT: Final = re.compile(r'"PORT-(\d\d)"|PORT-(\d\d)')
"""Stands for a port of this machine that is the node's own; also as a number."""
RESTART: Final = ["restart the node's agent"]
"""A step's change: the kubelet, or `haru node`, is killed and started again."""
BOOT: Final = ["boot the node's machine"]
"""A step's change: all that runs on the node ends, and its agent is started with another boot id."""
REMOVE_IMAGE: Final = "remove the image"
"""With a name: a step's change, which takes an image from the node's runtime."""
PAUSE_SERVER: Final = "pause the API server"
"""With seconds: a step's change, during which nobody gets an answer."""
END_SANDBOX: Final = "end the sandbox"
"""With a pod's name: a step's change, which kills the process that holds the pod's namespaces."""
UID_OF: Final = "UID-OF-"
"""With a pod's name behind it: stands for the uid of this pod."""


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
    found = {}
    for file in sorted(Path(__file__).parent.glob("kubelet*_cases.yaml")):
        for case, steps in yaml.safe_load(file.read_text()).items():
            found[case] = [[_expanded(case, change) for change in step] for step in steps]
    return found


CASES: Final = _read()
