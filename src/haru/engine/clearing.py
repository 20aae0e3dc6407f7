"""The cluster without some of its pods: their room, their ports, their rules and the devices that only they used.

A `Clearing` takes pods away and puts them back, and makes snapshots in between. Each step costs what it changes:
nodes and claims that are not concerned are shared with the base, and a node that was seen in some state before is
the same object again, so that whoever has judged it need not judge it anew.
Source: our own; KEP-4381 for when a claim is free (1.36 does not free devices when it simulates evictions).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from haru.engine.cluster import Snapshot
from haru.engine.consumers import consumer_key, freed
from haru.engine.decision import GroupKey, Obj
from haru.engine.groupstate import GroupState
from haru.engine.nodeinfo import NodeInfo
from haru.engine.persistent import Patched
from haru.engine.pods import PodInfo

_PODS, _GROUPS = "pods", "podgroups"


def claim_users(snapshot: Snapshot, path: str) -> frozenset[str] | None:
    """The pods on nodes whose going frees a claim, by path; None if it is also held otherwise, or by nobody."""
    claim = snapshot.claims[path]
    namespace = claim["metadata"].get("namespace") or "default"
    users: set[str] = set()
    for entry in (claim.get("status") or {}).get("reservedFor") or ():
        name = entry.get("name") or ""
        if entry.get("resource") == _GROUPS:
            members = snapshot.group_state(GroupKey(namespace, name)).scheduled
            users.update(member for member in members if path in snapshot.pods[member].claim_paths)
            continue
        pod = snapshot.pods.get(f"{namespace}/{name}")
        if (
            entry.get("resource") != _PODS
            or pod is None
            or not pod.node
            or entry.get("uid") not in ("", None, pod.key.uid)
        ):
            return None
        users.add(pod.key.path)
    return frozenset(users) or None


class Clearing:
    """A base snapshot and the pods that are taken away from it at the moment."""

    def __init__(self, base: Snapshot) -> None:
        self.base = base
        self._gone: dict[str, PodInfo] = {}
        self._nodes: dict[str, NodeInfo] = {}
        self._known_nodes: dict[tuple[str, frozenset[str]], NodeInfo] = {}
        self._users: dict[str, frozenset[str] | None] = {}
        self._claims: dict[str, Obj] = {}
        self._free: set[str] = set()

    def take(self, pods: Iterable[PodInfo]) -> None:
        """Take pods away; those that are away already are passed over."""
        taken = [pod for pod in pods if pod.key.path not in self._gone]
        for pod in taken:
            self._gone[pod.key.path] = pod
        self._change(taken)

    def put_back(self, pods: Iterable[PodInfo]) -> None:
        """Put pods back that were taken away; those that were not are passed over."""
        returned = [pod for pod in pods if self._gone.pop(pod.key.path, None) is not None]
        self._change(returned)

    def snapshot(self) -> Snapshot:
        """The base without the pods that are away."""
        base = self.base
        if not self._gone:
            return base
        gone = dict.fromkeys(self._gone)
        return replace(
            base,
            nodes=Patched(base.nodes, dict(self._nodes)),
            pods=Patched(base.pods, gone),
            claims=Patched(base.claims, dict(self._claims)),
            in_flight=Patched(base.in_flight, dict.fromkeys(self._free)),
            groups=Patched(base.groups, self._groups()),
            allocated=base.allocated.freed(self._free),
            anti_affine=Patched(base.anti_affine, gone),
            leaving=Patched(base.leaving, gone),
        )

    def _change(self, pods: Sequence[PodInfo]) -> None:
        self._change_nodes(pods)
        for path in self._claims_of(pods):
            users = self._users_of(path)
            self._free.discard(path)
            self._claims.pop(path, None)
            if users is not None and users <= self._gone.keys():
                self._free.add(path)
                self._claims[path] = freed(self.base.claims[path])
            else:
                self._keep_claim(path)

    def _keep_claim(self, path: str) -> None:
        """A claim that is used by others too loses the pods that are away."""
        claim = self.base.claims[path]
        namespace = claim["metadata"].get("namespace") or "default"
        entries = claim["status"].get("reservedFor") or ()
        staying = [e for e in entries if e.get("resource") != _PODS or f"{namespace}/{e.get('name')}" not in self._gone]
        if len(staying) < len(entries):
            self._claims[path] = {**claim, "status": {**claim["status"], "reservedFor": staying}}

    def _change_nodes(self, pods: Iterable[PodInfo]) -> None:
        for name in dict.fromkeys(pod.node for pod in pods):
            before = self.base.nodes.get(name)
            if before is None:
                continue
            away = self._gone.keys() & before.pods.keys()
            key = (name, frozenset(away))
            if not away:
                self._nodes.pop(name, None)
                continue
            if key not in self._known_nodes:
                self._known_nodes[key] = before.rebuilt(p for path, p in before.pods.items() if path not in away)
            self._nodes[name] = self._known_nodes[key]

    def _groups(self) -> dict[str, GroupState | None]:
        changed: dict[str, set[str]] = {}
        for path, pod in self._gone.items():
            if pod.group is not None:
                changed.setdefault(pod.group.path, set()).add(path)
        states = ((path, self.base.groups.get(path), paths) for path, paths in changed.items())
        return {path: state.without(paths) for path, state, paths in states if state is not None}

    # Claims

    def _claims_of(self, pods: Iterable[PodInfo]) -> set[str]:
        """The allocated claims that may become free, or be taken again, with these pods."""
        used, found = self.base.used_claims, set[str]()
        for pod in pods:
            found |= used.get(consumer_key(_PODS, pod.key.namespace, pod.key.name)) or frozenset()
            if pod.group is not None:
                found |= used.get(consumer_key(_GROUPS, *pod.group)) or frozenset()
        return found

    def _users_of(self, path: str) -> frozenset[str] | None:
        """The running pods that hold a claim, by path; None if something else holds it too, or nobody."""
        if path not in self._users:
            self._users[path] = claim_users(self.base, path)
        return self._users[path]
