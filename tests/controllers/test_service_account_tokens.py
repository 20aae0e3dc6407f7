"""Secrets of which a token of a ServiceAccount is asked that does not expire."""

import base64
from pathlib import Path

import pytest
from controller_cluster import service_account_key

from haru.cli.controllers import _secret_tokens
from haru.cli.main import UsageError
from haru.controllers.objects import SERVICE_ACCOUNTS
from haru.controllers.service_account_token import OPTION, SECRETS
from haru.embedded.account_tokens import AccountTokenFiles, SecretTokens
from haru.kube.kinds import known_kind

NAME = "serviceaccount-token-controller"
TYPE = "kubernetes.io/service-account-token"
OWNER, UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
REVIEWS = known_kind("authentication.k8s.io/v1", "TokenReview")


@pytest.fixture
async def signing(cluster, tmp_path):
    """The options of the controller, with the key of the server."""
    file = tmp_path / "key.pem"
    file.write_bytes(cluster.server.config.authentication.service_account_key_pem)
    return {OPTION: SecretTokens(file).sign, "root-ca": "an authority"}


async def account(cluster, name="robot", **members):
    return await cluster.create(SERVICE_ACCOUNTS, {"metadata": {"name": name}, **members})


async def secret(cluster, name="token", owner="robot", **annotations):
    metadata = {"name": name, "annotations": {OWNER: owner, **annotations}}
    return await cluster.create(SECRETS, {"metadata": metadata, "type": TYPE})


async def filled(cluster, name="token"):
    found = await cluster.get(SECRETS, name)
    return found if found is not None and (found.get("data") or {}).get("token") else None


async def gone(cluster, name="token"):
    return await cluster.get(SECRETS, name) is None


async def user_of(cluster, token):
    review = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind, "metadata": {}, "spec": {"token": token}}
    return (await cluster.client.create(REVIEWS, review))["status"]


async def test_secret_gets_a_token_that_is_good_while_the_secret_holds_it(cluster, signing):
    robot = await account(cluster)
    await secret(cluster)
    await cluster.start(NAME, **signing)
    found = await cluster.eventually(lambda: filled(cluster))
    assert found["metadata"]["annotations"] == {OWNER: "robot", UID: robot["metadata"]["uid"]}
    data = {key: base64.b64decode(value).decode() for key, value in found["data"].items()}
    token = data.pop("token")
    assert data == {"ca.crt": "an authority", "namespace": "ns"}
    status = await user_of(cluster, token)
    assert status["authenticated"] and status["user"]["username"] == "system:serviceaccount:ns:robot"
    await cluster.client.delete(SECRETS, "token", "ns")
    assert not (await user_of(cluster, token)).get("authenticated")
    assert await cluster.forbidden() == 0


async def test_token_that_is_taken_out_is_made_anew_and_what_is_written_beside_it_stays(cluster, signing):
    await account(cluster)
    await cluster.start(NAME, **signing)
    await secret(cluster)
    await cluster.eventually(lambda: filled(cluster))
    own = base64.b64encode(b"mine").decode()
    await cluster.client.patch(SECRETS, "token", {"data": {"token": None, "ca.crt": own, "more": own}}, "ns")
    found = await cluster.eventually(lambda: filled(cluster))
    assert base64.b64decode(found["data"]["ca.crt"]) == b"an authority" and found["data"]["more"] == own


@pytest.mark.parametrize("annotations", [{}, {UID: "11111111-2222-3333-4444-555555555555"}])
async def test_secret_without_its_account_is_removed(cluster, signing, annotations):
    if annotations:
        await account(cluster)
    await secret(cluster, **annotations)
    await cluster.start(NAME, **signing)
    await cluster.eventually(lambda: gone(cluster))
    assert await cluster.forbidden() == 0


async def test_secrets_go_with_their_account_and_its_references_with_them(cluster, signing):
    await account(cluster, secrets=[{"name": "first"}, {"name": "other"}])
    await account(cluster, "another")
    for name in ("first", "second"):
        await secret(cluster, name)
    await secret(cluster, "theirs", "another")
    await cluster.start(NAME, **signing)
    await cluster.eventually(lambda: filled(cluster, "theirs"))
    await cluster.client.delete(SECRETS, "first", "ns")

    async def forgotten():
        return (await cluster.get(SERVICE_ACCOUNTS, "robot"))["secrets"] == [{"name": "other"}]

    await cluster.eventually(forgotten)
    await cluster.client.delete(SERVICE_ACCOUNTS, "robot", "ns")
    await cluster.eventually(lambda: gone(cluster, "second"))
    assert await filled(cluster, "theirs")
    assert await cluster.forbidden() == 0


async def test_controller_runs_where_there_is_a_key_alone(cluster):
    manager = await cluster.start(NAME)
    assert NAME not in manager.running


def test_key_is_read_from_its_file(tmp_path):
    file = tmp_path / "key.pem"
    for content in (None, b"no key"):
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(UsageError, match="service-account-private-key-file"):
            _secret_tokens(file)
    file.write_bytes(service_account_key())
    assert _secret_tokens(file) is not None and _secret_tokens(None) is None


def test_external_signer_signs_no_tokens_of_secrets():
    assert AccountTokenFiles().for_secrets(Path("own")) is not None
    assert AccountTokenFiles(endpoint="@signer").for_secrets(Path("own")) is None
