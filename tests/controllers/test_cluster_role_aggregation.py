"""Aggregated ClusterRoles show the rules of the roles that they select."""

from __future__ import annotations

from haru.controllers.cluster_role_aggregation import CLUSTER_ROLES, aggregated_rules

NAME = "clusterrole-aggregation-controller"
LABEL = {"example.com/onto-sum": "true"}


def rule(resource: str) -> dict[str, list[str]]:
    return {"apiGroups": [""], "resources": [resource], "verbs": ["get"]}


def role(name: str, *resources: str, labels: dict[str, str] | None = None):
    return {"metadata": {"name": name, "labels": labels or {}}, "rules": [rule(name) for name in resources]}


def test_rules_come_in_the_order_of_names_and_each_once() -> None:
    total = {"metadata": {"name": "sum"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": LABEL}]}}
    others = [role("b", "pods", "nodes", labels=LABEL), role("a", "pods", labels=LABEL), role("c", "secrets"), total]
    assert aggregated_rules(total, others) == [rule("pods"), rule("nodes")]


async def test_aggregated_role_follows_the_roles_that_it_selects(cluster):
    await cluster.start(NAME)
    selectors = [{"matchLabels": LABEL}]
    await cluster.create(
        CLUSTER_ROLES, {"metadata": {"name": "sum"}, "aggregationRule": {"clusterRoleSelectors": selectors}}
    )
    await cluster.create(CLUSTER_ROLES, role("part", "pods", labels=LABEL))

    async def rules(wanted):
        return ((await cluster.get(CLUSTER_ROLES, "sum", "")).get("rules") or []) == wanted

    await cluster.eventually(lambda: rules([rule("pods")]))
    await cluster.client.patch(CLUSTER_ROLES, "part", {"metadata": {"labels": dict.fromkeys(LABEL)}})
    await cluster.eventually(lambda: rules([]))
    assert await cluster.forbidden() == 0


async def test_people_of_a_new_cluster_see_the_rules_of_view_in_edit(cluster):
    await cluster.start(NAME)

    async def filled():
        view, edit, admin = [(await cluster.get(CLUSTER_ROLES, name, "")) for name in ("view", "edit", "admin")]
        return view.get("rules") and all(part in edit.get("rules", ()) for part in view["rules"]) and admin.get("rules")

    await cluster.eventually(filled)
    assert await cluster.forbidden() == 0
