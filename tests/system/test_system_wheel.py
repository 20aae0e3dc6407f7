"""The built wheel, installed into an empty environment away from the source tree, is the whole product."""

from __future__ import annotations

import email
import importlib.util
import shutil
import signal
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

from haru import __version__
from haru_process import environment

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, home: Path, seconds: float = 300) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in environment(home).items() if not k.startswith("PYTHON")}
    # pip's cache and settings are those of the machine's user.
    env |= {"HOME": str(Path.home()), "PIP_DISABLE_PIP_VERSION_CHECK": "1"} if "pip" in command else {}
    return subprocess.run(
        [str(part) for part in command], env=env, cwd=home, capture_output=True, text=True, check=False, timeout=seconds
    )


def built_wheel(home: Path) -> Path:
    isolation = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    built = run(sys.executable, "-m", "pip", "wheel", "--no-deps", *isolation, "-w", home, ROOT, home=home)
    assert built.returncode == 0, built.stderr
    [file] = home.glob("haru-*.whl")
    return file


def installed_command(wheel: Path, home: Path) -> Path:
    """The `haru` of an environment with nothing but the wheel and what it asks for."""
    venv.create(home / "venv", with_pip=False, symlinks=True)
    python = home / "venv" / "bin" / "python"
    # A command compiles what it needs; compiling all that is installed takes longer than all commands.
    into = ("--python", python, "install", "--quiet", "--no-compile", wheel)
    answer = run(sys.executable, "-m", "pip", *into, home=home)
    assert answer.returncode == 0, answer.stderr
    return home / "venv" / "bin" / "haru"


# One test, for its steps would be made anew by each worker that has a part of them.
def test_installed_wheel_is_the_whole_product(tmp_path: Path) -> None:
    wheel = built_wheel(tmp_path)
    check_files_and_metadata(wheel)
    installed = installed_command(wheel, tmp_path)
    check_commands_outside_the_source_tree(installed, tmp_path)
    check_running_cluster(installed, tmp_path)


CARRIED = (".py", ".txt", ".yaml", ".html", ".css", ".js", ".svg")
"""The suffixes of what a wheel carries; what npm brought to the pages included, where there is npm."""


def check_files_and_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        [metadata] = [name for name in names if name.endswith("/METADATA")]
        facts = email.message_from_bytes(archive.read(metadata))
    source = ROOT / "src"
    wanted = {str(path.relative_to(source)) for path in source.rglob("*") if path.suffix in CARRIED}
    wanted = {name for name in wanted if "__pycache__" not in name}
    assert wanted <= names, sorted(wanted - names)
    assert {
        "haru/py.typed",
        "haru/kube/tables/core.v1.txt",
        "haru/proto/etcd_pb2.py",
        "haru/drivers/simulated/profiles.yaml",
        "haru/dashboard/templates/base.html",
    } <= names
    if shutil.which("npm"):
        vendor = "haru/dashboard/static/vendor"
        assert {f"{vendor}/uplot.js", f"{vendor}/idiomorph.js", f"{vendor}/idiomorph.LICENSE"} <= names
    assert all(name.startswith(("haru/", "haru-")) for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert (facts["Name"], facts["License-Expression"], facts["Requires-Python"]) == ("haru", "Apache-2.0", ">=3.11")


def check_commands_outside_the_source_tree(installed: Path, tmp_path: Path) -> None:
    where = run(installed.parent / "python", "-c", "import haru; print(haru.__file__)", home=tmp_path)
    assert where.stdout.strip().startswith(str(installed.parents[1])), where
    generated = (
        "from haru.proto import cri_pb2, dra_pb2, etcd_pb2, externaljwt_pb2, grpchealth_pb2, kms_pb2, podresources_pb2"
    )
    assert run(installed.parent / "python", "-c", generated, home=tmp_path).returncode == 0
    version = run(installed, "version", home=tmp_path)
    assert (version.returncode, version.stdout) == (0, f"haru {__version__} (Kubernetes v1.36)\n")
    for shell in ("bash", "zsh", "fish"):
        script = run(installed, "completion", shell, home=tmp_path)
        assert script.returncode == 0 and "_ARGCOMPLETE" in script.stdout and "haru" in script.stdout
    asked = "COMP_LINE='haru expl' COMP_POINT=9 _ARGCOMPLETE=1 HARU_COMPLETION_SECONDS=60"
    assert run("sh", "-c", f"{asked} '{installed}' 8>&1 9>&2", home=tmp_path).stdout.strip() == "explain"
    for command in ("up", "explain", "scheduler", "controllers", "completion", "version"):
        assert run(installed, command, "--help", home=tmp_path).returncode == 0
    manifest = tmp_path / "pod.yaml"
    manifest.write_text("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}\n")
    explained = run(installed, "explain", "pod/p", "-f", manifest, home=tmp_path)
    assert (explained.returncode, explained.stderr) == (0, "") and "node" in explained.stdout


def check_running_cluster(installed: Path, tmp_path: Path) -> None:
    env = {k: v for k, v in environment(tmp_path).items() if not k.startswith("PYTHON")}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [installed, "up", "--ephemeral", "--listen", "127.0.0.1:0", "--write-kubeconfig", tmp_path / "kubeconfig"],
            env=env,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("haru is ready after "), (tmp_path / "log").read_text()
        missing = run(installed, "explain", "pod/none", "--kubeconfig", tmp_path / "kubeconfig", home=tmp_path)
        assert (missing.returncode, missing.stderr) == (2, 'haru explain: pods "none" not found in namespace default\n')
    finally:
        process.send_signal(signal.SIGTERM)
        status = process.wait(60)
        if process.stdout is not None:
            process.stdout.close()
    assert status == 0, (tmp_path / "log").read_text()
