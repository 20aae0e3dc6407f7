"""CustomResourceDefinitions of other projects' kinds, as little as a server needs to store such objects."""

from __future__ import annotations

from typing import Any

from haru.gangs import ForeignKind

Obj = dict[str, Any]
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition(kind: ForeignKind, *versions: str) -> Obj:
    """The definition of a kind in some versions (without any: in the best one); the first of them is stored."""
    served = versions or kind.versions[:1]
    properties = {"spec": ANYTHING, "status": ANYTHING}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{kind.group}",
            # Groups under *.k8s.io say who approved them.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": kind.group,
            "names": {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower()},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == served[0],
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
                    "subresources": {"status": {}},
                }
                for version in served
            ],
        },
    }
