"""replicationcontroller-controller: the ReplicaSet controller over the older kind.

A ReplicationController is a ReplicaSet in version v1: its selector is a plain map of labels; all else is the same.
Source: Kubernetes `pkg/controller/replication`, which is the ReplicaSet controller behind an adapter, too.
"""

from __future__ import annotations

from typing import ClassVar

from haru.controllers.objects import REPLICATION_CONTROLLERS, Obj
from haru.controllers.replica_set import ReplicaSetController
from haru.kube.kinds import Kind
from haru.kube.selectors import LabelSelector, label_selector_from


class ReplicationControllerController(ReplicaSetController):
    """Keeps the number of pods of each ReplicationController."""

    name: ClassVar[str] = "replicationcontroller-controller"
    component: ClassVar[str] = "replication-controller"
    needs: ClassVar[tuple[Kind, ...]] = (REPLICATION_CONTROLLERS,)
    kind: ClassVar[Kind] = REPLICATION_CONTROLLERS

    def selector_of(self, owner: Obj) -> LabelSelector:
        """Which pods an object looks after."""
        return label_selector_from({"matchLabels": owner["spec"].get("selector") or {}})
