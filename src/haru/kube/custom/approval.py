"""Whether a definition in a group of the Kubernetes community says where it was agreed upon.

Source: the annotation api-approved.kubernetes.io and the condition KubernetesAPIApprovalPolicyConformant.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from haru.kube.meta import Obj

ANNOTATION: Final = "api-approved.kubernetes.io"
CONDITION: Final = "KubernetesAPIApprovalPolicyConformant"
MISSING, INVALID, APPROVED, UNAPPROVED = (
    f"{each}Annotation" for each in ("Missing", "Invalid", "Approved", "Unapproved")
)
_GROUPS = re.compile(r"(.*\.)?(k8s\.io|kubernetes\.io)")
_WANTED = f'protected groups must have approval annotation "{ANNOTATION}"'
_SEE = "see https://github.com/kubernetes/enhancements/pull/1111"


class Approval(NamedTuple):
    """The condition of a definition, without its type."""

    status: str
    reason: str
    message: str


def approval_of(definition: Obj) -> Approval | None:
    """What a definition of a protected group says; None for one of any other group."""
    if not _GROUPS.fullmatch((definition.get("spec") or {}).get("group") or ""):
        return None
    given = ((definition.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION, "")
    if not given:
        return Approval("False", MISSING, f"{_WANTED}, {_SEE}")
    if given.startswith("unapproved"):
        return Approval("False", UNAPPROVED, f"not approved: {json.dumps(given, ensure_ascii=False)}")
    if _is_url(given):
        return Approval("True", APPROVED, f"approved in {given}")
    return Approval("False", INVALID, f'{_WANTED} with either a URL or a reason starting with "unapproved", {_SEE}')


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and parts.netloc) and not re.search(r"[\s\x00-\x1f\x7f]", text)
