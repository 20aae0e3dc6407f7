"""Pods that the API server refuses for the lack of an object that their workload names: that one is created."""

from __future__ import annotations

import re
from collections.abc import Iterator

from haru.engine import Reason
from haru.explain.changes import create
from haru.explain.explanation import Remedy

_SERVICE_ACCOUNT = re.compile(r"error looking up service account (?P<namespace>[^/ ]+)/(?P<name>[^ :]+): .*not found")
_PRIORITY_CLASS = re.compile(r"no PriorityClass with name (?P<name>\S+) was found")


def missing_object_remedies(refused: Reason, *, confirmed: bool) -> Iterator[Remedy]:
    """What the pods need to be let in; `confirmed`: there is room for them then.

    Source: the words of the admission plugins ServiceAccount and Priority.
    """
    if found := _SERVICE_ACCOUNT.search(refused.message):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": found.groupdict()}
        text = f"create ServiceAccount {found['namespace']}/{found['name']}"
        costs = "what its pods may do at the API server is for Roles to say"
        yield Remedy("CreateServiceAccount", text, (create(account),), 0, confirmed, costs)
    if found := _PRIORITY_CLASS.search(refused.message):
        meta = {"name": found["name"]}
        priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": 0}
        costs = "its value is for an administrator to say: here 0"
        yield Remedy(
            "CreatePriorityClass", f"create PriorityClass {found['name']}", (create(priority),), 1, confirmed, costs
        )
