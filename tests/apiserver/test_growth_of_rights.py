"""What a refusal takes does not depend on how many groups a user has, nor on how many bindings these have."""

from __future__ import annotations

import orjson
import pytest
from api_caller import Clock, make_config
from counted_calls import SIZES, Steps, assert_flat

import virtual_time
from haru.apiserver.auth.authorization import Authorizer
from haru.apiserver.auth.node_authorizer import Attributes
from haru.apiserver.auth.user import UserInfo
from haru.apiserver.object_store import ObjectStore
from haru.storage import Put
from haru.storage.memory import MemoryStore

RBAC = "rbac.authorization.k8s.io"


async def cost_of_refusal(groups: int, bindings: int) -> Steps:
    """What the second refusal takes: the first one looks at every group."""
    store = MemoryStore()
    role = {"metadata": {"name": "r"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}
    await store.transact(Put(f"clusterroles.{RBAC}/r", orjson.dumps(role)))
    for number in range(bindings):
        subjects = [{"kind": "Group", "name": f"g{number % groups}"}]
        reference = {"kind": "ClusterRole", "name": "r"}
        binding = {"metadata": {"name": f"b{number}"}, "roleRef": reference, "subjects": subjects}
        await store.transact(Put(f"clusterrolebindings.{RBAC}/b{number}", orjson.dumps(binding)))
    authorizer = Authorizer(ObjectStore(make_config(store, Clock())))
    await authorizer.start()
    user = UserInfo("jane", tuple(f"g{number}" for number in range(groups)))
    assert authorizer.decide(user, Attributes("get", "", "pods", "", "a", "", ""))
    with Steps() as counted:
        assert not authorizer.decide(user, Attributes("list", "", "secrets", "", "a", "", ""))
    return counted


@pytest.mark.parametrize("sizes", SIZES)
def test_refusal_costs_a_user_of_many_groups_and_bindings_as_much(sizes: tuple[int, ...]) -> None:
    assert_flat({size: virtual_time.run(cost_of_refusal(size, size)) for size in sizes}, "many groups, bound once")
    assert_flat({size: virtual_time.run(cost_of_refusal(1, size)) for size in sizes}, "one group with many bindings")
