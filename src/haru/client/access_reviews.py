"""Ask a server whether it would let its caller do something: a refused try would be in its audit log and metrics."""

from __future__ import annotations

from typing import Final

from haru.client.api import ApiClient
from haru.kube.kinds import known_kind

_REVIEWS: Final = known_kind("authorization.k8s.io/v1", "SelfSubjectAccessReview")


async def may(client: ApiClient, verb: str, group: str, plural: str, namespace: str = "") -> bool:
    """Ask whether the client's user has a right; without a namespace, in all of them."""
    attributes = {"verb": verb, "group": group, "resource": plural, "namespace": namespace}
    review = await client.create(_REVIEWS, {"spec": {"resourceAttributes": attributes}})
    return bool((review.get("status") or {}).get("allowed"))
