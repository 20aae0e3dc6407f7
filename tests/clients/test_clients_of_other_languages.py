"""Clients of other languages, unmodified, against `haru up`: each folder beside this file holds programs of one.

client-go with controller-runtime, the official JavaScript client, fabric8's Java client. What they are built from is
fetched at run time; where a language or its modules cannot be had, the test skips and says so.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from haru_process import Up

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "clients"
PASSED = re.compile(r"^\s*(?:--- PASS: (\S+)|ok \d+ - (.+)|ok (\S+))", re.M)
FAILED = re.compile(r"^\s*(?:--- FAIL: (\S+)|not ok .+)", re.M)
FETCH_SECONDS, RUN_SECONDS = 600, 300
# Where nothing is cached, Go's libraries take two minutes of processor time; optimized they would take a third more.
QUICK_BUILD = ("nice", "go", "test", "-c", "-vet=off", "-gcflags=all=-N -l", "-ldflags=-w")
# Programs that run for seconds: what the just-in-time compiler and a collector of many threads prepare never pays.
QUICK_JAVA = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    up = Up(
        tmp_path_factory.mktemp("clients"),
        "--ephemeral",
        "--profile",
        "dgx-h100:2",
        "--no-dashboard",
        "--no-explain-api",
    )
    yield up
    assert up.stop() == 0


def command(folder: Path, *arguments: str, seconds: float, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments,
        cwd=folder,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=seconds,
    )


def fetched(folder: Path, *arguments: str, **env: str) -> None:
    """Fetches what the programs need, or skips."""
    if shutil.which(arguments[0]) is None:
        pytest.skip(f"{arguments[0]} is not installed")
    answer = command(folder, *arguments, seconds=FETCH_SECONDS, **env)
    if answer.returncode:
        pytest.skip(f"{' '.join(arguments)}: {answer.stdout[-500:]}")


def run(cluster: Up, folder: Path, arguments: Sequence[str], least: int, **env: str) -> None:
    """Runs programs, of which at least so many have to pass and none may fail."""
    answer = command(folder, *arguments, seconds=RUN_SECONDS, KUBECONFIG=str(cluster.kubeconfig), **env)
    passed, failed = PASSED.findall(answer.stdout), FAILED.findall(answer.stdout)
    assert answer.returncode == 0, answer.stdout[-8000:]
    assert not failed, answer.stdout[-8000:]
    assert len(passed) >= least, answer.stdout[-8000:]


def test_programs_of_client_go_and_controller_runtime_pass(cluster: Up) -> None:
    fetched(HERE / "golang", "go", "mod", "download")
    binary = BUILD / "golang" / "clients.test"
    built = command(HERE / "golang", *QUICK_BUILD, "-o", str(binary), ".", seconds=FETCH_SECONDS)
    assert built.returncode == 0, built.stdout[-8000:]
    run(cluster, HERE / "golang", [str(binary), "-test.v"], least=12)


def test_programs_of_the_javascript_client_pass(cluster: Up) -> None:
    folder = BUILD / "javascript"
    folder.mkdir(parents=True, exist_ok=True)
    for file in (HERE / "javascript").glob("*.js*"):
        shutil.copy(file, folder)
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    fetched(folder, "npm", "ci", "--no-audit", "--no-fund")
    run(cluster, folder, ["node", "--test", "--test-reporter=tap", "clients.test.js"], least=8)


def test_programs_of_fabric8s_java_client_pass(cluster: Up) -> None:
    jars = BUILD / "java"
    fetched(HERE / "java", "mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}", **QUICK_JAVA)
    run(cluster, jars, ["java", "-cp", f"{jars}/*", str(HERE / "java" / "Clients.java")], least=6, **QUICK_JAVA)
