"""What is odd about the quotas and accounts of a namespace."""

from __future__ import annotations

from collections.abc import Iterator

from haru.kube.meta import Obj
from haru.kube.quantity import parse_quantity

_MOUNTABLE = "kubernetes.io/enforce-mountable-secrets"


def quota_warnings(quota: Obj) -> Iterator[str]:
    """Requests of which a new ResourceQuota allows more than of limits."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    for resource in ("cpu", "memory", "storage", "ephemeral-storage"):
        request, limit = f"requests.{resource}", f"limits.{resource}"
        if request not in hard and resource in ("cpu", "memory"):
            request = resource
        if request not in hard or limit not in hard:
            continue
        most, bound = parse_quantity(hard[request]), parse_quantity(hard[limit])
        if most.compare(bound) > 0:
            yield f"ResourceQuota {request} ({most}) should be less than {limit} ({bound})"


def account_warnings(account: Obj) -> Iterator[str]:
    """An annotation of a ServiceAccount that is on its way out."""
    if _MOUNTABLE in (account["metadata"].get("annotations") or {}):
        yield (
            f"metadata.annotations[{_MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to isolate access "
            "to mounted secrets"
        )
