"""Usage errors of every command: exit status 2, one line on stderr that names the flag, the value and the remedy."""

from __future__ import annotations

import codecs
import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from haru.cli.main import COMMANDS, build_parser, flags_of, main

NOWHERE = "/nowhere/at/all"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home without any cluster. What commands set for their whole process is set back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x: 1\n")
    (tmp_path / "broken.yaml").write_text("a: [1\nb: 2\n")
    (tmp_path / "twice.txt").write_text("a: 1\na: 2\n")
    (tmp_path / "latin.yml").write_bytes(b"a: \xe9\n")
    (tmp_path / "empty").touch()
    (tmp_path / "node").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n")
    (tmp_path / "kubeconfig").write_text(
        "apiVersion: v1\nkind: Config\nclusters: []\ncontexts: []\nusers: []\ncurrent-context: ''\n"
    )
    (tmp_path / "whole").write_text(
        "clusters: [{name: a, cluster: {server: 'https://h'}}]\n"
        "contexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n"
    )
    (tmp_path / "fileless").write_text(
        "clusters: [{name: a, cluster: {server: 'https://h'}}]\nusers: [{name: a, user: {tokenFile: none}}]\n"
        "contexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n"
    )
    head = "apiVersion: haru.dev/v1alpha1\nkind: UpConfiguration\n"
    (tmp_path / "field.yaml").write_text(head + "profile: cpu:1\n")
    (tmp_path / "both.yaml").write_text(head + "ephemeral: true\ndataDir: /tmp/x\n")
    yield tmp_path
    root.handlers[:] = handlers
    root.setLevel(level)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command says; it must end with status 2 and print nothing on stdout."""
    try:
        status = main(arguments)
    except SystemExit as end:
        status = int(end.code or 0)
    out, err = capsys.readouterr()
    assert (status, out) == (2, ""), err
    assert err.count("\n") == 1, err
    return err.strip()


GATE_HINT = "did you mean GangScheduling?"
CASES: list[tuple[list[str], list[str]]] = [
    ([], ["COMMAND", "haru --help"]),
    (["nope"], ["nope", "explain", "scheduler"]),
    (["--nope", "version"], ["--nope"]),
    (["version", "extra"], ["extra", "haru version --help"]),
    (["version", "-o", "xml"], ["--output", "xml", "json"]),
    (["explain", "--publish", "--all"], ["--publish", "other schedulers"]),
    (["explain", "pod/p", "--publish"], ["--publish", "name no object"]),
    (["explain", "--publish=all"], ["--publish", "counts", "names"]),
    (["completion"], ["shell", "haru completion --help"]),
    (["completion", "tcsh"], ["tcsh", "bash", "zsh", "fish"]),
    (["explain"], ["KIND/NAME"]),
    (["explain", "training"], ["training", "KIND/NAME", "job/training"]),
    (["explain", "pod/"], ["pod/", "KIND/NAME"]),
    (["explain", "service/a"], ["service", "pod, podgroup, job, replicaset, statefulset, claim, node, device"]),
    (["explain", "pod/a", "-o", "xml"], ["--output", "xml", "text", "json", "yaml"]),
    (["explain", "pod/a"], ["no cluster found", "haru up", "--kubeconfig"]),
    (["explain", "pod/a", "--kubeconfig", NOWHERE], ["--kubeconfig", NOWHERE, "no such file"]),
    (["explain", "pod/a", "--kubeconfig", "kubeconfig"], ["kubeconfig", "context"]),
    (["explain", "pod/a", "--kubeconfig", "whole", "--as-group", "g"], ["--as-uid and --as-group need --as"]),
    (["explain", "pod/a", "--kubeconfig", "kubeconfig", "--context", "lab"], ["kubeconfig", "lab"]),
    (["explain", "pod/a", "--kubeconfig", "broken.yaml"], ["broken.yaml", "line"]),
    (["explain", "pod/a", "-f", NOWHERE], [NOWHERE, "No such file"]),
    (["explain", "pod/a", "-f", "."], ["broken.yaml", "line"]),  # the manifests of a directory
    (["explain", "pod/a", "-f", "broken.yaml"], ["broken.yaml", "line"]),
    (["explain", "pod/a", "-f", "file"], ["file", "kind"]),
    (["explain", "pod/a", "-l", "app=a"], ["pod/a and --selector", "leave one of them out"]),
    (["fleet", "--profile", "cpu:1", "--name-prefix", "A_"], ['--name-prefix: Invalid value: "A_"', "lowercase"]),
    (["fleet", "--profile", "cpu:1", "--name", "A B"], ['--name: Invalid value: "A B"', "label"]),
    (["explain", "pod/a", "-f", ""], ['""', "is a variable of the shell empty?"]),
    (["explain", "pod/a", "-f", "twice.txt"], ["twice.txt", 'line 2: key "a" already set']),
    (
        ["explain", "pod/a", "-f", "node", "--kubeconfig", "kubeconfig"],
        ["-f and --kubeconfig", "leave one of them out"],
    ),
    (["explain", "pod/a", "--kubeconfig", "fileless"], ["haru explain: token file ", "none: No such file"]),
    (["explain", "pod/a", "--kubeconfig", "whole", "--as", "a\nb"], ["whole: to act as 'a\\nb': ", "one line"]),
    (["whatif", "-f", "node", "--as", "me"], ["-f and --as ", "leave one of them out"]),
    (["whatif", "-f", "node", "--context", "lab"], ["-f and --context", "leave one of them out"]),
    (["explain", "pod/a", "--kubeconfig", "latin.yml"], ["latin.yml: this is no UTF-8 text"]),
    (["explain", "pod/a", "--kubeconfig", "."], [".: Is a directory"]),
    (["simulate", "-f", "node", "--seed", "a"], ['--seed: Invalid value: "a": write a whole number']),
    (["stress", "--plan", "--drain", "long"], ['--drain: Invalid value: "long": write a number']),
    (["stress", "--plan", "--duration", "nan"], ['--duration: Invalid value: "nan": write a number']),
    (["stress", "--plan", "--fit-grace", "-1"], ['--fit-grace: Invalid value: "-1": write a number']),
    (
        ["signer", "serve", "--socket", "s", "--key-dir", "k", "--allow-uid=-1"],
        ['--allow-uid: Invalid value: "-1": write a'],
    ),
    (["stress", "--plan", "--max-pods", "0"], ['--max-pods: Invalid value: "0": write a number, at least 1']),
    (["explain", "serve", "--max-waiting", "0"], ['--max-waiting: Invalid value: "0": write a number, at least 1']),
    (["explain", "serve", "--service=a/b", "--tls-cert-file=file"], ["--tls-private-key-file go together"]),
    (["node", "--client-ca-file", NOWHERE], [f'--client-ca-file: Invalid value: "{NOWHERE}": there is no such']),
    (
        ["dashboard", "--secure-port=1", "--tls-cert-file=file", f"--tls-private-key-file={NOWHERE}"],
        [f'--tls-private-key-file: Invalid value: "{NOWHERE}": there is no such file'],
    ),
    (["top", "--since", "1h", "--history", "empty"], ["empty: no such table", "is it a usage history?"]),
    (["explain", "serve", "--bind-address", "é"], ['--bind-address: Invalid value: "é": write an IP address']),
    (["scheduler", "--bind-address", "lab"], ['--bind-address: Invalid value: "lab": write an IP address']),
    (["dashboard", "--bind-address", "lab"], ['--bind-address: Invalid value: "lab": write an IP address']),
    (["node", "--healthz-bind-address", ""], ['--healthz-bind-address: Invalid value: "": write an IP address']),
    (
        ["up", "--ephemeral", "--listen=127.0.0.1:0", "--card-prices", "broken.yaml"],
        ["--card-prices: broken.yaml", "line 2"],
    ),
    (["up", "--scheduler-name", ""], ['--scheduler-name: Invalid value: ""', "write the schedulerName of pods"]),
    (["scheduler", "--scheduler-name", " "], ['--scheduler-name: Invalid value: " "']),
    (["lint", "a" * 300], ["aaa: File name too long"]),
    (["allocate", "-f", "node", "--timeout", "soon"], ["--timeout", '"soon"', "number of seconds above 0"]),
    (["simulate", "-f", "node", "--feature-gates", "GangSchedulin=true"], ["--feature-gates:", GATE_HINT]),
    (["simulate", "-f", "node", "--arrivals", "."], ["--arrivals: .: Is a directory"]),
    (["simulate", "-f", "node", "--arrivals", "latin.yml"], ["--arrivals: latin.yml: this is no UTF-8 text"]),
    (["whatif", "-f", "node", "--add-nodes", "./latin.yml"], ["--add-nodes", "latin.yml: this is no UTF-8 text"]),
    (["up", "--config", "latin.yml"], ["--config: latin.yml: this is no UTF-8 text"]),
    (
        ["up", "--ephemeral", "--listen", "127.0.0.1:0", "--card-prices", "latin.yml"],
        ["--card-prices: latin.yml: this is no UTF"],
    ),
    (["capture", "-f", "node", "--write", ""], ["--write: .: Is a directory"]),
    (["explain", "pod/a", "--namespac", "x"], ["--namespac", "did you mean --namespace?"]),
    (["up", "--profile"], ["--profile", "argument"]),
    (["up", "--profile", "dgx:x"], ["--profile", "dgx:x", "NAME:COUNT"]),
    (["up", "--profile", "nope"], ["--profile", "nope", "dgx-h100", "FILE.yaml"]),
    (["up", "--profile", "./absent.yaml:2"], ["--profile", "absent.yaml", "No such file"]),
    (["up", "--profile", "./file.yaml:2"], ["--profile", "file.yaml"]),
    (["up", "--listen", "6443"], ["--listen", "6443", "HOST:PORT"]),
    (["up", "--listen", "127.0.0.1:70000"], ["--listen", "70000", "HOST:PORT"]),
    (["up", "--listen", "example.com:1"], ["--listen", "example.com", "IP address"]),
    (["up", "--ephemeral", "--listen", "192.0.2.1:0"], ["--listen", "192.0.2.1:0", "take another address"]),
    (["up", "--ephemeral", "--data-dir", "x"], ["--data-dir", "--ephemeral"]),
    (["up", "--data-dir", "file/x"], ["--data-dir", "file/x", "can be written"]),
    (
        ["up", "--ephemeral", "--listen", "127.0.0.1:0", "--write-kubeconfig", f"{NOWHERE}/x"],
        ["--write-kubeconfig", f"{NOWHERE}/x", "can be written"],
    ),
    (["up", "--config", NOWHERE], ["--config", NOWHERE, "No such file"]),
    (["up", "--config", "file"], ["--config", "file", "apiVersion", "haru.dev/v1alpha1"]),
    (["up", "--config", "broken.yaml"], ["--config", "broken.yaml", "line"]),
    (["up", "--config", "field.yaml"], ["field.yaml", "profile", "profiles"]),
    (["up", "--config", "both.yaml"], ["both.yaml", "dataDir", "ephemeral"]),
    (["up", "--feature-gates", "GangSchedulin=true"], ["--feature-gates", "GangSchedulin", GATE_HINT]),
    (["up", "--feature-gates", "GangScheduling"], ["--feature-gates", "GangScheduling=true"]),
    (["up", "--feature-gates", "GangScheduling=maybe"], ["--feature-gates", "maybe", "GangScheduling=true"]),
    (["up", "--feature-gates", "DynamicResourceAllocation=false"], ["--feature-gates", "locked to true", "drop"]),
    (["up", "--runtime-config", "api/all=maybe"], ["--runtime-config", "maybe", "=true"]),
    (
        ["up", "--runtime-config", "resource.k8s.io/v1beta3=true"],
        ["--runtime-config", "resource.k8s.io/v1beta3", "did you mean"],
    ),
    (["up", "--controllers", "jobs"], ["--controllers", "jobs", "job-controller"]),
    (["up", "--no-scheduler", "--scheduler-name", "x"], ["--scheduler-name", "--no-scheduler"]),
    (["up", "--log-format", "xml"], ["--log-format", "xml", "json"]),
    (["up", "--ephemral"], ["--ephemral", "did you mean --ephemeral?"]),
    (["up", "--profil", "cpu:1"], ["--profil", "did you mean --profile?"]),
]
for component in ("scheduler", "controllers"):
    CASES += [
        ([component], ["no cluster found", "--kubeconfig"]),
        ([component, "--kubeconfig", NOWHERE], ["--kubeconfig", NOWHERE]),
        ([component, "--health-port", "x"], ["--health-port", '"x"', "0 to 65535"]),
        ([component, "--health-port", "70000"], ["--health-port", "70000", "0 to 65535"]),
        ([component, "--feature-gates", "GangSchedulin=true"], ["--feature-gates", "GangSchedulin", GATE_HINT]),
        ([component, "--log-format", "xml"], ["--log-format", "xml", "json"]),
        ([component, "--secure-port", "x"], ["--secure-port", '"x"', "0 to 65535"]),
    ]
for flag, value in (
    ("bind-address", "127.0.0.1"),
    ("host", "a"),
    ("requestheader-client-ca-file", "file"),
    ("requestheader-group-headers", "X"),
    ("session-duration", "12h"),
    ("tls-cert-file", "file"),
):
    CASES.append(
        (["dashboard", f"--{flag}={value}"], [f"--{flag}: Forbidden without --secure-port, the port of HTTPS"])
    )
CASES += [
    (
        ["dashboard", "--secure-port=0", "--requestheader-uid-headers=X"],
        ["--requestheader-uid-headers: Forbidden without --requestheader-client-ca-file"],
    ),
    (["dashboard", "--secure-port=0", "--cert-dir=file"], ['--cert-dir: Invalid value: "file": name a directory']),
    (
        ["dashboard", "--secure-port=0", "--requestheader-client-ca-file=file"],
        ['--requestheader-client-ca-file: Invalid value: "file": it holds no certificate in PEM'],
    ),
    (
        ["dashboard", "--secure-port=0", "--tls-cert-file=file", "--tls-private-key-file=broken.yaml"],
        ["--tls-cert-file and --tls-private-key-file", '"file" and "broken.yaml"', "no certificate with its key"],
    ),
    (["explain", "serve", "--cert-dir=file"], ['--cert-dir: Invalid value: "file": name a directory']),
    (["install", "--image", ""], ['--image: Invalid value: "": write NAME or NAME:TAG']),
    (["install", "--image", "Haru"], ['--image: Invalid value: "Haru"', "registry.example.com/haru"]),
    (["scheduler", "--leader-elect-resource-name", " "], ["--leader-elect-resource-name", '" "', "name of an object"]),
    (
        ["controllers", "--leader-elect-resource-namespace", "a.b"],
        ["--leader-elect-resource-namespace", '"a.b"', "name of a namespace"],
    ),
    (["scheduler", "--partition-node-taint", "a:Never"], ["--partition-node-taint: ", "a:Never"]),
    (["scheduler", "--partition-node-selector", "a in"], ["--partition-node-selector: "]),
    (["scheduler", "--partition-pool", " "], ['--partition-pool: Invalid value: " ": write a name']),
    (["signer", "serve", "--issuer", ""], ['--issuer: Invalid value: "": write the issuer of tokens']),
    (["signer", "serve", "--issuer", "://x"], ['--issuer: Invalid value: "://x"', "best as an https URL"]),
    (["apiserver", "--service-account-issuer", " "], ['--service-account-issuer: Invalid value: " "']),
]
CASES += [(["controllers", "--controllers", "jobs"], ["--controllers", "jobs", "job-controller"])]
for command, flag, duration in (
    ("apiserver --etcd-servers=http://x", "etcd-compaction-interval", "-1m"),
    ("apiserver --etcd-servers=http://x", "kubelet-timeout", "0s"),
    ("apiserver --etcd-servers=http://x", "service-account-max-token-expiration", "1.5s"),
    ("apiserver --etcd-servers=http://x", "audit-webhook-initial-backoff", "1d"),
    ("controllers", "cluster-signing-duration", "-1h"),
    ("controllers", "cluster-signing-duration", "99999999999h"),
    ("controllers", "horizontal-pod-autoscaler-sync-period", "0s"),
    ("dashboard", "session-duration", "0.5s"),
    ("install", "wait", "-1s"),
    ("node", "authentication-token-webhook-cache-ttl", "2"),
    ("node", "image-maximum-gc-age", "soon"),
    ("scheduler", "authorization-webhook-cache-authorized-ttl", ""),
    ("scheduler", "leader-elect-lease-duration", "9999999999h"),
    ("signer serve", "rotate-every", "-1h"),
):
    words = [f"--{flag}: ", f'Invalid value: "{duration}": write a duration']
    CASES.append(([*command.split(), f"--{flag}={duration}"], words))
for command in ("up", "controllers"):
    CASES += [
        ([command, "--stale-gang-after", "soon"], ["--stale-gang-after", '"soon"', "such as 10m"]),
        ([command, "--stale-gang-policy", "Kill"], ["--stale-gang-policy", "Kill", "Report", "Evict"]),
    ]


@pytest.mark.parametrize(("arguments", "parts"), CASES, ids=lambda value: " ".join(value) if value else "nothing")
def test_usage_errors_name_the_problem(
    capsys: pytest.CaptureFixture[str], arguments: list[str], parts: list[str]
) -> None:
    said = refused(capsys, *arguments)
    assert said.startswith("haru")
    for part in parts:
        assert part in said, said


@pytest.mark.parametrize("command", ["simulate", "schedule", "lint"])
@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (b"kind: \xff", ["file.yaml: this is no UTF-8 text: invalid start byte at byte 6; save it as UTF-8"]),
        ("kind: Pod".encode("utf-16-le"), ["file.yaml: this is no UTF-8 text: a zero at byte 1; save it as UTF-8"]),
        (codecs.BOM_UTF16_LE + b"k", ["file.yaml: this is no UTF-16 text: truncated data at byte 2; save it as UTF-8"]),
    ],
    ids=["other", "unmarked", "half"],
)
def test_file_that_is_no_text_is_named_with_what_to_do(
    capsys: pytest.CaptureFixture[str], home: Path, command: str, data: bytes, parts: list[str]
) -> None:
    (home / "file.yaml").write_bytes(data)
    said = refused(capsys, command, *(() if command == "lint" else ("-f",)), "file.yaml")
    for part in parts:
        assert said.count("file.yaml") == 1 and part in said, said


@pytest.mark.parametrize("order", ["le", "be"])
def test_file_in_utf16_with_its_mark_is_read(capsys: pytest.CaptureFixture[str], home: Path, order: str) -> None:
    mark = codecs.BOM_UTF16_LE if order == "le" else codecs.BOM_UTF16_BE
    text = "apiVersion: v1\r\nkind: Node\r\nmetadata: {name: é}\r\n"
    (home / "file.yaml").write_bytes(mark + text.encode(f"utf-16-{order}"))
    assert main(["schedule", "-f", "file.yaml"]) == 0
    assert capsys.readouterr().out == "no pod waits\n"


@pytest.mark.parametrize("arguments", [["pod/p", "-f", "a.yaml", "b.yaml"], ["-f", "a.yaml", "b.yaml", "pod/p"],
                                       ["-f", "a.yaml", "-f", "b.yaml", "pod/p"]])  # fmt: skip
def test_explain_takes_several_files_and_the_object_on_either_side(
    arguments: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "a.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n")
    (home / "b.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n"
    )
    assert main(["explain", *arguments]) == 0
    assert "haru explain pod/p -f a.yaml -f b.yaml --wide" in capsys.readouterr().out


def test_kinds_of_other_projects_are_passed_over_with_a_warning(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = "apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: {name: m%d}\n"
    node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"
    (home / "file.yaml").write_text("---\n".join([node, *(other % number for number in range(7))]))
    assert main(["schedule", "-f", "file.yaml"]) == 0
    told = [record.getMessage() for record in caplog.records]
    what = "not a kind of Kubernetes, so not looked at"
    assert told == [
        *(f"file.yaml (ServiceMonitor m{number}): {what}" for number in range(5)),
        "and 2 more such objects",
    ]


def test_objects_that_are_twice_in_files_are_warned_of(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: c, image: %s}]}\n"
    (home / "file.yaml").write_text("---\n".join([pod % ("p", "i"), pod % ("q", "i")]))
    # The second q is another one: it replaces the first.
    (home / "more.yaml").write_text("---\n".join([pod % ("p", "i"), pod % ("q", "j")]))
    assert main(["schedule", "-f", "file.yaml", "-f", "more.yaml"]) == 1
    told = [record.getMessage() for record in caplog.records]
    assert told == ["more.yaml (Pod p): is there twice, and counts once; another one needs another name"]


def test_field_that_does_not_exist_is_warned_of(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p%d}\nspec: {contaners: [], containers: [{name: c, image: i}]}\n"
    (home / "file.yaml").write_text("---\n".join(pod % number for number in range(7)))
    assert main(["schedule", "-f", "file.yaml"]) == 1
    told = [record.getMessage() for record in caplog.records]
    what = 'unknown field "spec.contaners" is ignored; haru lint tells what is meant'
    assert told == [*(f"file.yaml (Pod p{number}): {what}" for number in range(5)), "and 2 more such fields"]


def test_kubeconfig_that_is_wrong_is_named_once(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    said = refused(capsys, "explain", "pod/a", "--kubeconfig", "file", "--context", "lab")
    assert said == "haru explain: file: contexts has no entry 'lab' (there are: none)"
    (home / "file").write_text("just words")
    said = refused(capsys, "top", "--since", "1h", "--kubeconfig", "file")
    assert said.startswith("haru top: file: error converting YAML to JSON: document 1 is a string, not an object")


def test_port_in_use_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        said = refused(capsys, "up", "--ephemeral", "--listen", f"127.0.0.1:{port}")
        assert f"--listen: 127.0.0.1:{port}: Address already in use" in said and "port 0" in said


def test_file_that_is_not_a_database_is_refused(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    (home / "data").mkdir()
    (home / "data" / "state.db").write_text("this is no database, whatever its name says\n" * 100)
    said = refused(capsys, "up", "--data-dir", str(home / "data"), "--listen", "127.0.0.1:0")
    assert "state.db" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_all_flags(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    out, err = capsys.readouterr()
    assert (end.value.code, err) == (0, "")
    assert out.startswith(f"usage: haru {command}")
    assert all(flag in out for flag in flags_of(build_parser())[command])


def test_version_prints_kubernetes_version_as_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert "v1.36" in capsys.readouterr().out
    assert main(["version", "-o", "json"]) == 0
    assert '"kind": "Version"' in capsys.readouterr().out


_COUNTED = """
import gc, sys
from haru.__main__ import main
begun = []
gc.callbacks.append(lambda phase, _: phase == "start" and begun.append(phase))
sys.argv = ["haru", "lint", "manifest.yaml"]
main()
print(len(begun), gc.get_freeze_count() > 10_000)
"""


def test_command_is_not_held_up_by_garbage_collection(home: Path) -> None:
    """What it imports and reads lives until its end, when the interpreter would look through it once more."""
    (home / "manifest.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n")
    answer = subprocess.run([sys.executable, "-c", _COUNTED], capture_output=True, text=True, check=True)
    collections, is_exempt = answer.stdout.split()[-2:]
    assert int(collections) <= 2 and is_exempt == "True"
