"""Completion in real shells: commands, flags, kinds, profiles, and the names in a cluster; silent without one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from haru.cli.completion_words import complete
from haru.cli.main import build_parser, flags_of, main

SHELLS = ["bash", *(pytest.param(name, marks=pytest.mark.host) for name in ("zsh", "fish"))]
SCRIPTS = {
    "bash": """source <(haru completion bash)
COMP_LINE="$1"; COMP_POINT=${#COMP_LINE}; read -ra COMP_WORDS <<< "$1"; _haru; printf '%s\\n' "${COMPREPLY[@]}" """,
    "zsh": """source <(haru completion zsh); compadd() { local name="${@[-1]}"; print -l -- "${(P@)name}" }
_files() { }; words=("${(@s: :)1}"); CURRENT=${#words}; _haru""",
    "fish": """haru completion fish | source; complete -C "$argv[1]" """,
}
NAMES = {
    "/api/v1/namespaces": ["default", "team-a"],
    "/api/v1/nodes": ["n1", "n2"],
    "/api/v1/namespaces/default/pods": ["web-1", "web-2"],
    "/api/v1/namespaces/team-a/pods": ["secret-1"],
    "/apis/apps/v1/namespaces/default/deployments": ["web"],
    "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets": ["sweep"],
}


class Cluster(BaseHTTPRequestHandler):
    """Answers lists; `hang` keeps a question without an answer until it is set."""

    hang: threading.Event | None = None

    def do_GET(self) -> None:
        if self.hang is not None:
            self.hang.wait(60)
        path = self.path.partition("?")[0]
        items: list[object] = [{"metadata": {"name": name}} for name in NAMES.get(path, ())]
        if path == "/apis/resource.k8s.io/v1/resourceslices":
            items = [{"metadata": {"name": "s"}, "spec": {"devices": [{"name": "gpu-0"}, {"name": "gpu-1"}]}}]
        body = json.dumps({"items": items}).encode()
        self.send_response(200 if items else 404)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A kubeconfig for a server on loopback, which KUBECONFIG names."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Cluster) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        path = tmp_path / "kubeconfig"
        entry = {"name": "lab", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        context = {"name": "lab", "context": {"cluster": "lab", "user": "lab"}}
        body = {"clusters": [entry], "users": [{"name": "lab", "user": {}}], "contexts": [context]}
        path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **body, "current-context": "lab"}))
        monkeypatch.setenv("KUBECONFIG", str(path))
        monkeypatch.setattr("haru.cli.completion_words.SECONDS", 60.0)
        yield path
        server.shutdown()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("haru expl", ["explain"]),
        ("haru completion ", ["bash", "fish", "zsh"]),
        ("haru explain p", ["pod/", "podgroup/", "pytorchjob/"]),
        ("haru explain pod/w", ["pod/web-1", "pod/web-2"]),
        ("haru explain pod web-1", ["web-1"]),
        ("haru explain -n team-a pod/", ["pod/secret-1"]),
        ("haru explain deployment/", ["deployment/web"]),
        ("haru explain jobset/", ["jobset/sweep"]),
        ("haru explain node/", ["node/n1", "node/n2"]),
        ("haru explain device/n", ["device/n1/", "device/n2/"]),
        ("haru explain device/n1/", ["device/n1/gpu-0", "device/n1/gpu-1"]),
        ("haru explain -n ", ["default", "team-a"]),
        ("haru explain --namespace=t", ["--namespace=team-a"]),
        ("haru explain --context ", ["lab"]),
        ("haru explain -o ", ["html", "json", "text", "wide", "yaml"]),
        ("haru explain --no", ["--no-leader-elect", "--no-remedies"]),
        ("haru whatif --cordon ", ["n1", "n2"]),
        ("haru whatif --add-nodes dgx-h100-m", ["dgx-h100-mig", "dgx-h100-mig-balanced"]),
        ("haru whatif --repartition n1=dgx-h100-s", ["n1=dgx-h100-shared"]),
        ("haru up --profile cpu:1,dgx-h100-p", ["cpu:1,dgx-h100-plugin"]),
        ("haru explain service/", []),
        ("haru nothing ", []),
        ("haru explain 'pod/web-2", []),
    ],
)
def test_words_that_complete_a_line(line: str, words: list[str], kubeconfig: Path) -> None:
    assert complete(line) == words


def test_every_command_and_flag_is_offered() -> None:
    commands = flags_of(build_parser())
    assert complete("haru ") == sorted({command.split()[0] for command in commands})
    for command, flags in commands.items():
        assert set(flags) <= set(complete(f"haru {command} --")), command


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("haru explain pod/", ["pod/web-1", "pod/web-2"]),
        ("haru explain -n ", ["default", "team-a"]),
    ],
)
def test_completion_in_a_shell(shell: str, line: str, words: list[str], kubeconfig: Path, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    command = tmp_path / "bin" / "haru"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m haru "$@"\n')
    command.chmod(0o755)
    env = {"PATH": f"{command.parent}:/usr/bin:/bin", "HOME": str(tmp_path), "KUBECONFIG": str(kubeconfig)}
    env |= {"HARU_COMPLETION_SECONDS": "60", "XDG_STATE_HOME": str(tmp_path)}
    flags = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    arguments = [program, *flags, "-c", SCRIPTS[shell], *([shell] if shell != "fish" else []), line]
    answer = subprocess.run(arguments, env=env, capture_output=True, text=True, check=False, timeout=120)
    # fish shows the last word of a line, and a description after a tab.
    found = sorted(word.partition("\t")[0] for word in answer.stdout.splitlines() if word)
    assert found == words, answer.stderr


def test_bash_completes_what_follows_a_colon_or_an_equals_sign(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash", "--words", "haru up --profile dgx-h100:1,dgx-a100-40gb-p"]) == 0
    assert capsys.readouterr().out == "1,dgx-a100-40gb-plugin\n"
    assert main(["completion", "zsh", "--words", "haru up --profile dgx-h100:1,dgx-a100-40gb-p"]) == 0
    assert capsys.readouterr().out == "dgx-h100:1,dgx-a100-40gb-plugin\n"


def test_no_cluster_is_no_error(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert main(["completion", "bash", "--words", "haru explain pod/"]) == 0
    assert capfd.readouterr() == ("", "")


def test_cluster_that_does_not_answer_ends_completion_in_time(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Cluster, "hang", threading.Event())
    monkeypatch.setenv("HARU_COMPLETION_SECONDS", "0.5")
    arguments = [sys.executable, "-m", "haru", "completion", "bash", "--words", "haru explain pod/"]
    # It ends by itself: the server would hold the answer for a minute.
    answer = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=50)
    Cluster.hang.set()  # type: ignore[union-attr]
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
