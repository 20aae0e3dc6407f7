"""What a Job's spec means, for all who need to know: the API server's rules and the controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_gang_job(spec: Mapping[str, Any]) -> bool:
    """All pods must run at the same time for the Job to complete, and its author did not group them (KEP-5547)."""
    parallelism, completions = spec.get("parallelism"), spec.get("completions")
    template_spec = (spec.get("template") or {}).get("spec") or {}
    return bool(
        parallelism is not None
        and parallelism > 1
        and spec.get("completionMode") == "Indexed"
        and completions == parallelism
        and not template_spec.get("schedulingGroup")
    )
