"""Completion in real shells: commands, flags, kinds, profiles, and the names in a cluster; silent without one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from haru.cli.main import build_parser, flags_of

SHELLS = ["bash", "zsh", "fish"]
SCRIPTS = {
    "bash": """source <(haru completion bash)
COMP_LINE="$1"; COMP_POINT=${#COMP_LINE}; read -ra COMP_WORDS <<< "$1"; _python_argcomplete haru
printf '%s\\n' "${COMPREPLY[@]}" """,
    "zsh": """autoload -U +X compinit && compinit -u -D; source <(haru completion zsh)
_describe() { local name="$2"; print -l -- "${(P@)name}" }
BUFFER="$1"; CURSOR=${#BUFFER}; words=("${(@s: :)1}"); _python_argcomplete""",
    "fish": """haru completion fish | source; complete -C "$argv[1]" """,
}
COMPLETE_ALL = """
import io, json, os, sys
from haru.cli.completion_words import complete_line
from haru.cli.main import build_parser

def words(line):
    os.environ["COMP_LINE"], os.environ["COMP_POINT"] = line, str(len(line))
    output = io.StringIO()
    complete_line(build_parser, output, lambda code: None)
    return sorted(filter(None, output.getvalue().split("\\n")))

print(json.dumps([words(line) for line in json.load(sys.stdin)]))
"""
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
        monkeypatch.setenv("HARU_COMPLETION_SECONDS", "60")
        yield path
        server.shutdown()


LINES = {
    "haru expl": ["explain"],
    "haru completion ": ["bash", "fish", "zsh"],
    "haru explain p": ["pod/", "podgroup/", "pytorchjob/"],
    "haru explain pod/w": ["pod/web-1", "pod/web-2"],
    "haru explain pod web-1": ["web-1"],
    "haru explain -n team-a pod/": ["pod/secret-1"],
    "haru explain deployment/": ["deployment/web"],
    "haru explain jobset/": ["jobset/sweep"],
    "haru explain node/": ["node/n1", "node/n2"],
    "haru explain device/n": ["device/n1/", "device/n2/"],
    "haru explain device/n1/": ["device/n1/gpu-0", "device/n1/gpu-1"],
    "haru explain -n ": ["default", "team-a"],
    "haru explain --namespace=t": ["team-a"],
    "haru explain --context ": ["lab"],
    "haru explain -o ": ["html", "json", "text", "wide", "yaml"],
    "haru explain --no": ["--no-leader-elect", "--no-remedies"],
    "haru whatif --cordon ": ["n1", "n2"],
    "haru whatif --add-nodes dgx-h100-m": ["dgx-h100-mig", "dgx-h100-mig-balanced"],
    "haru whatif --repartition n1=dgx-h100-s": ["dgx-h100-shared"],
    "haru up --profile cpu:1,dgx-h100-p": ["1,dgx-h100-plugin"],
    "haru explain service/": [],
    "haru explain 'pod/web-2": ["pod/web-2"],
}
"""What follows the last `:` or `=` of a word, as bash has it."""


def completed(lines: list[str]) -> list[list[str]]:
    """The words that complete each line, of one process."""
    # argcomplete writes to a descriptor of a fixed number, which a test's own process may use otherwise.
    command = ["sh", "-c", 'exec "$0" -c "$1" 9>/dev/null', sys.executable, COMPLETE_ALL]
    env = {**os.environ, "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SUPPRESS_SPACE": "1"}
    env |= {"HARU_COMPLETION_SECONDS": "60"}
    env["_ARGCOMPLETE_COMP_WORDBREAKS"] = " \t\n\"'><=;|&(:"
    answer = subprocess.run(
        command, env=env, input=json.dumps(lines), capture_output=True, text=True, check=True, timeout=120
    )
    found: list[list[str]] = json.loads(answer.stdout)
    return found


def test_words_that_complete_lines(kubeconfig: Path) -> None:
    assert dict(zip(LINES, completed(list(LINES)), strict=True)) == LINES


def test_every_command_and_flag_is_offered() -> None:
    commands = flags_of(build_parser())
    first, *others = completed(["haru ", *(f"haru {command} --" for command in commands)])
    assert first == sorted({command.split()[0] for command in commands})
    for (command, flags), offered in zip(commands.items(), others, strict=True):
        assert set(flags) <= set(offered), command


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
    # A description, here none, is behind a tab in fish, behind a colon in zsh.
    found = sorted(word.partition("\t")[0].rstrip(":") for word in answer.stdout.splitlines() if word)
    assert found == words, answer.stderr


def test_no_cluster_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    assert completed(["haru explain pod/"]) == [[]]


def test_cluster_that_does_not_answer_ends_completion_in_time(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "hang", threading.Event())
    env = {**os.environ, "HARU_COMPLETION_SECONDS": "0.5", "_ARGCOMPLETE": "1"}
    env |= {"COMP_LINE": "haru explain pod/", "COMP_POINT": "17"}
    # It ends by itself: the server would hold the answer for a minute.
    command = ["sh", "-c", 'exec "$0" -m haru 8>&1 9>&2', sys.executable]
    answer = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=50)
    Cluster.hang.set()  # type: ignore[union-attr]
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
