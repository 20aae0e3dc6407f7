"""Ranges of ids for user namespaces: each pod its own, kept over restarts, never given twice; and shown with runc."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from haru.node.podworker import userns
from haru.node.podworker.userns import (
    ALIGNMENT,
    NO_SLOT,
    IdRange,
    Pool,
    Ranges,
    UserNamespaceError,
    configured_pool,
    default_pool,
    parse_file,
    pool_of_machine,
)
from haru_process import until

POOL = Pool(ALIGNMENT, 4)


def test_each_pod_gets_its_own_id_range_and_keeps_it(tmp_path: Path) -> None:
    ranges = Ranges(tmp_path, POOL)
    first, second = ranges.get_or_create("a"), ranges.get_or_create("b")
    assert (first, second) == (IdRange(ALIGNMENT, ALIGNMENT), IdRange(2 * ALIGNMENT, ALIGNMENT))
    assert ranges.get_or_create("a") == first
    assert json.loads((tmp_path / "a" / "userns").read_text()) == {
        "uidMappings": [{"hostId": 65536, "containerId": 0, "length": 65536}],
        "gidMappings": [{"hostId": 65536, "containerId": 0, "length": 65536}],
    }
    assert (tmp_path / "a" / "userns").stat().st_mode & 0o777 == 0o600


def test_exhausted_id_ranges_are_refused_until_release(tmp_path: Path) -> None:
    ranges = Ranges(tmp_path, POOL)
    for name in "abcd":
        ranges.get_or_create(name)
    with pytest.raises(UserNamespaceError, match=NO_SLOT):
        ranges.get_or_create("e")
    ranges.release("b")
    assert ranges.get_or_create("e").host_id == 2 * ALIGNMENT
    assert not (tmp_path / "b" / "userns").exists()


def test_unwritable_id_range_is_not_assigned(tmp_path: Path) -> None:
    ranges = Ranges(tmp_path, POOL)
    (tmp_path / "a").write_text("not a directory")
    with pytest.raises(UserNamespaceError, match=r"a/userns: .*cannot be kept"):
        ranges.get_or_create("a")
    assert ranges.held == {}


def test_concurrent_requests_get_unique_id_ranges(tmp_path: Path) -> None:
    ranges = Ranges(tmp_path, Pool(ALIGNMENT, 60))
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: ranges.get_or_create(f"p{number % 60}").host_id, range(240)))
    assert len(set(made)) == 60 and all(made[number] == made[number % 60] for number in range(240))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "Expecting"),
        ("[]", "uidMappings: there has to be one"),
        ({"uidMappings": []}, "uidMappings: there has to be one"),
        ({"uidMappings": [{}, {}]}, "uidMappings: there has to be one"),
        ({"hostId": 131072, "groups": 65536}, "gidMappings"),
        ({"hostId": 131072, "containerId": 1}, "containerId: Invalid value: 1"),
        ({"hostId": 131072, "length": 65535}, "length: Invalid value: 65535"),
        ({"hostId": 131073}, "hostId: Invalid value: 131073"),
        ({"hostId": 0}, "hostId: Invalid value: 0"),
        ({"hostId": "131072"}, "whole numbers"),
        ({"hostId": 65536 * 99}, "not of the configured range"),
    ],
)
def test_invalid_id_range_file_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    if isinstance(content, dict) and "hostId" in content:
        ids = {"containerId": 0, "length": 65536, **content}
        groups = {**ids, "hostId": ids.pop("groups")} if "groups" in ids else ids
        content = {"uidMappings": [ids], "gidMappings": [groups]}
    file = tmp_path / "a" / "userns"
    file.parent.mkdir()
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(UserNamespaceError, match=message):
        Ranges(tmp_path, POOL).load()
    with pytest.raises(UserNamespaceError, match=message):
        Ranges(tmp_path, POOL).get_or_create("a")


def test_overlapping_id_ranges_are_refused(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "userns").write_text(json.dumps(IdRange(ALIGNMENT, ALIGNMENT).json()))
    with pytest.raises(UserNamespaceError, match="pod b has ids from 65536 on, as pod a has"):
        Ranges(tmp_path, POOL).load()


class RangesMachine(RuleBasedStateMachine):
    """Pods come and go, the agent is started anew: no id is ever in two hands."""

    @initialize(seed=st.integers(0, 1 << 62))
    def begin(self, seed: int) -> None:
        self.directory = Path(os.environ.get("TMPDIR", "/tmp")) / f"haru-userns-{os.getpid()}-{seed}"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()
        self.ranges = Ranges(self.directory, POOL)
        self.given: dict[str, IdRange] = {}

    @rule(name=st.sampled_from("abcdef"))
    def come(self, name: str) -> None:
        try:
            found = self.ranges.get_or_create(name)
        except UserNamespaceError as error:
            assert str(error) == NO_SLOT and len(self.given) == POOL.slots
            return
        assert self.given.setdefault(name, found) == found

    @rule(name=st.sampled_from("abcdef"))
    def go(self, name: str) -> None:
        self.ranges.release(name)
        self.given.pop(name, None)

    @rule()
    def restart(self) -> None:
        self.ranges = Ranges(self.directory, POOL)
        self.ranges.load()

    @invariant()
    def nobody_shares(self) -> None:
        if hasattr(self, "given"):
            assert self.ranges.held == {name: one.host_id for name, one in self.given.items()}
            assert len(set(self.ranges.held.values())) == len(self.given)
            assert all(first >= ALIGNMENT and first % ALIGNMENT == 0 for first in self.ranges.held.values())

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            shutil.rmtree(self.directory, ignore_errors=True)


TestRangesMachine = RangesMachine.TestCase
TestRangesMachine.settings = settings(
    settings.get_profile("day" if os.environ.get("HARU_NIGHTLY") != "1" else "night"),
    max_examples=300 if os.environ.get("HARU_NIGHTLY") == "1" else 20,
    stateful_step_count=15,
)


# -- the configured range --------------------------------------------------------------------------------------------

GOOD = "0: kubelet 65536 7208960\n"


def test_configured_subid_range_is_used() -> None:
    assert configured_pool(GOOD, GOOD, 110) == Pool(65536, 110)
    assert default_pool(110) == Pool(65536, 110)


@pytest.mark.parametrize(
    ("users", "groups", "message"),
    [
        ("", "", "it has 0"),
        (GOOD + "1: kubelet 8000000 65536\n", GOOD, "it has 2"),
        (GOOD, "0: kubelet 131072 7208960\n", "not the same"),
        ("0: kubelet 65537 7208960", "0: kubelet 65537 7208960", "the first id .* 65537, is no multiple"),
        ("0: kubelet 65536 7208961", "0: kubelet 65536 7208961", "the count .* 7208961, is no multiple"),
        ("0: kubelet 0 7208960", "0: kubelet 0 7208960", "ids below 65536 are the host's"),
        ("0: kubelet 65536 65536", "0: kubelet 65536 65536", "110 pods of 65536 ids need 7208960"),
        ("0: other 65536 7208960", "0: other 65536 7208960", "which is not INDEX: kubelet FIRST COUNT"),
        ("what", "what", "which is not INDEX: USER FIRST COUNT"),
    ],
)
def test_invalid_subid_range_is_refused(users: str, groups: str, message: str) -> None:
    with pytest.raises(UserNamespaceError, match=message):
        configured_pool(users, groups, 110)


def test_missing_subid_configuration_gives_default() -> None:
    def missing(command: Sequence[str]) -> str:
        raise FileNotFoundError(command[0])

    def found(command: Sequence[str]) -> str:
        assert command in (["getsubids", "kubelet"], ["getsubids", "-g", "kubelet"])
        return "0: kubelet 131072 7208960\n"

    assert pool_of_machine(5, has_user=lambda _: False, subids=found) == Pool(65536, 5)
    assert pool_of_machine(5, has_user=lambda _: True, subids=missing) == Pool(65536, 5)
    assert pool_of_machine(5, has_user=lambda _: True, subids=found) == Pool(131072, 5)
    with pytest.raises(UserNamespaceError, match="false: "):
        userns.run_getsubids(["false"])
    with pytest.raises(FileNotFoundError):
        userns.run_getsubids(["haru-no-such-program"])
    assert userns.has_user("root") and not userns.has_user("haru-nobody")


def test_id_range_length_must_match_configuration() -> None:
    with pytest.raises(ValueError, match="has to be 131072"):
        parse_file(json.dumps(IdRange(65536, 65536).json()).encode(), 131072)


# -- this machine ----------------------------------------------------------------------------------------------------


def started(command: list[str], bundle: Path, out: Path) -> tuple[str, subprocess.Popen[bytes]]:
    """A container that has said who it is, or why it cannot run, and its name.

    While other runtimes of the machine change groups, the kernel may refuse the rules of a new one: as a kubelet would,
    it is tried again, under another name.
    """
    for attempt in range(4):
        name = f"haru-test-{uuid.uuid4()}"
        with out.open("wb") as file:
            running = subprocess.Popen([*command, "run", "--bundle", str(bundle), name], stdout=file, stderr=file)
        until("it has said who it is", lambda: len(out.read_text().split()) >= 4 or running.poll() is not None)  # noqa: B023
        if attempt == 3 or "error setting cgroup config" not in out.read_text():
            break
        running.wait(30)
        subprocess.run([*command, "delete", "--force", name], capture_output=True, check=False, timeout=30)
    return name, running


@pytest.mark.host
def test_container_root_is_unprivileged_on_host(tmp_path: Path) -> None:
    """With runc itself: a runtime before containerd 2.0 makes no user namespaces for pods."""
    runc, busybox = shutil.which("runc"), shutil.which("busybox")
    if runc is None or busybox is None or os.geteuid() != 0:
        pytest.skip("needs runc, busybox and root")
    mapping = Ranges(tmp_path / "pods", Pool(3 * ALIGNMENT, 4)).get_or_create("pod")
    for directory in (tmp_path, *tmp_path.parents):
        if directory.name.startswith(("pytest-", "popen-", "test_")):
            directory.chmod(0o755)
    bundle = tmp_path / "bundle"
    for name in ("bin", "proc", "dev"):
        (bundle / "rootfs" / name).mkdir(parents=True)
    shutil.copy(busybox, bundle / "rootfs" / "bin" / "busybox")
    for path in (bundle, *bundle.rglob("*")):
        os.chown(path, mapping.host_id, mapping.host_id)
    ids = [{"containerID": 0, "hostID": mapping.host_id, "size": mapping.length}]
    script = "/bin/busybox id -u; /bin/busybox cat /proc/self/uid_map; /bin/busybox sleep 60"
    config = {
        "ociVersion": "1.0.2",
        "process": {"user": {"uid": 0, "gid": 0}, "args": ["/bin/busybox", "sh", "-c", script], "cwd": "/"},
        "root": {"path": "rootfs"},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("user", "pid", "mount", "ipc", "uts", "network")],
            "uidMappings": ids,
            "gidMappings": ids,
        },
    }
    (bundle / "config.json").write_text(json.dumps(config))
    out, command = tmp_path / "out", [runc, "--root", str(tmp_path / "state")]
    name, running = started(command, bundle, out)
    try:
        uid, *table = out.read_text().split()
        assert (uid, table[:3]) == ("0", ["0", str(mapping.host_id), str(mapping.length)]), out.read_text()
        found = subprocess.run([*command, "ps", "--format", "json", name], capture_output=True, text=True, check=True)
        owners = {Path(f"/proc/{pid}").stat().st_uid for pid in json.loads(found.stdout)}
        assert owners == {mapping.host_id}
    finally:
        subprocess.run([*command, "delete", "--force", name], capture_output=True, check=False, timeout=30)
        running.wait(30)
