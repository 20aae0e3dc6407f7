"""clusterrole-aggregation-controller: an aggregated ClusterRole has the rules of the roles that it selects.

Rules are in the order of the roles' names, each once. Source: Kubernetes `clusterrole-aggregation-controller`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from haru.controllers.base import Context, Controller
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj, labels_of, name_of
from haru.kube.selectors import label_selector_from

CLUSTER_ROLES = known_kind("rbac.authorization.k8s.io/v1", "ClusterRole")


class ClusterRoleAggregationController(Controller):
    """Writes the rules of aggregated roles; keys are their names."""

    name: ClassVar[str] = "clusterrole-aggregation-controller"
    needs: ClassVar[tuple[Kind, ...]] = (CLUSTER_ROLES,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.roles = self.informer(CLUSTER_ROLES)
        self.roles.add_handler(self._changed, lambda _, new: self._changed(new), self._changed)

    def _changed(self, _role: Obj) -> None:
        # Any role may be selected, and may have been until now.
        for role in self.roles.store.values():
            if role.get("aggregationRule"):
                self.queue.add(name_of(role))

    async def sync(self, key: str) -> float | None:
        """Bring the rules of one role into line."""
        role = self.roles.get(key)
        if role is None or not role.get("aggregationRule"):
            return None
        rules = aggregated_rules(role, self.roles.store.values())
        if rules != (role.get("rules") or []):
            await self.update(self.roles, {**role, "rules": rules})
        return None


def aggregated_rules(role: Obj, roles: Iterable[Obj]) -> list[Obj]:
    """Return the rules of the other roles that a role selects."""
    selectors = [label_selector_from(given) for given in role["aggregationRule"].get("clusterRoleSelectors") or ()]
    rules: list[Obj] = []
    for other in sorted(roles, key=name_of):
        if name_of(other) != name_of(role) and any(selector.matches(labels_of(other)) for selector in selectors):
            rules += [rule for rule in other.get("rules") or () if rule not in rules]
    return rules
