"""The audit log: policies, events with their fields, files, and what it may cost."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from api_caller import ADMIN, MAPS, PODS, USER, Caller, Clock, config_map, make_config, pod

from haru.apiserver.audit import AuditFile, PolicyError
from haru.apiserver.audit.attributes import AuditAttributes, audit_attributes
from haru.apiserver.audit.entries import Entry
from haru.apiserver.audit.log import AuditLog
from haru.apiserver.audit.policy import LEVELS, load_policy, parse_policy
from haru.apiserver.audit_options import AuditOptions
from haru.apiserver.config import UserInfo
from haru.apiserver.request.http import Request
from haru.apiserver.server import ApiServer
from haru.embedded.audit import audit_options
from haru.embedded.options import OptionError
from haru.embedded.security import SecurityOptions
from haru.storage import SqliteStore

Obj = dict[str, Any]
SECRETS = "/api/v1/namespaces/default/secrets"
JANE = UserInfo("jane", ("devs", "system:authenticated"))


def policy(*rules: Obj, **more: Any) -> Obj:
    return {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules), **more}


def rule(level: str = "Request", **parts: Any) -> Obj:
    return {"level": level, **parts}


# --- what a request is about


def request(method: str, url: str) -> Request:
    path, _, query = url.partition("?")
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": []}
    return Request(scope, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "url", "wanted"),
    [
        ("GET", f"{PODS}/a", ("get", "", "v1", "pods", "", "default", "a")),
        ("GET", PODS, ("list", "", "v1", "pods", "", "default", "")),
        ("GET", f"{PODS}?watch=1", ("watch", "", "v1", "pods", "", "default", "")),
        ("GET", f"{PODS}?watch=false", ("list", "", "v1", "pods", "", "default", "")),
        ("GET", "/api/v1/watch/pods", ("watch", "", "v1", "pods", "", "", "")),
        ("POST", f"{PODS}/a/binding", ("create", "", "v1", "pods", "binding", "default", "a")),
        (
            "DELETE",
            "/apis/apps/v1/namespaces/x/deployments",
            ("deletecollection", "apps", "v1", "deployments", "", "x", ""),
        ),
        ("PATCH", "/api/v1/namespaces/x", ("patch", "", "v1", "namespaces", "", "x", "x")),
        ("PUT", "/api/v1/namespaces/x/finalize", ("update", "", "v1", "namespaces", "finalize", "x", "x")),
        ("GET", "/api/v1/nodes/n", ("get", "", "v1", "nodes", "", "", "n")),
        ("GET", "/healthz", ("get", "", "", "", "", "", "")),
        ("POST", "/apis/apps/v1", ("post", "", "", "", "", "", "")),
    ],
)
def test_request_attributes_of_url(method: str, url: str, wanted: tuple[str, ...]) -> None:
    found = audit_attributes(request(method, url))
    assert (
        found.verb,
        found.group,
        found.version,
        found.resource,
        found.subresource,
        found.namespace,
        found.name,
    ) == wanted


# --- policies

POD = AuditAttributes("get", "/p", "", "v1", "pods", "", "default", "a")
LOG = AuditAttributes("get", "/p", "", "v1", "pods", "log", "default", "a")
NODE = AuditAttributes("list", "/p", "", "v1", "nodes")
SECRET = AuditAttributes("get", "/p", "", "v1", "secrets", "", "default", "a")
TOKEN = AuditAttributes("create", "/p", "", "v1", "serviceaccounts", "token", "default", "a")
HEALTH = AuditAttributes("get", "/healthz/ping")


def named(*resources: str, group: str = "", **more: Any) -> list[Obj]:
    return [{"group": group, "resources": list(resources), **more}]


@pytest.mark.parametrize(
    ("parts", "asked", "matches"),
    [
        ({}, POD, True),
        ({}, HEALTH, True),
        ({"users": ["jane"]}, POD, True),
        ({"users": ["joe"]}, POD, False),
        ({"userGroups": ["ops", "devs"]}, POD, True),
        ({"userGroups": ["ops"]}, POD, False),
        ({"verbs": ["get", "list"]}, POD, True),
        ({"verbs": ["watch"]}, POD, False),
        ({"namespaces": ["default"]}, POD, True),
        ({"namespaces": ["kube-system"]}, POD, False),
        ({"namespaces": [""]}, NODE, True),
        ({"namespaces": [""]}, POD, False),
        ({"namespaces": [""]}, HEALTH, False),
        ({"resources": named("pods")}, POD, True),
        ({"resources": named("pods")}, LOG, False),
        ({"resources": named("pods/log")}, LOG, True),
        ({"resources": named("pods/*")}, LOG, True),
        ({"resources": named("pods/*")}, POD, True),
        ({"resources": named("*/log")}, LOG, True),
        ({"resources": named("*/log")}, POD, False),
        ({"resources": named("*")}, LOG, True),
        ({"resources": named()}, POD, True),
        ({"resources": named("pods", group="apps")}, POD, False),
        ({"resources": named("pods", resourceNames=["a"])}, POD, True),
        ({"resources": named("pods", resourceNames=["b"])}, POD, False),
        ({"resources": named("pods")}, HEALTH, False),
        ({"nonResourceURLs": ["/healthz*"]}, HEALTH, True),
        ({"nonResourceURLs": ["/healthz"]}, HEALTH, False),
        ({"nonResourceURLs": ["*"]}, HEALTH, True),
        ({"nonResourceURLs": ["*"]}, POD, False),
    ],
)
def test_audit_rule_matches_request(parts: Obj, asked: AuditAttributes, matches: bool) -> None:
    telling = parse_policy(policy(rule(**parts))).of(JANE, asked)
    assert LEVELS[telling.level] == ("Request" if matches else "None")


def test_first_matching_audit_rule_sets_level() -> None:
    found = parse_policy(policy(rule("None", resources=named("pods")), rule("Metadata")))
    assert [LEVELS[found.of(JANE, asked).level] for asked in (POD, NODE)] == ["None", "Metadata"]


@pytest.mark.parametrize(
    ("resources", "level"),
    [
        (None, "Metadata"),
        (named(), "Metadata"),
        (named("*"), "Metadata"),
        (named("secrets", "serviceaccounts/token"), "RequestResponse"),
    ],
)
def test_secrets_are_logged_at_metadata_level_unless_named(resources: Any, level: str) -> None:
    parts = {"resources": resources} if resources is not None else {}
    found = parse_policy(policy(rule("RequestResponse", **parts)))
    assert [LEVELS[found.of(JANE, asked).level] for asked in (SECRET, TOKEN)] == [level, level]


def test_omitted_stages_and_managed_fields_are_combined() -> None:
    given = policy(rule(omitStages=["ResponseStarted"]), omitStages=["RequestReceived"], omitManagedFields=True)
    telling = parse_policy(given).of(JANE, POD)
    assert (telling.omitted_stages, telling.omits_managed_fields) == ({"RequestReceived", "ResponseStarted"}, True)
    given["rules"][0]["omitManagedFields"] = False
    assert not parse_policy(given).of(JANE, POD).omits_managed_fields


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"kind": "Policy"}, "apiVersion: audit.k8s.io/v1 and kind: Policy"),
        ([], "is a list, not an object"),
        (policy(), "rules: Required value"),
        (
            policy(rule("Everything")),
            'rules[0].level: Unsupported value: "Everything": supported values: "None", "Metadata"',
        ),
        (policy({"users": ["jane"]}), "rules[0].level: Unsupported value"),
        (policy(rule(resource=[])), "rules[0].resource: unknown field; known are level"),
        (
            policy(rule(nonResourceURLs=["/x"], namespaces=["y"])),
            "cannot apply to both regular resources and non-resource",
        ),
        (
            policy(rule(nonResourceURLs=["healthz"])),
            'nonResourceURLs[0]: Invalid value: "healthz": must begin with a "/"',
        ),
        (policy(rule(nonResourceURLs=["/a*b"])), 'the wildcard "*" must be the final character'),
        (policy(rule(resources=[{"group": "apps/v1"}])), "rules[0].resources[0].group: Invalid value"),
        (policy(rule(resources=[{"resourceNames": ["a"]}])), "requires at least one resource"),
        (policy(rule(users="jane")), "rules[0].users: Invalid value: 'jane': must be a list of texts"),
        (policy(rule(omitStages=["End"])), 'rules[0].omitStages: Unsupported value: "End"'),
        (policy(rule(), omitManagedFields="no"), "omitManagedFields: Invalid value: 'no': must be true or false"),
    ],
)
def test_invalid_audit_policy_is_refused(given: Any, says: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(json.dumps(given))
    with pytest.raises(PolicyError) as caught:
        load_policy(file)
    assert str(caught.value).startswith(f"--audit-policy-file: {file}: ") and says in str(caught.value)


# --- a server with a log


class Logged:
    """A server with an audit log, and what is in it."""

    def __init__(self, api: Caller, path: Path) -> None:
        self.api, self.path = api, path

    async def events(self, **fields: Any) -> list[Obj]:
        """What was logged, once the server has stopped; those with these fields."""
        await self.api.app.stop()
        events = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [event for event in events if all(event.get(name) == value for name, value in fields.items())]


@pytest.fixture
async def logged(tmp_path: Path) -> AsyncIterator[Callable[[Obj], Any]]:
    """Makes a server with a policy."""
    stores = []

    async def make(given: Obj) -> Logged:
        store = SqliteStore(":memory:")
        await store.start()
        stores.append(store)
        path, clock = tmp_path / "audit.log", Clock()
        app = ApiServer(make_config(store, clock, audit=AuditOptions(parse_policy(given), str(path))))
        await app.start()
        return Logged(Caller(app, clock), path)

    yield make
    for store in stores:
        await store.stop()


async def test_audit_event_has_kubernetes_fields(logged: Any) -> None:
    server = await logged(policy(rule("Metadata")))
    answer = await server.api("POST", f"{MAPS}?fieldManager=t", config_map("a"), x_forwarded_for="10.1.1.1, 10.2.2.2")
    assert server.path.stat().st_mode & 0o777 == 0o600
    received, complete = await server.events()
    assert received == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": answer.headers["audit-id"],
        "stage": "RequestReceived",
        "requestURI": f"{MAPS}?fieldManager=t",
        "verb": "create",
        "user": {"username": "admin", "uid": "1", "groups": ["system:masters", "system:authenticated"]},
        "sourceIPs": ["10.1.1.1", "10.2.2.2"],
        "userAgent": "tests/1.0",
        "objectRef": {"resource": "configmaps", "namespace": "default", "apiVersion": "v1"},
        "requestReceivedTimestamp": "2026-03-04T05:06:07.000000Z",
        "stageTimestamp": "2026-03-04T05:06:07.000000Z",
    }
    assert complete == {
        **received,
        "stage": "ResponseComplete",
        "objectRef": {"resource": "configmaps", "namespace": "default", "name": "a", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 201},
        "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
    }


async def test_audit_level_decides_which_bodies_are_logged(logged: Any) -> None:
    server = await logged(
        policy(
            rule("RequestResponse", verbs=["create"], omitManagedFields=True),
            rule("Request", verbs=["patch", "update", "delete"]),
            rule("Metadata"),
            omitStages=["RequestReceived"],
        )
    )
    api, patch = server.api, {"data": {"k": "v"}}
    await api.create(MAPS, config_map("a", k="v"))
    await api("PATCH", f"{MAPS}/a", patch, type="application/merge-patch+json")
    await api("POST", MAPS, b"metadata: {name: b}", type="application/yaml")
    await api("DELETE", f"{MAPS}/a", {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
    await api("GET", f"{MAPS}/b")
    await api("POST", MAPS, b"{no json")
    created, patched, yaml, deleted, read, broken = await server.events()
    assert created["requestObject"] == config_map("a", k="v")
    assert created["responseObject"]["metadata"]["uid"] and "managedFields" not in created["responseObject"]["metadata"]
    assert patched["requestObject"] == patch and "responseObject" not in patched
    assert yaml["requestObject"] == {"metadata": {"name": "b"}}
    assert deleted["requestObject"]["gracePeriodSeconds"] == 0
    assert deleted["responseStatus"]["status"] == "Success"
    assert "requestObject" not in read and "responseObject" not in read
    assert "requestObject" not in broken and broken["responseStatus"]["code"] == 400


async def test_managed_fields_are_logged_unless_omitted(logged: Any) -> None:
    server = await logged(policy(rule("RequestResponse")))
    await server.api.create(MAPS, config_map("a", k="v"))
    (event,) = await server.events(stage="ResponseComplete")
    assert event["responseObject"]["metadata"]["managedFields"]


async def test_secrets_and_tokens_are_not_logged(logged: Any) -> None:
    server = await logged(policy(rule("RequestResponse")))
    body = {"metadata": {"name": "s"}, "stringData": {"password": "swordfish"}}
    await server.api.create(SECRETS, body)
    await server.api("GET", f"{SECRETS}/s")
    await server.api("GET", SECRETS)
    await server.api("PATCH", f"{SECRETS}/s", {"stringData": {"x": "swordfish"}}, type="application/merge-patch+json")
    await server.api.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "a"}})
    token = await server.api("POST", "/api/v1/namespaces/default/serviceaccounts/a/token", {"spec": {}})
    await server.api(
        "POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token.json["status"]["token"]}}
    )
    events = await server.events(stage="ResponseComplete")
    text = server.path.read_text()
    assert len(events) == 7 and "swordfish" not in text and "c3dvcmRmaXNo" not in text
    assert token.json["status"]["token"] not in text
    assert ADMIN not in text


async def test_refused_requests_are_logged_with_reason(logged: Any) -> None:
    server = await logged(policy(rule("Metadata"), omitStages=["RequestReceived"]))
    await server.api.as_(USER)("GET", f"{PODS}/a")
    await server.api.as_("wrong")("GET", PODS)
    await server.api.as_("")("GET", PODS)
    forbidden, wrong, nobody = await server.events()
    assert forbidden["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert forbidden["responseStatus"]["reason"] == "Forbidden" and forbidden["responseStatus"]["code"] == 403
    assert 'User "jane" cannot get resource "pods"' in forbidden["responseStatus"]["message"]
    assert (wrong["stage"], wrong["responseStatus"]["code"]) == ("ResponseStarted", 401)
    assert wrong["responseStatus"]["message"] == "Authentication failed, attempted: bearer"
    assert nobody["user"]["username"] == "system:anonymous" and nobody["responseStatus"]["code"] == 403
    assert wrong["user"] == {}


async def test_rbac_reason_is_logged(logged: Any) -> None:
    server = await logged(policy(rule("Metadata", users=["jane"])))
    await server.api.as_(USER)("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": {}})
    (event,) = await server.events(stage="ResponseComplete")
    assert event["annotations"]["authorization.k8s.io/reason"] == (
        'RBAC: allowed by ClusterRoleBinding "system:basic-user" of ClusterRole "system:basic-user" '
        'to Group "system:authenticated"'
    )


async def test_impersonated_user_is_logged(logged: Any) -> None:
    server = await logged(policy(rule("Metadata", users=["admin"], omitStages=["RequestReceived"])))
    await server.api("GET", PODS, impersonate_user="joe", impersonate_group="ops")
    (event,) = await server.events()
    assert event["user"]["username"] == "admin"
    assert event["impersonatedUser"] == {"username": "joe", "groups": ["ops", "system:authenticated"]}
    assert event["responseStatus"]["code"] == 403


async def test_client_may_set_audit_id(logged: Any) -> None:
    server = await logged(policy(rule("Metadata")))
    answer = await server.api("GET", "/version", audit_id="3f2a-mine")
    assert answer.headers["audit-id"] == "3f2a-mine"
    assert {event["auditID"] for event in await server.events()} == {"3f2a-mine"}
    for bad in ("x" * 65, "a b"):
        assert (await server.api("GET", "/version", audit_id=bad)).headers["audit-id"] != bad


async def test_watch_is_logged_at_three_stages(logged: Any) -> None:
    server = await logged(policy(rule("RequestResponse", verbs=["watch"])))
    stream = await server.api.stream(f"{PODS}?watch=1")
    await server.api.create(PODS, pod("a"))
    await stream.next()
    await stream.close()
    events = await server.events()
    assert [event["stage"] for event in events] == ["RequestReceived", "ResponseStarted", "ResponseComplete"]
    assert all("responseObject" not in event for event in events)


async def test_internal_error_is_logged_as_panic(logged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await logged(policy(rule("Metadata", omitStages=["RequestReceived"])))

    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(server.api.app.objects.store, "get", broken)
    assert (await server.api("GET", f"{PODS}/a")).status == 500
    monkeypatch.undo()
    (event,) = await server.events()
    assert (event["stage"], event["responseStatus"]["code"]) == ("Panic", 500)


async def test_omitted_events_are_only_counted(logged: Any) -> None:
    server = await logged(policy(rule("None", nonResourceURLs=["/*"]), rule("Metadata")))
    await server.api("GET", "/healthz")
    await server.api("GET", PODS)
    text = (await server.api("GET", "/metrics")).body.decode()
    assert 'apiserver_audit_level_total{level="None"} 2' in text
    assert "apiserver_audit_event_total 2" in text and 'apiserver_audit_error_total{plugin="log"} 0' in text
    assert len(await server.events()) == 2


# --- files


def lines(count: int, size: int = 100) -> list[bytes]:
    return [b"%0*d\n" % (size - 1, number) for number in range(count)]


class Moments:
    """A clock that goes on by a second each time."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def test_audit_files_are_rotated_and_deleted(tmp_path: Path) -> None:
    path, clock = tmp_path / "audit.log", Moments()
    other = tmp_path / "audit-notes.log"
    other.write_text("mine")
    file = AuditFile(str(path), megabytes=1, backups=2, now=clock)
    file.open()
    for _ in range(5):
        file.write(lines(9000))
    file.close()
    assert path.stat().st_size <= 1024 * 1024
    names = sorted(entry.name for entry in tmp_path.iterdir())
    aside = ["audit-2026-01-01T00-00-03.000.log", "audit-2026-01-01T00-00-04.000.log"]
    assert names == [*aside, "audit-notes.log", "audit.log"]
    assert all(entry.stat().st_mode & 0o777 == 0o600 for entry in tmp_path.glob("audit*.log") if entry != other)


def test_rotation_never_splits_a_line(tmp_path: Path) -> None:
    file = AuditFile(str(tmp_path / "a.log"), megabytes=1, now=Moments())
    file.open()
    wanted = lines(25_000)
    file.write([*wanted, b"x" * 3_000_000 + b"\n"])
    file.close()
    pieces = [*sorted(tmp_path.glob("a-*.log")), tmp_path / "a.log"]
    assert [piece.read_bytes()[-1:] for piece in pieces] == [b"\n"] * len(pieces)
    assert b"".join(piece.read_bytes() for piece in pieces).splitlines(keepends=True)[:-1] == wanted


def test_old_audit_files_are_deleted_by_age(tmp_path: Path) -> None:
    clock = Moments()
    for day in (1, 20, 30):
        (tmp_path / f"a-2025-12-{day:02d}T00-00-00.000.log").write_text("")
    AuditFile(str(tmp_path / "a.log"), days=7, now=clock).open()
    assert [path.name for path in sorted(tmp_path.glob("a-*"))] == ["a-2025-12-30T00-00-00.000.log"]


def test_existing_audit_file_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"first\n")
    path.chmod(0o644)
    file = AuditFile(str(path))
    file.open()
    file.write([b"second\n"])
    file.close()
    assert path.read_bytes() == b"first\nsecond\n" and path.stat().st_mode & 0o777 == 0o600


# --- what it may cost


class Stuck(AuditFile):
    """A disk that takes nothing until it is let."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.may = threading.Event()
        self.full = False

    def write(self, lines: list[bytes]) -> None:
        self.may.wait(60)
        if self.full:
            raise OSError(28, "No space left on device")
        super().write(lines)


def entry(size: int = 0) -> Entry:
    return Entry({"kind": "Event", "verb": "get"}, 3, response_body=b'"' + b"x" * size + b'"')


def test_slow_disk_drops_events_without_delay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = Stuck(tmp_path / "a.log")
    log = AuditLog(file, events=100, size=1_000_000)
    log.start()
    for _ in range(1000):
        log.put(entry())
    assert log.taken == 100 and log.lost == 900
    assert caplog.text.count("the audit log is incomplete") == 1
    file.may.set()
    log.stop()
    assert len((tmp_path / "a.log").read_bytes().splitlines()) == 100
    log.start()
    log.put(entry())
    log.stop()
    assert log.taken == 101 and log.lost == 900


def test_large_events_count_by_size(tmp_path: Path) -> None:
    file = Stuck(tmp_path / "a.log")
    log = AuditLog(file, events=100, size=1_000_000)
    log.start()
    for _ in range(10):
        log.put(entry(400_000))
    assert (log.taken, log.lost) == (2, 8)
    file.may.set()
    log.stop()


def test_full_disk_is_logged_and_survived(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = Stuck(tmp_path / "a.log")
    file.full = True
    file.may.set()
    log = AuditLog(file)
    log.start()
    log.put(entry())
    log.stop()
    assert log.lost == 1 and "No space left on device" in caplog.text


# --- flags


def test_conflicting_audit_flags_are_refused(tmp_path: Path) -> None:
    file, log = tmp_path / "policy.yaml", str(tmp_path / "audit.log")
    file.write_text(json.dumps(policy(rule("Metadata"))))
    assert audit_options(SecurityOptions()) is None
    options = audit_options(SecurityOptions(audit_policy=file, audit_log=log, audit_backups=3))
    assert options is not None and (options.path, options.megabytes, options.backups) == (log, 100, 3)
    for wrong, says in (
        (SecurityOptions(audit_log=log), "--audit-log-path: Forbidden without --audit-policy-file"),
        (SecurityOptions(audit_policy=file), "--audit-policy-file: Forbidden without --audit-log-path"),
        (SecurityOptions(audit_policy=file, audit_log=str(tmp_path)), "Is a directory; name a file"),
        (SecurityOptions(audit_policy=tmp_path / "none", audit_log=log), "No such file or directory"),
    ):
        with pytest.raises(OptionError, match=says):
            audit_options(wrong)
