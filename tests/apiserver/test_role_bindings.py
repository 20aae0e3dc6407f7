"""What a user is bound to, after any changes of roles and bindings, is what a look at all of them finds."""

from __future__ import annotations

from random import Random
from typing import Any

import orjson
import pytest

from haru.apiserver.auth.role_bindings import RoleBindings
from haru.apiserver.auth.user import UserInfo
from haru.storage import Record

Obj = dict[str, Any]
SPACES = ("a", "b")
USERS = (
    UserInfo("jane", ("devs", "system:authenticated")),
    UserInfo("tom", ("system:authenticated",)),
    UserInfo("system:serviceaccount:a:robot", ("system:serviceaccounts", "devs")),
)
SUBJECTS = (
    {"kind": "User", "name": "jane"},
    {"kind": "User", "name": "tom"},
    {"kind": "Group", "name": "devs"},
    {"kind": "Group", "name": "system:authenticated"},
    {"kind": "ServiceAccount", "name": "robot", "namespace": "a"},
    {"kind": "ServiceAccount", "name": "robot"},
)


def made(random: Random, plural: str, namespace: str, name: str) -> Obj:
    """A role of some verbs, or a binding of some subjects to a role that may not be there."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    if plural.endswith("bindings"):
        kind = random.choice(("Role", "ClusterRole")) if namespace else "ClusterRole"
        role = {"kind": kind, "name": f"r{random.randrange(3)}"}
        return {"metadata": metadata, "roleRef": role, "subjects": random.choices(SUBJECTS, k=random.randrange(4))}
    verbs = [[random.choice(("get", "list", "watch"))] for _ in range(random.randrange(3))]
    rules = [{"verbs": each, "apiGroups": [""], "resources": ["pods"]} for each in verbs]
    return {"metadata": metadata, **({"rules": rules} if rules or random.random() < 0.5 else {})}


def is_meant(subject: Obj, namespace: str, user: UserInfo) -> bool:
    if subject["kind"] == "ServiceAccount":
        return user.name == f"system:serviceaccount:{subject.get('namespace') or namespace}:{subject['name']}"
    return subject["name"] in ((user.name,) if subject["kind"] == "User" else user.groups)


def expected(there: dict[str, Obj], user: UserInfo, asked: str) -> dict[tuple[str, str], Any]:
    """By the namespace and name of a binding: the place of its first subject, and its role's rules, if it is there."""
    wanted: dict[tuple[str, str], Any] = {}
    for obj in there.values():
        namespace = obj["metadata"].get("namespace", "")
        if "roleRef" not in obj or namespace not in ("", asked):
            continue
        role = obj["roleRef"]
        path = f"clusterroles/{role['name']}" if role["kind"] == "ClusterRole" else f"roles/{namespace}/{role['name']}"
        rules = there[path].get("rules", []) if path in there else None
        for place, subject in enumerate(obj["subjects"]):
            if is_meant(subject, namespace, user):
                wanted[namespace, obj["metadata"]["name"]] = (place, rules)
                break
    return wanted


def found(bindings: RoleBindings, user: UserInfo, asked: str) -> dict[tuple[str, str], Any]:
    """The same as the bindings tell it."""
    told = {}
    for bound in bindings.of(user, asked):
        metadata = bound.binding["metadata"]
        rules = None if bound.is_broken else [rule.source for rule in bound.rules]
        told[metadata.get("namespace", ""), metadata["name"]] = (bound.place, rules)
    return told


def assert_first_of_each_role(bindings: RoleBindings, user: UserInfo, asked: str) -> None:
    held = list(bindings.of(user, asked))
    roles = [bound.role for bound in held]
    first = [bound for place, bound in enumerate(held) if bound.role not in roles[:place]]
    assert list(map(id, bindings.deciding(user, asked))) == list(map(id, first)), (user.name, asked)


@pytest.mark.parametrize("seed", range(6))
def test_bindings_after_random_changes_are_those_of_all_objects(seed: int) -> None:
    random, bindings = Random(seed), RoleBindings()
    there: dict[str, Obj] = {}
    records: dict[str, Record] = {}
    for revision in range(1, 400):
        plural = random.choice(("roles", "clusterroles", "rolebindings", "clusterrolebindings"))
        namespace = "" if plural.startswith("cluster") else random.choice(SPACES)
        name = f"{'b' if plural.endswith('bindings') else 'r'}{random.randrange(3)}"
        key = "/".join(filter(None, (plural, namespace, name)))
        old, new = records.pop(key, None), None
        if old is None or random.random() < 0.6:
            there[key] = made(random, plural, namespace, name)
            new = records[key] = Record(key, orjson.dumps(there[key]), revision)
        else:
            del there[key]
        bindings.change(plural, old, new)
        for user in USERS:
            for asked in ("", *SPACES):
                assert found(bindings, user, asked) == expected(there, user, asked), (user.name, asked)
                assert_first_of_each_role(bindings, user, asked)
    for key, record in records.items():
        bindings.change(key.partition("/")[0], record, None)
    assert not bindings._subjects and not bindings._there and not bindings._roles, "nothing is left behind"
