"""Kubelets' requests are approved, and approved requests for Kubernetes' own signers are signed."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from controller_cluster import Cluster
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from signing_request_objects import encoded_request

from haru.apiserver.auth import new_authority
from haru.apiserver.config import UserInfo
from haru.client.api import ApiClient
from haru.controllers.certificate_authority import ClusterSigning, SigningError
from haru.controllers.signing_request_cleaner import SIGNING_REQUESTS
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.kube.meta import get_condition
from haru.kube.signing_requests import CLIENT, KUBELET_CLIENT, KUBELET_SERVING, parsed

Obj = dict[str, Any]
SIGNING = "certificatesigningrequest-signing-controller"
APPROVING = "certificatesigningrequest-approving-controller"
NOW = datetime(2026, 6, 1, tzinfo=UTC)
NODE, NODES = "system:node:n1", ("system:nodes",)
OF_CLIENT = ["digital signature", "key encipherment", "client auth"]
RIGHTS = "system:certificates.k8s.io:certificatesigningrequests"
BINDINGS = known_kind("rbac.authorization.k8s.io/v1", "ClusterRoleBinding")


@pytest.fixture
def signing(tmp_path: Path) -> ClusterSigning:
    pair = new_authority(datetime.now(UTC) - timedelta(days=1))
    found = ClusterSigning(tmp_path / "ca.crt", tmp_path / "ca.key")
    found.certificate.write_bytes(pair.certificate)
    found.key.write_bytes(pair.key)
    return found


def loaded(certificate: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(certificate)


# -- the authority


def test_certificate_has_subject_names_and_usages_of_its_request(signing: ClusterSigning) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    text = encoded_request(NODE, NODES, dns=["n1"], addresses=["10.0.0.1"], email=["a@example.com"], key=key)
    authority = signing.authority()
    made = loaded(authority.sign(parsed(text), ["digital signature", "server auth"], timedelta(days=1), NOW))
    assert made.subject.rfc4514_string() == f"CN={NODE},O=system:nodes"
    assert made.issuer == authority.certificate.subject
    assert made.public_key() == key.public_key()
    made.verify_directly_issued_by(authority.certificate)
    extensions = {one.oid._name: (one.critical, one.value) for one in made.extensions}
    assert extensions["basicConstraints"] == (True, x509.BasicConstraints(ca=False, path_length=None))
    critical, usage = extensions["keyUsage"]
    assert critical and usage.digital_signature and not usage.key_encipherment
    assert [one.dotted_string for one in extensions["extendedKeyUsage"][1]] == ["1.3.6.1.5.5.7.3.1"]
    assert {str(one.value) for one in extensions["subjectAltName"][1]} == {"n1", "10.0.0.1", "a@example.com"}
    assert "authorityKeyIdentifier" in extensions


@pytest.mark.parametrize(
    ("asked", "life"),
    [
        (None, timedelta(days=365) - timedelta(minutes=5)),
        (600, timedelta(minutes=10)),
        (60, timedelta(minutes=10)),
        (8 * 3600 - 1, timedelta(hours=8) - timedelta(seconds=1)),  # short: its end is not dated back
        (8 * 3600, timedelta(hours=8) - timedelta(minutes=5)),
        (10**9, timedelta(days=365) - timedelta(minutes=5)),
    ],
)
def test_certificate_lives_as_long_as_asked_and_no_longer_than_allowed(
    signing: ClusterSigning, asked: int | None, life: timedelta
) -> None:
    pem = signing.authority().sign(parsed(encoded_request("a")), ["client auth"], signing.lifetime(asked), NOW)
    made = loaded(pem)
    assert made.not_valid_before_utc == NOW - timedelta(minutes=5)
    assert made.not_valid_after_utc == NOW + life


def test_certificate_ends_with_its_authority_and_none_is_signed_after_that(signing: ClusterSigning) -> None:
    authority = signing.authority()
    last = authority.certificate.not_valid_after_utc
    request = parsed(encoded_request("a"))
    late = authority.sign(request, ["client auth"], timedelta(days=2), last - timedelta(days=1))
    assert loaded(late).not_valid_after_utc == last
    with pytest.raises(SigningError, match="refusing to sign a certificate that expired in the past"):
        authority.sign(request, ["client auth"], timedelta(days=2), last)


def test_authority_of_changed_files_signs_at_once_and_unusable_files_are_named(signing: ClusterSigning) -> None:
    first = signing.authority().certificate
    pair = new_authority(datetime.now(UTC), "next")
    signing.certificate.write_bytes(pair.certificate)
    signing.key.write_bytes(pair.key)
    assert signing.authority().certificate != first
    signing.certificate.write_bytes(pair.certificate * 2)
    with pytest.raises(SigningError, match="expected 1 certificate, found 2"):
        signing.authority()
    signing.key.unlink()
    with pytest.raises(SigningError, match=r"ca\.key"):
        signing.authority()


# -- the controllers


def as_user(cluster: Cluster, name: str, *groups: str) -> ApiClient:
    cluster.server.admit(name, UserInfo(name, ("system:authenticated", *groups)))
    return ApiClient.in_process(cluster.server, name, "tests")


async def ask(client: ApiClient, name: str, request: str, signer: str, usages: list[str], **spec: Any) -> Obj:
    given = {"request": request, "signerName": signer, "usages": usages, **spec}
    head = {"apiVersion": SIGNING_REQUESTS.api_version, "kind": SIGNING_REQUESTS.kind}
    return await client.create(SIGNING_REQUESTS, {**head, "metadata": {"name": name}, "spec": given})


async def approve(cluster: Cluster, name: str, type_: str = "Approved") -> None:
    found = await cluster.get(SIGNING_REQUESTS, name)
    assert found is not None
    condition = {"type": type_, "status": "True", "reason": "Test"}
    await cluster.client.update(SIGNING_REQUESTS, {**found, "status": {"conditions": [condition]}}, "approval")


async def answered(cluster: Cluster, name: str) -> Obj:
    """The request once it is signed, or has failed."""

    async def found() -> Obj | None:
        request = await cluster.get(SIGNING_REQUESTS, name)
        status = (request or {}).get("status") or {}
        return request if status.get("certificate") or get_condition(status.get("conditions"), "Failed") else None

    request: Obj = await cluster.eventually(found)
    return request


async def test_approved_requests_of_the_clusters_signers_are_signed(cluster: Any, signing: ClusterSigning) -> None:
    await cluster.start(SIGNING, **{"cluster-signing": signing})
    client = encoded_request("jane", ("devs",))
    serving = encoded_request(NODE, NODES, dns=["n1"])
    await ask(cluster.client, "client", client, CLIENT, ["client auth"], expirationSeconds=3600)
    await ask(cluster.client, "serving", serving, KUBELET_SERVING, ["digital signature", "server auth"])
    for name in ("denied", "waits", "foreign"):
        signer = "example.com/own" if name == "foreign" else CLIENT
        await ask(cluster.client, name, client, signer, ["client auth"])
    for name in ("client", "serving", "foreign"):
        await approve(cluster, name)
    await approve(cluster, "denied", "Denied")
    made = loaded(base64.b64decode((await answered(cluster, "client"))["status"]["certificate"]))
    assert made.subject.rfc4514_string() == "CN=jane,O=devs"
    assert timedelta(minutes=59) < made.not_valid_after_utc - datetime.now(UTC) <= timedelta(hours=1)
    assert (await answered(cluster, "serving"))["status"]["conditions"][0]["type"] == "Approved"
    for name in ("denied", "waits", "foreign"):
        left = await cluster.get(SIGNING_REQUESTS, name)
        assert "certificate" not in (left.get("status") or {}), name


async def test_request_that_its_signer_does_not_accept_fails(cluster: Any, signing: ClusterSigning) -> None:
    await ask(cluster.client, "a", encoded_request("jane"), CLIENT, ["server auth"])
    await approve(cluster, "a")
    await cluster.start(SIGNING, **{"cluster-signing": signing})
    status = (await answered(cluster, "a"))["status"]
    failed = get_condition(status["conditions"], "Failed")
    assert failed is not None
    assert (failed["reason"], failed["status"]) == ("SignerValidationFailure", "True")
    assert failed["message"] == "invalid usage for client certificate: server auth"
    assert "certificate" not in status
    assert get_condition(status["conditions"], "Approved") is not None


async def test_kubelets_that_may_are_given_their_client_certificates(cluster: Any) -> None:
    boot, node = as_user(cluster, "bootstrap"), as_user(cluster, NODE, *NODES)
    mine, other = encoded_request(NODE, NODES), encoded_request("system:node:n2", NODES)
    await bind(cluster, "system:node-bootstrapper", {"kind": "User", "name": "bootstrap"})
    await ask(boot, "too-soon", mine, KUBELET_CLIENT, OF_CLIENT)
    with pytest.raises(StatusError, match="can only create a node CSR with CN=system:node:n1"):
        await ask(node, "another", other, KUBELET_CLIENT, OF_CLIENT)
    await ask(boot, "of-a-user", encoded_request("jane"), KUBELET_CLIENT, OF_CLIENT)
    await ask(boot, "for-clients", mine, CLIENT, ["client auth"])
    await cluster.start(APPROVING)
    await ask(node, "own", mine, KUBELET_CLIENT, OF_CLIENT)

    async def approved(name: str) -> str:
        request = await cluster.get(SIGNING_REQUESTS, name)
        found = get_condition((request.get("status") or {}).get("conditions"), "Approved")
        return f"{found['reason']}: {found['message']}" if found is not None else ""

    async def own() -> str:
        return await approved("own")

    # Kubernetes' policy lets nobody have a certificate by itself: kubeadm binds these roles.
    await bind(cluster, f"{RIGHTS}:selfnodeclient", {"kind": "Group", "name": NODES[0]})
    told = await cluster.eventually(own)
    assert told == "AutoApproved: Auto approving self kubelet client certificate after SubjectAccessReview."
    assert await approved("too-soon") == ""
    await bind(cluster, f"{RIGHTS}:nodeclient", {"kind": "User", "name": "bootstrap"})

    async def soon() -> str:
        return await approved("too-soon")

    told = await cluster.eventually(soon)
    assert told == "AutoApproved: Auto approving kubelet client certificate after SubjectAccessReview."
    for name in ("of-a-user", "for-clients"):
        assert await approved(name) == "", name


async def bind(cluster: Cluster, role: str, subject: Obj) -> None:
    group = BINDINGS.group
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": role}
    subjects = [{"apiGroup": group, **subject}]
    await cluster.create(BINDINGS, {"metadata": {"name": f"test:{role}"}, "roleRef": reference, "subjects": subjects})


def test_key_that_is_not_of_a_certificate_authority_is_refused(signing: ClusterSigning) -> None:
    from cryptography.hazmat.primitives.asymmetric import x25519

    key = x25519.X25519PrivateKey.generate()
    signing.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(SigningError, match="its kind signs no certificates"):
        signing.authority()
