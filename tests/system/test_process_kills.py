"""Nothing that was acknowledged is lost when `haru up` is killed, and its successor on the same directory goes on.

A writer notes every answer of the API; a watcher notes every change it is shown. After each SIGKILL the store is read
as it lies on disk, before a successor can touch it: all that was noted must be there, the gang whole or reserved, and
no device in two hands.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from gang_history import History

from haru.storage import SqliteStore
from haru_process import Api, Process, Refusal, Up, path_of, phase, until

Obj = dict[str, Any]
DEMO = Path(__file__).parents[2] / "examples" / "demo"
PROFILES = "dgx-h100:2,dgx-a100-80gb-mig:1,tpu-v5e:1,cpu:1"
MANIFESTS = ("10-notebooks", "20-training", "30-inference-mig", "31-inference-shared", "40-fallback", "50-tpu")
WATCHED = ("pods", "resourceclaims", "podgroups", "jobs", "deployments")
KILLS = 50 if os.environ.get("HARU_NIGHTLY") == "1" else 4
SEED = int(os.environ.get("HARU_SEED", "0")) or 20261120
LOST = (OSError, http.client.HTTPException, Refusal)


class Notebook:
    """What the API has said: by path, the version it gave, or that the object is gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.written: dict[str, tuple[int, Obj | None]] = {}
        self.seen: dict[str, int] = {}
        self.newest = 0

    def wrote(self, path: str, answer: Obj) -> None:
        revision = int(answer["metadata"]["resourceVersion"])
        with self._lock:
            self.written[path] = (revision, answer)
            self.newest = max(self.newest, revision)

    def removed(self, path: str) -> None:
        with self._lock:
            self.written[path] = (0, None)

    def saw(self, revision: int, path: str) -> None:
        with self._lock:
            self.seen[path] = max(revision, self.seen.get(path, 0))
            self.newest = max(self.newest, revision)


class Busy:
    """Threads that write and watch until the server is gone."""

    def __init__(self, kubeconfig: Path, notes: Notebook, seed: int) -> None:
        self._api, self._notes, self._rng = Api(kubeconfig), notes, random.Random(seed)
        self._kubeconfig, self._ended = kubeconfig, threading.Event()
        self._seed = seed
        self.claims = History(device_use)
        works: list[tuple[Callable[..., None], tuple[Any, ...]]] = [(self._write, (n,)) for n in range(2)]
        works += [(self._watch, (plural,)) for plural in WATCHED]
        self.threads = [threading.Thread(target=work, args=args, daemon=True) for work, args in works]
        for thread in self.threads:
            thread.start()

    def end(self) -> None:
        self._ended.set()
        for thread in self.threads:
            thread.join(90)
            assert not thread.is_alive(), "a request outlived the server"
        self._api.close()

    def _write(self, lane: int) -> None:
        """Objects that nobody else touches: created, changed, deleted, each answer noted."""
        mine: list[str] = []
        number = 0
        try:
            while not self._ended.is_set():
                name = f"note-{self._seed}-{lane}-{number}"
                path = f"configmaps/default/{name}"
                body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": "0"}}
                self._notes.wrote(path, self._api.create(body, "default"))
                mine.append(name)
                number += 1
                for changed in mine[-3:]:
                    answer = self._api.patch("configmaps", changed, {"data": {"n": str(number)}}, "default")
                    self._notes.wrote(f"configmaps/default/{changed}", answer)
                if number % 4 == 0:
                    gone = mine.pop(0)
                    self._notes.written.pop(f"configmaps/default/{gone}")  # until the answer it may be either
                    self._api.delete("configmaps", gone, "default")
                    self._notes.removed(f"configmaps/default/{gone}")
                time.sleep(0.005)
        except LOST:
            return
        finally:
            self._api.close()

    def _watch(self, plural: str) -> None:
        api = Api(self._kubeconfig)
        connection = http.client.HTTPSConnection(api._host, api._port, context=api._tls, timeout=60)
        try:
            headers = {"Authorization": f"Bearer {api.token}", "Accept": "application/json"}
            connection.request("GET", path_of(plural) + "?watch=true", headers=headers)
            answer = connection.getresponse()
            while line := answer.readline():
                event = json.loads(line)
                metadata = event["object"].get("metadata") or {}
                if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                    path = f"{plural}/{metadata['namespace']}/{metadata['name']}"
                    self._notes.saw(int(metadata["resourceVersion"]), path)
                    if plural == "resourceclaims":
                        gone = event["type"] == "DELETED"
                        value = None if gone else json.dumps(event["object"]).encode()
                        self.claims.apply(plural, path, value, int(metadata["resourceVersion"]))
        except (OSError, ValueError, http.client.HTTPException, AttributeError):
            return
        finally:
            connection.close()


async def on_disk(data: Path) -> tuple[int, dict[str, dict[str, Obj]]]:
    """The newest revision and the objects, by plural and path, in the store of a directory without a server."""
    store = SqliteStore(data / "state.db")
    await store.start()
    try:
        objects: dict[str, dict[str, Obj]] = {}
        for bucket in list(store._buckets):
            plural = bucket.partition(".")[0]
            for record in (await store.range(f"{bucket}/")).records:
                path = f"{plural}/{record.key.partition('/')[2]}"
                objects.setdefault(plural, {})[path] = json.loads(record.value)
        return store.revision, objects
    finally:
        await store.stop()


def check_disk(data: Path, notes: Notebook) -> None:
    revision, objects = asyncio.run(on_disk(data))
    assert revision >= notes.newest, f"revision {notes.newest} was shown, the store is at {revision}"
    found = {path: obj for by_path in objects.values() for path, obj in by_path.items()}
    for path, (acknowledged, answer) in notes.written.items():
        stored = found.get(path)
        if answer is None:
            assert stored is None, f"{path} was deleted and is back at {stored['metadata']['resourceVersion']}"
            continue
        assert stored is not None, f"{path} was acknowledged at {acknowledged} and is gone"
        assert stored["metadata"]["uid"] == answer["metadata"]["uid"], f"{path} is another object"
        version = int(stored["metadata"]["resourceVersion"])
        assert version >= acknowledged, f"{path} was acknowledged at {acknowledged} and is at {version}"
        if version == acknowledged:
            assert stored["data"] == answer["data"], path
    for path, seen in notes.seen.items():
        if path in found:
            version = int(found[path]["metadata"]["resourceVersion"])
            assert version >= seen, f"{path} was shown at {seen} and is at {version}"
        else:
            assert revision >= seen, path
    history = History(device_use)
    history.take(objects, revision)
    assert not history.problems
    check_cards(list(objects.get("resourceclaims", {}).values()))


def device_use(result: Obj) -> tuple[str, int, int]:
    """Every device for itself."""
    return f"{result['pool']}/{result['device']}", 1, 1


def check_cards(claims: list[Obj]) -> None:
    """A card that is given out as a whole is not given out in slices too."""
    held = {
        (result["pool"], result["device"])
        for claim in claims
        for result in ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results") or ()
    }
    cut = {(pool, device.partition("-mig-")[0]) for pool, device in held if "-mig-" in device}
    assert not cut & held, f"given out whole and in slices: {cut & held}"


def submit(api: Api, manifest: str) -> None:
    """All objects of a file; those that are there already were submitted before a kill."""
    for obj in yaml.safe_load_all((DEMO / f"{manifest}.yaml").read_text()):
        try:
            api.create(obj)
        except Refusal as error:
            if error.code != 409:
                raise


def test_repeatedly_killed_haru_up_loses_no_acknowledged_write(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    print(f"HARU_SEED={SEED}")
    notes, data = Notebook(), tmp_path / "data"
    flags = ("--profile", PROFILES, "--data-dir", str(data))
    left = list(MANIFESTS)
    for number in range(KILLS):
        if number and rng.random() < 0.25:  # killed while it starts
            starting = Process(tmp_path, ["up", "--listen", "127.0.0.1:0", *flags], "starting")
            time.sleep(rng.uniform(0.2, 1.0))
            starting.stop(signal.SIGKILL)
            check_disk(data, notes)
        up = Up(tmp_path, *flags)
        busy = Busy(up.kubeconfig, notes, SEED + number)
        killer = threading.Timer(rng.uniform(0.05, 2.0), up.process.kill)
        killer.start()
        try:
            if number == KILLS // 2:
                up.api.patch("deployments", "notebooks", {"spec": {"replicas": 1}}, "default")
            for _ in range(max(1, len(MANIFESTS) // KILLS + 1)):
                if left:
                    submit(up.api, left[0])
                    left.pop(0)
        except LOST:
            pass  # it was killed meanwhile: submitted again next time
        killer.join()
        up.stop(signal.SIGKILL)
        busy.end()
        assert not busy.claims.problems
        check_disk(data, notes)
    assert len(notes.written) > KILLS and len(notes.seen) > 5
    finish(Up(tmp_path, *flags), left, notes)
    check_disk(data, notes)


def finish(up: Up, left: list[str], notes: Notebook) -> None:
    """Undisturbed, everything that was asked for comes to run."""
    expected = {"training": 6, "notebooks": 1, "serving": 3, "inference-small": 1, "chat-": 2, "jax": 1}
    try:
        for manifest in left:
            submit(up.api, manifest)
        up.api.patch("deployments", "notebooks", {"spec": {"replicas": 1}}, "default")

        def running(prefix: str) -> int:
            pods = up.api.list("pods", "default")
            return sum(1 for p in pods if p["metadata"]["name"].startswith(prefix) and phase(p) == "Running")

        for prefix, count in expected.items():
            until(f"{count} pods {prefix}* run", lambda p=prefix, n=count: running(p) == n, 60)  # type: ignore[misc]
        [group] = up.api.list("podgroups", "default")
        told = {c["type"]: c["status"] for c in group["status"]["conditions"]}
        assert told["PodGroupScheduled"] == "True"
    except AssertionError as error:
        pytest.fail(f"{error}\n{up.log.read_text()[-3000:]}")
    finally:
        up.stop()
