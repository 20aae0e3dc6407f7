"""What a Job's spec means, for all who need to know: the API server's rules and the controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COUNT_SUCCEEDED = "haru.dev/count-succeeded"
"""Annotation of a PodGroup: `"true"` if members that have succeeded count as present."""


def is_gang_job(spec: Mapping[str, Any]) -> bool:
    """All pods must run at the same time for the Job to complete, and its author did not group them (KEP-5547)."""
    parallelism, completions = spec.get("parallelism"), spec.get("completions")
    return bool(
        parallelism is not None
        and parallelism > 1
        and spec.get("completionMode") == "Indexed"
        and completions == parallelism
        and not has_own_group(spec)
    )


def has_own_group(spec: Mapping[str, Any]) -> bool:
    """The author says in the pod template which PodGroup the pods belong to."""
    return bool(((spec.get("template") or {}).get("spec") or {}).get("schedulingGroup"))
