"""A cluster whose tokens another process signs: kubectl, the official Python client, kills, and keys that change."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from haru_process import Process, Up, haru, until

kubernetes = pytest.importorskip("kubernetes")
Obj = dict[str, Any]
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
PODS = "/api/v1/namespaces/default/pods"
AUDIENCE = "https://kubernetes.default.svc.cluster.local"


class World:
    """A signer and a cluster that uses it, with an account `robot` that may read pods."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.socket = str(home / "s")
        self.signer = self.start_signer()
        quiet = ("--ephemeral", "--profile", "cpu:0", "--no-scheduler", "--no-dashboard", "--no-usage-history")
        self.up = Up(home, *quiet, "--controllers", "", "--service-account-signing-endpoint", self.socket)
        self.up.api.call("POST", ACCOUNTS, {"metadata": {"name": "robot"}})
        rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
        rules = [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]
        self.up.api.call("POST", f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": rules})
        reference = {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}
        subjects = [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}]
        binding = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": subjects}
        self.up.api.call("POST", f"{rbac}/rolebindings", binding)

    def start_signer(self) -> Process:
        pace = ["--refresh-hint", "1s", "--max-token-expiration", "10m"]
        serve = ["signer", "serve", "--socket", self.socket, "--key-dir", "keys", "--generate", *pace]
        signer = Process(self.home, serve, "signer")
        assert signer.line() == f"haru signer is ready at {self.socket}"
        return signer

    def ask(self, **spec: Any) -> tuple[int, Obj]:
        code, answer = self.up.api.call("POST", f"{ACCOUNTS}/robot/token", {"spec": spec})
        return code, answer

    def token(self) -> str:
        code, answer = self.ask()
        assert code == 201, answer
        token: str = answer["status"]["token"]
        return token

    def status(self, token: str) -> int:
        return self.up.api.call("GET", PODS, Authorization=f"Bearer {token}")[0]

    def jwks(self) -> list[Obj]:
        text = self.up.api.call("GET", "/openid/v1/jwks")[1]
        keys: list[Obj] = (json.loads(text) if isinstance(text, str) else text)["keys"]
        return keys

    def stop(self) -> None:
        self.signer.stop()
        self.up.stop()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One for all: each test leaves a signer that runs."""
    made = World(tmp_path_factory.mktemp("w"))
    yield made
    made.stop()


def kid(token: str) -> str:
    return str(jwt.get_unverified_header(token)["kid"])


def test_kubectl_and_python_client_use_tokens_of_the_signer(world: World, kubectl: str) -> None:
    made = world.up.kubectl(kubectl, "create", "token", "robot", "--duration", "1h")
    assert made.returncode == 0, made.stderr
    assert "requested expiration of 3600 seconds shortened to 600 seconds" in made.stderr
    token = made.stdout.strip()
    keys = {key.key_id: key for key in jwt.PyJWKSet(world.jwks()).keys}
    claims = jwt.decode(token, keys[kid(token)], algorithms=["ES256"], audience=AUDIENCE, issuer=AUDIENCE)
    assert claims["exp"] - claims["iat"] == 600

    configuration = kubernetes.client.Configuration()
    configuration.host = world.up.api.url
    authority = world.home / "ca.crt"
    text = world.up.kubectl(kubectl, "config", "view", "--raw", "-o", "json").stdout
    [cluster] = json.loads(text)["clusters"]
    authority.write_bytes(base64.b64decode(cluster["cluster"]["certificate-authority-data"]))
    configuration.ssl_ca_cert = str(authority)
    configuration.api_key["authorization"] = f"Bearer {token}"
    with kubernetes.client.ApiClient(configuration) as client:
        core = kubernetes.client.CoreV1Api(client)
        assert core.list_namespaced_pod("default").items == []
        with pytest.raises(kubernetes.client.ApiException) as refusal:
            core.list_namespaced_secret("default")
        assert refusal.value.status == 403
        refusal.value.__traceback__ = None
        review = kubernetes.client.V1TokenReview(spec=kubernetes.client.V1TokenReviewSpec(token=token))
        configuration.api_key["authorization"] = f"Bearer {world.up.api.token}"
        status = kubernetes.client.AuthenticationV1Api(client).create_token_review(review).status
        assert status.authenticated and status.user.username == "system:serviceaccount:default:robot"
        body = kubernetes.client.AuthenticationV1TokenRequest(
            spec=kubernetes.client.V1TokenRequestSpec(audiences=["vault"], expiration_seconds=600)
        )
        answer = core.create_namespaced_service_account_token("robot", "default", body)
        assert jwt.decode(answer.status.token, options={"verify_signature": False})["aud"] == ["vault"]


def test_tokens_stay_valid_after_signer_is_killed(world: World) -> None:
    used, unused = world.token(), world.token()
    assert world.status(used) == 200
    world.signer.stop(signal.SIGKILL)
    assert world.status(used) == world.status(unused) == 200
    asking: list[tuple[int, Obj]] = []
    thread = threading.Thread(target=lambda: asking.append(world.ask()))
    thread.start()
    assert world.status(used) == 200
    # It waits for a signer that comes back within ten seconds; so either it has waited, or it was told.
    world.signer = world.start_signer()
    thread.join(60)
    code, answer = asking[0]
    assert code == 201 or (code == 500 and "failed to generate token" in answer["message"]), answer
    until("tokens are signed again", lambda: world.ask()[0] == 201)
    assert world.status(used) == 200 and world.status(world.token()) == 200
    assert used not in world.up.log.read_text() and used not in world.signer.log.read_text()


def test_key_rotation_under_load_fails_no_request(world: World) -> None:
    first = kid(world.token())
    stop, wrong, seen = threading.Event(), [], set()

    def load() -> None:
        kept: list[str] = []
        while not stop.is_set():
            code, answer = world.ask()
            if code != 201:
                wrong.append(answer)
                return
            kept = [*kept[-5:], answer["status"]["token"]]
            seen.add(kid(kept[-1]))
            for token in kept:
                if (status := world.status(token)) != 200:
                    wrong.append({"status": status, "kid": kid(token)})
                    return

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert haru(world.home, "signer", "rotate", "--key-dir", "keys").returncode == 0
        until("the new key signs", lambda: len(seen) == 2 or wrong)
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not wrong and len(seen) == 2
    assert {key["kid"] for key in world.jwks()} == seen and first in seen


def test_key_files_and_signer_are_mutually_exclusive(tmp_path: Path) -> None:
    flags = ("--service-account-signing-endpoint", "s", "--service-account-key-file", sys.executable)
    answer = haru(tmp_path, "up", "--ephemeral", *flags)
    assert answer.returncode == 2
    said = "haru up: --service-account-key-file: Forbidden with --service-account-signing-endpoint"
    assert answer.stderr.startswith(said)


@pytest.mark.nightly
def test_server_without_reachable_signer_does_not_start(tmp_path: Path) -> None:
    began = time.monotonic()
    answer = haru(tmp_path, "up", "--ephemeral", "--service-account-signing-endpoint", "none", seconds=120)
    assert answer.returncode == 2 and time.monotonic() - began >= 60
    assert answer.stderr == (
        "haru up: --service-account-signing-endpoint: the signer at none: /v1.ExternalJWTSigner/FetchKeys: "
        "no answer within 60 s; see that it runs\n"
    )


@pytest.mark.nightly
def test_user_provided_key_files_sign_and_verify(tmp_path: Path) -> None:
    for name, curve in (("old", "P-384"), ("new", "P-256")):
        make = ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", f"ec_paramgen_curve:{curve}", "-out", name]
        subprocess.run(make, cwd=tmp_path, check=True, capture_output=True)
    quiet = ("--data-dir", "data", "--profile", "cpu:0", "--no-scheduler", "--no-dashboard", "--no-usage-history")
    quiet += ("--controllers", "", "--service-account-issuer", "https://a", "--api-audiences", "x,y")
    up = Up(tmp_path, *quiet, "--service-account-signing-key-file", "old")
    try:
        up.api.call("POST", ACCOUNTS, {"metadata": {"name": "robot"}})
        token = up.api.call("POST", f"{ACCOUNTS}/robot/token", {"spec": {}})[1]["status"]["token"]
    finally:
        up.stop()
    assert jwt.get_unverified_header(token)["alg"] == "ES384"
    assert jwt.decode(token, options={"verify_signature": False})["aud"] == ["x", "y"]
    up = Up(tmp_path, *quiet, "--service-account-signing-key-file", "new", "--service-account-key-file", "old")
    try:
        assert up.api.call("GET", PODS, Authorization=f"Bearer {token}")[0] == 403
    finally:
        up.stop()
