from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from haru.engine.state import ClaimAllocation, ClaimReservation, KeptFields, MemberDecision, PodKey
from haru.kube.errors import StatusError, conflict_error, not_found_error
from haru.kube.kinds import Kind
from haru.scheduler.binding.binder import Binder, PodGoneError
from haru.scheduler.binding.claim_updates import FINALIZER, BindingError, as_kept, claim_writes, reserved_claim
from haru.scheduler.binding.write_retry import WriteTimes
from haru.scheduler.shared import WatchedObjects

Obj = dict[str, Any]
ALLOCATION: Obj = {"devices": {"results": [{"request": "gpu", "driver": "d", "pool": "n1", "device": "gpu-0"}]}}
NODE: Obj = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
HERE: Obj = {**ALLOCATION, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [NODE]}]}}
OTHER: Obj = {"devices": {"results": [{"request": "gpu", "driver": "d", "pool": "n1", "device": "gpu-1"}]}}


def consumer(name: str) -> Obj:
    return {"resource": "pods", "name": name, "uid": f"uid-{name}"}


def member(name: str, claim: str = "c", allocation: Obj | None = ALLOCATION) -> MemberDecision:
    key = PodKey("ns", name, f"uid-{name}")
    if allocation is None:
        reservation = ClaimReservation("ns", claim, f"uid-{claim}", consumer(name))
        return MemberDecision(key, "scheduled", "n1", reservations=(reservation,))
    made = ClaimAllocation("ns", claim, f"uid-{claim}", allocation, consumer(name))
    return MemberDecision(key, "scheduled", "n1", allocations=(made,))


def claim(name: str = "c", **status: Any) -> Obj:
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "1"},
        "status": status,
    }


class FakeApi:
    """Objects with revisions; `faults` are raised, one a call, by the verbs they name."""

    def __init__(self, *claims: Obj, pods: tuple[Obj, ...] = ()) -> None:
        self.claims = {c["metadata"]["name"]: c for c in claims}
        self.pods = {p["metadata"]["name"]: p for p in pods}
        self.faults: dict[str, list[Exception]] = {}
        self.bound: dict[str, str] = {}
        self.bound_at: str | None = None
        self.calls: list[str] = []

    def _fault(self, verb: str) -> None:
        self.calls.append(verb)
        if self.faults.get(verb):
            raise self.faults[verb].pop(0)

    async def get(self, kind: Any, name: str, namespace: str = "") -> Obj:
        self._fault("get")
        known = self.pods if kind.plural == "pods" else self.claims
        if name not in known:
            raise not_found_error(kind.group, kind.plural, name)
        return copy.deepcopy(known[name])

    async def update(self, kind: Any, obj: Obj, subresource: str = "") -> Obj:
        self._fault("update")
        return self._store(obj, "metadata")

    async def update_status(self, kind: Any, obj: Obj) -> Obj:
        self._fault("update_status")
        return self._store(obj, "status")

    def _store(self, obj: Obj, part: str) -> Obj:
        known = self.claims[obj["metadata"]["name"]]
        if known["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            raise conflict_error("resource.k8s.io", "resourceclaims", obj["metadata"]["name"])
        known = copy.deepcopy(known)
        known[part] = copy.deepcopy(obj[part])
        known["metadata"]["resourceVersion"] = str(int(obj["metadata"]["resourceVersion"]) + 1)
        self.claims[obj["metadata"]["name"]] = known
        return copy.deepcopy(known)

    async def create_subresource(self, kind: Any, name: str, subresource: str, obj: Obj, namespace: str = "") -> Obj:
        self._fault("bind")
        self.bound[name] = obj["target"]["name"]
        self.bound_at = obj["metadata"].get("resourceVersion")
        return {}

    async def patch(self, kind: Any, name: str, patch: Obj, *_: Any) -> Obj:
        self._fault("patch")
        return {}


async def no_sleep(_: float) -> None:
    return None


class CachedObjects(WatchedObjects):
    """Informers that have one claim and one pod, or nothing."""

    def __init__(self, claim: Obj | None, pod: Obj | None) -> None:
        super().__init__()
        self.claim, self.pod = claim, pod

    def get(self, kind: Kind, path: str) -> Obj | None:
        return self.claim if kind.kind == "ResourceClaim" else self.pod


def binder(api: FakeApi, cached: Obj | None = None, pod: Obj | None = None) -> Binder:
    times = WriteTimes(lambda: datetime(2026, 11, 20, 10, tzinfo=UTC), sleep=no_sleep)
    return Binder(api, CachedObjects(cached, pod), times)  # type: ignore[arg-type]


def test_one_claim_write_has_all_consumers() -> None:
    writes = claim_writes([member("a"), member("b", allocation=None), member("c", claim="other")])
    assert set(writes) == {"ns/c", "ns/other"}
    assert [c["name"] for c in writes["ns/c"].consumers] == ["a", "b"]
    assert writes["ns/c"].allocation is ALLOCATION


async def test_claim_gets_finalizer_allocation_and_reservation() -> None:
    api = FakeApi(claim())
    assert await binder(api, claim()).reserve([member("a")], nominate=False) == {}
    stored = api.claims["c"]
    assert stored["metadata"]["finalizers"] == [FINALIZER]
    assert stored["status"]["allocation"]["devices"] == ALLOCATION["devices"]
    assert stored["status"]["allocation"]["allocationTimestamp"] == "2026-11-20T10:00:00Z"
    assert stored["status"]["reservedFor"] == [consumer("a")]
    assert api.calls == ["update", "update_status"]


MANAGED = {"managedFields": [{"manager": "m"}]}


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        ({}, False),
        ({"metadata": {"finalizers": [FINALIZER, "more"], **MANAGED}}, False),
        ({"metadata": {"labels": {"a": "b"}}}, True),
        ({"metadata": {"annotations": None}}, True),
        ({"spec": {"devices": {"requests": []}}}, True),
        ({"status": {"allocation": OTHER}}, True),
    ],
)
def test_answer_is_kept_as_what_was_sent_unless_more_differs(changed: Obj, differs: bool) -> None:
    annotated = {"metadata": {**claim()["metadata"], "annotations": {"x": "y"}}, "spec": {"devices": {}}}
    known = KeptFields().claim({**claim(), **annotated})
    sent = reserved_claim(known, claim_writes([member("a", allocation=HERE)])["ns/c"], None)
    answer = {**copy.deepcopy(sent), **{part: {**sent[part], **fields} for part, fields in changed.items()}}
    answer["metadata"]["resourceVersion"] = "9"
    kept = as_kept(answer, sent, known)
    if differs:
        assert kept is None
        return
    assert kept == KeptFields().claim(answer)
    assert kept["status"]["allocation"]["devices"] is sent["status"]["allocation"]["devices"]
    assert kept["spec"] is known["spec"]
    assert as_kept(answer, sent, None) is None


async def test_conflict_from_stale_cache_is_resolved_by_reading() -> None:
    newer = claim()
    newer["metadata"]["resourceVersion"] = "7"
    api = FakeApi(newer)
    assert await binder(api, claim()).reserve([member("a")], nominate=False) == {}
    assert api.calls == ["update", "get", "update", "update_status"]


async def test_unchanged_claim_is_not_written_again() -> None:
    api = FakeApi(claim())
    await binder(api).reserve([member("a")], nominate=False)
    api.calls.clear()
    assert await binder(api).reserve([member("a")], nominate=False) == {}
    assert api.calls == ["get"]


@pytest.mark.parametrize(
    ("stored", "problem"),
    [
        (claim(allocation=OTHER), "got allocated elsewhere"),
        ({**claim(), "metadata": {**claim()["metadata"], "uid": "another"}}, "was replaced"),
        ({**claim(), "metadata": {**claim()["metadata"], "deletionTimestamp": "x"}}, "got deleted"),
        (None, "got deleted in the meantime"),
    ],
)
async def test_claim_conflict_fails_only_pods_of_that_claim(stored: Obj | None, problem: str) -> None:
    api = FakeApi(*([stored] if stored else []), claim("fine"))
    failures = await binder(api).reserve([member("a"), member("b", "fine")], nominate=False)
    assert [key.name for key in failures] == ["a"]
    assert problem in str(next(iter(failures.values())))


def test_reservation_of_deallocated_claim_is_refused() -> None:
    [write] = claim_writes([member("a", allocation=None)]).values()
    with pytest.raises(BindingError, match="lost its allocation"):
        reserved_claim(claim(), write, None)


async def test_release_removes_own_allocation_and_keeps_other_reservations() -> None:
    api = FakeApi(claim())
    await binder(api).reserve([member("a")], nominate=False)
    await binder(api).unreserver.release([member("a")])
    assert api.claims["c"]["status"] == {}
    assert api.claims["c"]["metadata"]["finalizers"] == []
    shared = FakeApi(claim(allocation=ALLOCATION, reservedFor=[consumer("x"), consumer("a")]))
    await binder(shared).unreserver.release([member("a", allocation=None)])
    assert shared.claims["c"]["status"] == {"allocation": ALLOCATION, "reservedFor": [consumer("x")]}


def pod(name: str, node: str = "", **metadata: Any) -> Obj:
    spec = {"nodeName": node} if node else {}
    return {"metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", **metadata}, "spec": spec}


async def test_binding_sends_uid_and_node() -> None:
    api = FakeApi()
    await binder(api).bind(member("a"))
    assert api.bound == {"a": "n1"}


@pytest.mark.parametrize(
    ("fault", "pods", "expected"),
    [
        (StatusError(409, "Conflict", "already assigned"), (pod("a", "n1"),), None),
        (StatusError(409, "Conflict", "already assigned"), (pod("a", "n2"),), PodGoneError),
        (StatusError(409, "Conflict", "other uid"), (pod("a", uid="another"),), PodGoneError),
        (not_found_error("", "pods", "a"), (), PodGoneError),
        (StatusError(403, "Forbidden", "no"), (pod("a"),), BindingError),
        (TimeoutError(), (pod("a", "n1"),), None),
        (TimeoutError(), (pod("a"),), None),
        (StatusError(500, "InternalError", "x"), (pod("a", deletionTimestamp="x"),), PodGoneError),
    ],
)
async def test_unclear_binding_response_is_resolved_by_reading(
    fault: Exception, pods: tuple[Obj, ...], expected: type[Exception] | None
) -> None:
    api = FakeApi(pods=pods)
    api.faults["bind"] = [fault]
    if expected is None:
        await binder(api).bind(member("a"))
        return
    with pytest.raises(expected):
        await binder(api).bind(member("a"))


async def test_binding_names_the_version_of_the_pod_that_was_seen_last() -> None:
    """So that one that arrives late is refused."""
    api, key = FakeApi(), member("a").pod
    seen = {"metadata": {"name": key.name, "namespace": key.namespace, "uid": key.uid, "resourceVersion": "7"}}
    await binder(api, pod=seen).bind(member("a"))
    assert api.bound_at == "7"


async def test_binding_without_response_is_retried_until_certain() -> None:
    api = FakeApi(pods=(pod("a"),))
    api.faults["bind"] = [TimeoutError() for _ in range(10)]
    await binder(api).bind(member("a"))
    assert api.calls.count("bind") == 11


async def test_refusals_are_final_except_for_required_gang_member() -> None:
    refusals: list[Exception] = [StatusError(500, "InternalError", "x") for _ in range(10)]
    api = FakeApi(pods=(pod("a"),))
    api.faults["bind"] = list(refusals)
    with pytest.raises(BindingError):
        await binder(api).bind(member("a"))
    api.faults["bind"] = list(refusals)
    await binder(api).bind(member("a"), insist=lambda: True)
    api.faults["bind"] = list(refusals)
    with pytest.raises(BindingError, match="the node is gone"):
        await binder(api).bind(member("a"), insist=lambda: True, obstacle=lambda: "the node is gone")


async def test_allocation_without_response_is_verified_and_rolled_back() -> None:
    api = FakeApi(claim())
    api.faults["update_status"] = [TimeoutError()]
    assert not await binder(api).reserve([member("a")], nominate=False)
    api.faults["get"] = [StatusError(500, "InternalError", "x") for _ in range(9)]
    api.faults["update_status"] = [TimeoutError(), StatusError(409, "Conflict", "x")]
    await binder(api).unreserver.release([member("a")])
    assert api.claims["c"]["status"] == {} and api.claims["c"]["metadata"]["finalizers"] == []


async def test_release_leaves_a_claim_that_was_made_anew_alone() -> None:
    fresh = claim(allocation=ALLOCATION, reservedFor=[consumer("a")])
    fresh["metadata"]["uid"] = "another"
    api = FakeApi(fresh)
    await binder(api).unreserver.release([member("a")])
    assert api.claims["c"] == fresh


async def test_release_overrides_write_that_may_be_in_progress() -> None:
    protected = claim()
    protected["metadata"]["finalizers"] = [FINALIZER]
    api = FakeApi(protected)
    await binder(api).unreserver.release([member("a")])
    assert api.claims["c"]["metadata"]["finalizers"] == []
    assert api.claims["c"]["metadata"]["resourceVersion"] == "2"  # whoever still wants to allocate version 1 fails


@pytest.mark.parametrize(
    ("now", "freed"),
    [(pod("a"), True), (pod("a", "n1"), False), (pod("a", uid="another"), False)],
    ids=["another version", "bound", "made anew"],
)
async def test_claim_is_freed_unless_a_binding_of_the_scheduler_before_has_arrived(now: Obj, freed: bool) -> None:
    """The version that this one knows of the pod is not the last: it reads what has become of it."""
    held = claim(allocation=ALLOCATION, reservedFor=[consumer("a")])
    api = FakeApi(held, pods=(now,))
    api.faults["patch"] = [conflict_error("", "pods", "a")]
    await binder(api).unreserver.deallocate(held, [pod("a")])
    assert (api.claims["c"]["status"] == {}) == freed


async def test_reservation_needed_by_siblings_is_kept() -> None:
    api = FakeApi(claim(allocation=ALLOCATION, reservedFor=[consumer("group")]))
    shared = ClaimReservation("ns", "c", "uid-c", consumer("group"))
    one = MemberDecision(PodKey("ns", "a", "uid-a"), "scheduled", "n1", reservations=(shared,))
    await binder(api).unreserver.release([one], kept_consumers={"uid-group"})
    assert api.claims["c"]["status"]["reservedFor"] == [consumer("group")]


async def test_nominations_are_written_and_missing_pod_fails_alone() -> None:
    api = FakeApi(claim("a"), claim("b"))
    api.faults["patch"] = [not_found_error("", "pods", "a")]
    failures = await binder(api).reserve([member("a", "a"), member("b", "b")], nominate=True)
    assert [key.name for key in failures] == ["a"]


@pytest.mark.parametrize(("nominated", "patches"), [("", 0), ("n1", 0), ("n0", 1)])
async def test_member_whose_claim_keeps_its_place_loses_nomination_to_another_node(
    nominated: str, patches: int
) -> None:
    """A scheduler that died before has left it."""
    metadata = {"name": "a", "namespace": "ns", "uid": "uid-a", "resourceVersion": "1"}
    pod = {"metadata": metadata, "spec": {}, "status": {"nominatedNodeName": nominated} if nominated else {}}
    api = FakeApi(claim("a"), pods=(pod,))
    assert await binder(api, pod=pod).reserve([member("a", "a", HERE)], nominate=True) == {}
    assert api.calls.count("patch") == patches


async def test_member_whose_claim_keeps_its_place_needs_no_nomination() -> None:
    api = FakeApi(claim("a"), claim("b"))
    local, shared = member("a", "a", HERE), member("b", "b")
    assert await binder(api).reserve([local], nominate=True) == {}
    assert "patch" not in api.calls
    assert await binder(api).reserve([shared], nominate=True) == {}
    assert api.calls.count("patch") == 1
