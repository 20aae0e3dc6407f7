"""Two API servers of different versions on one etcd: what only one serves is there at both (KEP 4020)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from mixed_world import ADMIN, GROUPS, JANE, LIST, Server, World, acquainted, pod_group, resources

from etcd_process import Etcd
from haru.apiserver.auth import certificates
from haru.files import write_whole
from waiting import until

Obj = dict[str, Any]
pytestmark = pytest.mark.asyncio(loop_scope="module")
NEWER = {
    "devicetaintrules.v1beta2.resource.k8s.io",
    "mutatingadmissionpolicies.v1.admissionregistration.k8s.io",
    "mutatingadmissionpolicybindings.v1.admissionregistration.k8s.io",
    "podgroups.v1alpha2.scheduling.k8s.io",
    "resourcepoolstatusrequests.v1alpha3.resource.k8s.io",
    "workloads.v1alpha2.scheduling.k8s.io",
}


class Pair:
    def __init__(self, world: World, old: Server, new: Server) -> None:
        self.world, self.old, self.new = world, old, new


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(etcd: Etcd, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    world = World(tmp_path_factory.mktemp("mixed"), etcd)
    try:
        old, new = await world.start("old", 35), await world.start("new", 36)
        await acquainted(old, new)
        yield Pair(world, old, new)
    finally:
        await world.close()


async def removed(server: Server, name: str) -> None:
    """Delete a group, which a finalizer holds."""
    await server.call("DELETE", f"{GROUPS}/{name}")
    await server.call("PATCH", f"{GROUPS}/{name}", {"metadata": {"finalizers": None}})
    assert (await server.call("GET", f"{GROUPS}/{name}")).status == 404


# --- requests


async def test_every_verb_is_forwarded_to_the_serving_peer(pair: Pair) -> None:
    old, new = pair.old, pair.new
    answer = await old.call("POST", GROUPS, pod_group("ring"))
    assert answer.status == 201, answer.body
    made = answer.json
    assert (await new.call("GET", f"{GROUPS}/ring")).json == made
    assert (await old.call("GET", f"{GROUPS}/ring")).json == made
    listed = await old.call("GET", f"{GROUPS}?limit=5&fieldSelector=metadata.name%3Dring")
    assert listed.status == 200 and [item["metadata"]["name"] for item in listed.json["items"]] == ["ring"]
    patched = await old.call("PATCH", f"{GROUPS}/ring?fieldManager=tests", {"metadata": {"labels": {"a": "b"}}})
    assert patched.json["metadata"]["labels"] == {"a": "b"}
    assert patched.json["metadata"]["managedFields"][-1]["manager"] == "tests"
    stale = await old.call("PUT", f"{GROUPS}/ring", made)
    assert stale.status == 409 and stale.json["reason"] == "Conflict"
    assert (await old.call("POST", GROUPS, pod_group("ring"))).json["reason"] == "AlreadyExists"
    status = await old.call("GET", f"{GROUPS}/ring/status")
    assert status.json["metadata"]["name"] == "ring"
    head = await old.call("HEAD", f"{GROUPS}/ring")
    assert (head.status, head.body) == (405, b"")
    assert (await old.call("DELETE", f"{GROUPS}/ring")).json["metadata"]["deletionTimestamp"]  # a finalizer holds it
    assert (await old.call("PATCH", f"{GROUPS}/ring", {"metadata": {"finalizers": None}})).status == 200
    assert (await old.call("GET", f"{GROUPS}/ring")).json["message"] == ('podgroups.scheduling.k8s.io "ring" not found')


async def test_cluster_scoped_resource_of_newer_version_is_forwarded(pair: Pair) -> None:
    path = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
    assert (await pair.old.call("GET", path)).json["kind"] == "DeviceTaintRuleList"
    # In the version that both have each answers by itself.
    before = await pair.old.forwarded()
    assert (await pair.old.call("GET", "/api/v1/namespaces/default/configmaps")).status == 200
    assert await pair.old.forwarded() == before


async def test_watch_events_are_forwarded(pair: Pair) -> None:
    async with pair.old.open("GET", f"{GROUPS}?watch=true&timeoutSeconds=60&allowWatchBookmarks=true") as stream:
        assert stream.status == 200
        assert json.loads(await stream.content.readline())["type"] == "BOOKMARK"  # where the first events end
        for name in ("one", "two"):
            assert (await pair.new.call("POST", GROUPS, pod_group(name))).status == 201
            event = json.loads(await stream.content.readline())
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", name)
    for name in ("one", "two"):
        await removed(pair.new, name)
    # Both ends forget a watch whose client has gone.
    await until(lambda: not pair.old.streams.others, "the proxied stream has ended")


async def test_forwarded_watch_ends_after_timeout_seconds(pair: Pair) -> None:
    now = (await pair.new.call("GET", GROUPS)).json["metadata"]["resourceVersion"]
    async with pair.old.open("GET", f"{GROUPS}?watch=true&timeoutSeconds=1&resourceVersion={now}") as stream:
        assert (stream.status, await stream.read()) == (200, b"")


async def test_resource_served_by_no_peer_is_not_found(pair: Pair) -> None:
    for path in ("/apis/nobody.example/v1/things", "/apis/scheduling.k8s.io/v1alpha1/workloads", f"{GROUPS}/a/b/c/d"):
        for server in (pair.old, pair.new):
            answer = await server.call("GET", path)
            assert answer.status == 404, path
    # A subresource of what is served here is this server's, whoever has it.
    assert (await pair.old.call("GET", "/api/v1/namespaces/default/pods/a/nonsense")).status == 404


async def test_large_forwarded_response_is_unchanged(pair: Pair) -> None:
    for number in range(3):
        big = pod_group(f"big-{number}")
        big["metadata"]["annotations"] = {"filler": "x" * 60_000}
        assert (await pair.new.call("POST", GROUPS, big)).status == 201
    plain = await pair.new.call("GET", GROUPS)
    packed = await pair.old.call("GET", GROUPS, Accept_Encoding="gzip")
    assert packed.headers["Content-Encoding"] == "gzip" and packed.body == plain.body
    assert "Content-Encoding" not in (await pair.old.call("GET", GROUPS, Accept_Encoding="identity")).headers
    table = await pair.old.call("GET", GROUPS, Accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert table.json["kind"] == "Table"
    for number in range(3):
        await removed(pair.old, f"big-{number}")


async def test_concurrent_requests_are_forwarded(pair: Pair) -> None:
    answers = await asyncio.gather(*(pair.old.call("POST", GROUPS, pod_group(f"p-{n}")) for n in range(12)))
    assert [answer.status for answer in answers] == [201] * 12
    names = {item["metadata"]["name"] for item in (await pair.old.call("GET", GROUPS)).json["items"]}
    assert names == {f"p-{n}" for n in range(12)}
    assert (await pair.old.call("DELETE", GROUPS)).status == 200
    for n in range(12):
        await removed(pair.new, f"p-{n}")
    assert (await pair.old.call("GET", GROUPS)).json["items"] == []


# --- who has asked


async def test_forwarded_request_carries_impersonated_user_in_audit(pair: Pair) -> None:
    headers = {"Impersonate_User": "jürgen", "Impersonate_Uid": "7", "Impersonate_Group": "devs"}
    headers["Impersonate_Extra_Example.com%2fTeam"] = "night"
    answer = await pair.old.call("GET", f"{GROUPS}?labelSelector=who%3Djuergen", User_Agent="t/1", **headers)
    assert answer.status == 403  # at the source: nobody gave the right
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "readers"}
    rules = [{"apiGroups": ["scheduling.k8s.io"], "resources": ["podgroups"], "verbs": ["get", "list"]}]
    for kind, more in (("ClusterRole", {"rules": rules}), ("ClusterRoleBinding", {"roleRef": role})):
        if kind == "ClusterRoleBinding":
            more["subjects"] = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "devs"}]
        obj = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "readers"}, **more}
        path = f"/apis/rbac.authorization.k8s.io/v1/{kind.lower()}s"
        assert (await pair.new.call("POST", path, obj)).status == 201
    answer = await pair.old.call("GET", f"{GROUPS}?labelSelector=who%3Djuergen", User_Agent="t/1", **headers)
    assert answer.status == 200
    event = await pair.new.told(lambda event: "juergen" in event["requestURI"])
    assert event["user"] == {
        "username": "jürgen",
        "uid": "7",
        "groups": ["devs", "system:authenticated"],
        "extra": {"example.com/team": ["night"]},
    }
    # Both logs tell of one request.
    source = await pair.old.told(lambda each: each.get("auditID") == event["auditID"] and "impersonatedUser" in each)
    assert source["user"]["username"] == "admin"


async def test_permissions_are_checked_at_both_servers(pair: Pair) -> None:
    answer = await pair.old.call("GET", f"{GROUPS}?limit=77", token=JANE)
    assert answer.status == (await pair.new.call("GET", f"{GROUPS}?limit=77", token=JANE)).status
    refused = await pair.old.call("DELETE", f"{GROUPS}/x", token=JANE)
    assert refused.status == 403 and refused.json["message"] == (
        'podgroups.scheduling.k8s.io "x" is forbidden: User "jane" cannot delete resource "podgroups" in API group '
        '"scheduling.k8s.io" in the namespace "default"'
    )
    assert (await pair.old.call("GET", GROUPS, token="nobody's")).status == 401


# --- discovery


async def test_discovery_is_merged_unless_nopeer_is_requested(pair: Pair) -> None:
    own = resources(await pair.old.groups(f"{LIST};profile=nopeer"))
    union = resources(await pair.old.groups())
    assert union - own == NEWER and union == resources(await pair.new.groups())
    # The newer one serves everything: the others add nothing, and it says so by its ETag.
    merged, alone = [await pair.new.call("GET", "/apis", Accept=accept) for accept in (LIST, f"{LIST};profile=nopeer")]
    assert merged.headers["ETag"] == alone.headers["ETag"] and merged.body == alone.body
    order = [group["metadata"]["name"] for group in await pair.old.groups()]
    assert order == [group["metadata"]["name"] for group in alone.json["items"]]


async def test_only_aggregated_discovery_document_is_merged(pair: Pair) -> None:
    legacy = (await pair.old.call("GET", "/apis", Accept="application/json")).json
    assert legacy["kind"] == "APIGroupList"
    scheduling = next(group for group in legacy["groups"] if group["name"] == "scheduling.k8s.io")
    assert [version["version"] for version in scheduling["versions"]] == ["v1"]
    assert (await pair.old.call("GET", "/apis/scheduling.k8s.io/v1alpha2")).status == 404
    assert (await pair.old.call("GET", "/apis/scheduling.k8s.io")).json["versions"][0]["version"] == "v1"
    core = await pair.old.call("GET", "/api", Accept=LIST)
    assert [group["metadata"] for group in core.json["items"]] == [{}]
    # A clause that is not served any more falls to the next one.
    beta = f"{LIST.replace('v=v2', 'v=v2beta1')},application/json"
    assert (await pair.old.call("GET", "/apis", Accept=beta)).json["kind"] == "APIGroupList"


async def test_merged_discovery_is_cached_with_etag(pair: Pair) -> None:
    first = await pair.old.call("GET", "/apis", Accept=LIST)
    hits = await pair.old.metric("aggregator_discovery_peer_aggregated_cache_hits_total")
    etag = first.headers["ETag"]
    assert len(etag) == 130 and etag == etag.upper()
    assert first.headers["Vary"] == "Accept" and first.headers["Cache-Control"] == "public"
    assert first.headers["Content-Type"] == LIST
    again = await pair.old.call("GET", "/apis", Accept=LIST, If_None_Match=etag)
    assert (again.status, again.body) == (304, b"")
    assert await pair.old.metric("aggregator_discovery_peer_aggregated_cache_hits_total") == hits + 1
    alone = await pair.old.metric("aggregator_discovery_nopeer_requests_total")
    await pair.old.call("GET", "/apis", Accept=f"{LIST};profile=nopeer")
    assert await pair.old.metric("aggregator_discovery_nopeer_requests_total") == alone + 1
    assert await pair.old.metric("aggregator_discovery_peer_aggregated_cache_misses_total") >= 1
    assert await pair.old.metric("aggregator_discovery_aggregation_count_total") >= 1


async def test_custom_resources_are_not_forwarded(pair: Pair) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": "wagons", "singular": "wagon", "kind": "Wagon", "listKind": "WagonList"}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    spec = {"group": "train.example", "scope": "Cluster", "names": names, "versions": versions}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "wagons.train.example"},
        "spec": spec,
    }
    forwarded = await pair.old.forwarded()
    assert (await pair.new.call("POST", path, definition)).status == 201
    assert (await pair.old.call("GET", "/apis/train.example/v1/wagons")).status == 200
    assert "wagons.v1.train.example" in resources(await pair.old.groups())
    assert ("train.example", "v1") in await pair.old.peers._excluded.now()
    # A peer that has started since tells of it, and is not believed.
    third = await pair.world.start("third")
    await acquainted(pair.old, third)
    offer = pair.old.peers.discovery_cache.offers[third.id]
    assert ("train.example", "v1", "wagons") in offer.resources
    assert (await pair.new.call("DELETE", f"{path}/wagons.train.example")).status == 200

    async def gone() -> bool:
        return (await pair.old.call("GET", "/apis/train.example/v1/wagons")).status == 404

    await until(gone, "the custom resource is gone")
    assert "wagons.v1.train.example" not in resources(await pair.old.groups())
    assert await pair.old.metric('apiserver_rerouted_request_total{code="200",group="",resource="",version=""}') >= 4
    assert await pair.old.forwarded() == forwarded
    await pair.world.stop(third)


async def test_kubectl_finds_resources_served_only_by_the_peer(pair: Pair, kubectl: str, tmp_path: Path) -> None:
    ca = pair.world.authorities.serving.certificate
    write_whole(tmp_path / "config", certificates.kubeconfig(pair.old.url, ca, ADMIN))
    (tmp_path / "group.json").write_text(json.dumps(pod_group("by-kubectl")))

    async def run(*arguments: str) -> str:
        environment = {"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "config"), "PATH": "/usr/bin:/bin"}
        process = await asyncio.create_subprocess_exec(
            kubectl, *arguments, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(60):
            out, problem = await process.communicate()
        assert process.returncode == 0, problem.decode()
        return out.decode()

    assert "podgroup.scheduling.k8s.io/by-kubectl created" in await run("create", "-f", str(tmp_path / "group.json"))
    table = await run("get", "podgroups")
    assert table.splitlines()[0].startswith("NAME") and "by-kubectl" in table
    assert "podgroups" in await run("api-resources", "--api-group=scheduling.k8s.io")
    await removed(pair.new, "by-kubectl")


# --- what a server says of itself


async def test_version_and_gates_equal_emulated_version(pair: Pair) -> None:
    old, new = (await pair.old.call("GET", "/version")).json, (await pair.new.call("GET", "/version")).json
    told = ("minor", "emulationMinor", "minCompatibilityMinor")
    assert [old[name] for name in told] == ["36", "35", "34"] and [new[name] for name in told] == ["36", "36", "35"]
    feature = 'kubernetes_feature_enabled{name="UnknownVersionInteroperabilityProxy",stage='
    assert await pair.old.metric(f'{feature}"ALPHA"') == 1 and await pair.new.metric(f'{feature}"BETA"') == 1
    assert await pair.old.metric('kubernetes_feature_enabled{name="KubeletPSI",stage="BETA"}') == 1
    assert await pair.new.metric('kubernetes_feature_enabled{name="KubeletPSI",stage=""}') == 1
    text = (await pair.old.call("GET", "/metrics")).body.decode()
    assert "WorkloadWithJob" not in text
    index = (await pair.old.call("GET", "/openapi/v3")).json["paths"]
    assert "apis/scheduling.k8s.io/v1alpha2" not in index and "apis/scheduling.k8s.io/v1" in index
    assert "apis/scheduling.k8s.io/v1alpha2" in (await pair.new.call("GET", "/openapi/v3")).json["paths"]


async def test_readyz_reports_peer_proxy(pair: Pair) -> None:
    hook = "poststarthook/unknown-version-proxy-filter"
    verbose = await pair.old.call("GET", "/readyz?verbose", token="")
    assert f"[+]{hook} ok" in verbose.body.decode()
    assert (await pair.old.call("GET", f"/readyz/{hook}")).status == 200
    peers = pair.old.peers
    peers._synced = False
    try:
        failing = await pair.old.call("GET", "/readyz", token="")
        assert failing.status == 500 and hook in failing.body.decode()
        assert (await pair.old.call("GET", "/livez", token="")).status == 200
        assert (await pair.old.call("GET", GROUPS)).status == 404  # nothing is forwarded before
    finally:
        peers._synced = True


async def test_identity_lease_exists_per_server(pair: Pair) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    answer = await pair.new.call("GET", f"{path}?labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver")
    leases = {lease["metadata"]["name"]: lease for lease in answer.json["items"]}
    assert leases.keys() >= {pair.old.id, pair.new.id}
    lease = leases[pair.old.id]
    assert lease["metadata"]["labels"]["kubernetes.io/hostname"] == "old"
    port = pair.old.url.rpartition(":")[2]
    assert lease["metadata"]["annotations"]["kubernetes.io/peer-advertise-address"] == f"127.0.0.1:{port}"
    assert (
        lease["spec"]["holderIdentity"].startswith(f"{pair.old.id}_") and lease["spec"]["leaseDurationSeconds"] == 3600
    )
    await pair.old.peers.identity.renew()
    renewed = (await pair.new.call("GET", f"{path}/{pair.old.id}")).json
    assert renewed["spec"]["renewTime"] > lease["spec"]["renewTime"]
    assert renewed["spec"]["holderIdentity"] == lease["spec"]["holderIdentity"]
    # One that somebody has deleted comes again with the next renewal.
    assert (await pair.new.call("DELETE", f"{path}/{pair.old.id}")).status == 200
    await pair.old.peers.identity.renew()
    assert (await pair.new.call("GET", f"{path}/{pair.old.id}")).status == 200
    await acquainted(pair.old, pair.new)


async def test_expired_identity_leases_are_deleted(pair: Pair) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    labels = {"apiserver.kubernetes.io/identity": "kube-apiserver"}
    for name, time, label in (
        ("apiserver-dead", "2020-01-01T00:00:00.000000Z", labels),
        ("apiserver-alive", "2999-01-01T00:00:00.000000Z", labels),
        ("somebody-elses", "2020-01-01T00:00:00.000000Z", {}),
    ):
        spec = {"holderIdentity": f"{name}_1", "leaseDurationSeconds": 3600, "renewTime": time}
        metadata = {"name": name, "namespace": "kube-system", "labels": label}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        assert (await pair.new.call("POST", path, lease)).status == 201
    assert await pair.old.peers.identity.collect() == 1
    names = {lease["metadata"]["name"] for lease in (await pair.new.call("GET", path)).json["items"]}
    assert names >= {"apiserver-alive", "somebody-elses", pair.old.id, pair.new.id} and "apiserver-dead" not in names
    for name in ("apiserver-alive", "somebody-elses"):
        await pair.new.call("DELETE", f"{path}/{name}")


async def test_restarted_peer_is_discovered_again_and_stopped_peer_forgotten(pair: Pair) -> None:
    third = await pair.world.start("passing-guest")
    await acquainted(pair.old, third)
    name, holder = third.id, third.peers.identity.holder
    assert await pair.old.objects.store.get(f"peerserverleases/{name}") is not None
    await pair.world.stop(third)
    known = pair.old.peers.discovery_cache
    await until(lambda: name not in known.offers, "the guest is forgotten")
    await pair.old.objects.store.progress()
    assert await pair.old.objects.store.get(f"peerserverleases/{name}") is None
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}"
    assert (await pair.old.call("GET", path)).status == 404
    again = await pair.world.start("passing-guest")
    assert (again.id, again.peers.identity.holder != holder) == (name, True)
    await acquainted(pair.old, again)
    await pair.world.stop(again)


async def test_older_server_without_peer_proxy_still_works(pair: Pair) -> None:
    plain = await pair.world.start("plain", 35, "", peer_ca=None, proxy_cert=None, proxy_key=None)
    wanted = f"{LIST};profile=nopeer,{LIST},application/json"
    groups = await plain.groups(wanted)
    assert not NEWER & resources(groups) and resources(groups) == resources(await plain.groups())
    assert (await plain.call("GET", GROUPS)).status == 404
    assert "unknown-version-proxy-filter" not in (await plain.call("GET", "/readyz?verbose")).body.decode()
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{plain.id}"
    assert (await pair.new.call("GET", lease)).status == 200
    # Where it is nobody knows; so nobody asks it.
    errors = 'apiserver_peer_discovery_sync_errors_total{type="hostport_resolution"}'

    async def tried() -> bool:
        return await pair.new.metric(errors) > 0

    await until(tried, "the newer server has looked for it")
    assert (await pair.new.call("GET", GROUPS)).status == 200
    await pair.world.stop(plain)
