"""`haru snapshot`: the state of a server that goes on meanwhile, of a directory without one, and back again."""

from __future__ import annotations

import asyncio
import json
import ssl
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web
from tls_server import certificate, pem, served, server_tls

from haru.apiserver.auth import certificates
from haru.apiserver.config import AuthenticationOptions, ServerConfig, UserInfo
from haru.apiserver.server import ApiServer
from haru.apiserver.serving import HttpServer, TlsFiles
from haru.cli.main import main
from haru.embedded.lock import DirectoryLock
from haru.files import write_whole
from haru.storage import Put, SqliteStore, snapshots

ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "backup"},
    "rules": [{"nonResourceURLs": ["/haru/snapshot"], "verbs": ["get"]}],
}


@dataclass
class Server:
    """A server over a data directory, as `haru up` has one, with a kubeconfig for each of its users."""

    data: Path
    store: SqliteStore
    home: Path

    def kubeconfig(self, user: str) -> str:
        return str(self.home / user)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    now = datetime.now(UTC)
    authority = certificates.new_authority(now)
    pair = certificates.server_pair(authority, (), now)
    cert, key, data = tmp_path / "tls.crt", tmp_path / "tls.key", tmp_path / "data"
    cert.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    data.mkdir()
    store = SqliteStore(data / snapshots.NAME)
    await store.start()
    users = {
        "root": UserInfo("root", ("system:masters",)),
        "jane": UserInfo("jane", ()),
        "backup": UserInfo("backup", ()),
    }
    app = ApiServer(ServerConfig(store, authentication=AuthenticationOptions(tokens=users)))
    await app.start()
    http = HttpServer(app, tls=TlsFiles(cert, key))
    await http.start()
    for user in users:
        config = certificates.kubeconfig(http.url, authority.certificate, user)
        write_whole(tmp_path / user, config)
    yield Server(data, store, tmp_path)
    await http.stop()
    await app.stop()
    await store.stop()


async def haru(*arguments: object) -> int:
    """The command, while the server goes on in this loop."""
    return await asyncio.to_thread(main, ["snapshot", *map(str, arguments)])


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


async def restored(directory: Path) -> dict[str, bytes]:
    store = SqliteStore(directory / snapshots.NAME)
    await store.start()
    found = {r.key: r.value for r in (await store.range("configmaps/")).records}
    assert store.revision >= snapshots.BUMP
    await store.stop()
    return found


async def test_snapshot_saved_during_writes_restores_consistent_state(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, target = tmp_path / "one.snapshot", tmp_path / "restored"
    for number in range(50):
        await server.store.transact(Put(f"configmaps/default/before-{number}", json.dumps({"n": number}).encode()))
    saving = asyncio.create_task(haru("save", file, "--kubeconfig", server.kubeconfig("root")))
    during = 0
    while not saving.done():
        await server.store.transact(Put(f"configmaps/default/during-{during}", b"{}"))
        during += 1
    assert await saving == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{snapshots.check(file).objects} objects as of revision ") and f"saved to {file} (" in said
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert await haru("restore", file, "--data-dir", target) == 0
    assert "restored to" in capsys.readouterr().out
    found = await restored(target)
    assert all(found[f"configmaps/default/before-{n}"] == b'{"n": %d}' % n for n in range(50))
    assert names(server.data) == ["state.db", "state.db-wal"], "the server keeps no copy"


@pytest.mark.parametrize(("user", "status"), [("jane", 2), ("backup", 0)])
async def test_snapshot_needs_its_permission(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], user: str, status: int
) -> None:
    from haru.client.api import ApiClient

    async with ApiClient.from_kubeconfig([Path(server.kubeconfig("root"))], None) as client:
        for path, obj in (
            ("clusterroles", ROLE),
            (
                "clusterrolebindings",
                {
                    **ROLE,
                    "kind": "ClusterRoleBinding",
                    "rules": None,
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "backup"},
                    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "backup"}],
                },
            ),
        ):
            body = json.dumps({k: v for k, v in obj.items() if v is not None}).encode()
            url = f"/apis/rbac.authorization.k8s.io/v1/{path}"
            answer = await client.raw("POST", url, headers={"content-type": "application/json"}, body=body)
            assert answer[0] == 201, answer
    file = tmp_path / "one.snapshot"
    assert await haru("save", file, "--kubeconfig", server.kubeconfig(user)) == status
    if status:
        assert 'User "jane" cannot get path "/haru/snapshot"' in capsys.readouterr().err
        assert not [name for name in names(tmp_path) if "one.snapshot" in name]
    else:
        assert snapshots.check(file).objects > 0


async def test_data_directory_in_use_can_be_saved_but_not_restored_into(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock, file = DirectoryLock(server.data), tmp_path / "one.snapshot"
    lock.acquire()
    assert await haru("save", file, "--data-dir", server.data) == 2  # it is only starting
    assert "is in use by the haru up with process id" in capsys.readouterr().err
    lock.describe(kubeconfig=server.kubeconfig("root"))
    assert await haru("save", file, "--data-dir", server.data) == 0
    assert snapshots.check(file).revision == server.store.revision
    lock.release()


async def test_data_directory_without_server_is_saved_and_restored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, file, target = tmp_path / "data", tmp_path / "one.snapshot", tmp_path / "target"
    data.mkdir()
    store = SqliteStore(data / snapshots.NAME)
    await store.start()
    await store.transact(Put("configmaps/default/a", b"{}"))
    await store.stop()
    assert await haru("save", file, "--data-dir", data) == 0
    assert await haru("restore", file, "--data-dir", target, "--bump-revision", 2_000_000_000) == 0
    assert await restored(target) == {"configmaps/default/a": b"{}"}
    # Again: both are there now.
    assert await haru("save", file, "--data-dir", data) == 2
    assert await haru("restore", file, "--data-dir", target) == 2
    told = capsys.readouterr().err
    assert f"{file} exists already: name another file" in told
    assert f"{target} is not empty (it has state.db): name a directory that is, or a new one" in told
    assert await restored(target) == {"configmaps/default/a": b"{}"}


async def test_server_without_snapshots_is_named_with_what_to_do_instead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=404, text="404 page not found")

    authority = certificate("ca", ca=True)
    async with served(answer, server_tls(tmp_path, authority, ssl.CERT_NONE)) as url:
        config = certificates.kubeconfig(url, pem(authority)[0], "token")
        (tmp_path / "kubeconfig").write_text(config)
        assert await haru("save", tmp_path / "new", "--kubeconfig", tmp_path / "kubeconfig") == 2
    assert capsys.readouterr().err.startswith(f"haru snapshot: {url}: only a server of Haru gives out snapshots: ")
    assert await haru("save", tmp_path / "new", "--kubeconfig", tmp_path / "kubeconfig") == 2
    assert capsys.readouterr().err.startswith(f"haru snapshot: {url} cannot be reached: ")
    assert not [name for name in names(tmp_path) if "new" in name]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("restore", "good"), "restore needs --data-dir"),
        (("restore", "absent", "--data-dir", "d"), "absent: no such file"),
        (("restore", "text", "--data-dir", "d"), "text is no snapshot of haru's"),
        (("restore", "text", "--data-dir", "text"), "text: File exists"),
        (("restore", "text", "--data-dir", "d", "--kubeconfig", "k"), "--kubeconfig: only for save"),
        (("save", "new", "--data-dir", "."), "holds no state.db: name the data directory of a haru up"),
        (("save", "new", "--data-dir", ".", "--kubeconfig", "k"), "--data-dir and --kubeconfig: name one of them"),
        (("save", "new", "--bump-revision", "1"), "--bump-revision: only for restore"),
        (("save", "none/new", "--data-dir", "."), "haru snapshot: none/new: No such file or directory"),
        (("save", "new", "--kubeconfig", "text"), "text"),
    ],
)
def test_invalid_snapshot_commands_exit_with_2_and_leave_no_files(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("this is something else")
    assert main(["snapshot", *arguments]) == 2
    told = capsys.readouterr().err
    assert text in told and told.count("\n") == 1
    assert names(tmp_path) == ["text"], "nothing is left behind"
