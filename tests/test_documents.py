"""Paths that documents name exist, and the build of the site, the wheel and the hooks find what they need."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from haru.controllers.manager import CONTROLLERS

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "accounting", "api", "apiserver", "cel", "cli", "client", "controllers", "dashboard", "drivers", "embedded",
    "engine", "explain", "kube", "node", "scheduler", "simulated_nodes", "storage", "stress", "testing", "whatif",
)  # fmt: skip
READMES = [ROOT / "src" / "haru" / package / "README.md" for package in PACKAGES]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")), *READMES]
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
SPAN = re.compile(r"`([^`\s]+)`")
OURS = ("src/", "tests/", "tools/", "docs/", "examples/", "benchmarks/", ".ci/")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_resolve(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    links = [match[1] for match in LINK.finditer(text) if "://" not in match[1]]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_paths_in_contributing_exist() -> None:
    named = [span for span in SPAN.findall((ROOT / "CONTRIBUTING.md").read_text()) if span.startswith(OURS)]
    assert len(named) > 40
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_symbols_named_in_contributing_exist() -> None:
    for word, path in (
        ("FILTERS = ", "src/haru/engine/framework/default_plugins.py"),
        ("class Scorer", "src/haru/engine/framework/interfaces.py"),
        ("ReasonType = ", "src/haru/engine/state/decision.py"),
        ("REMEDIES = ", "tests/explain/explain_schema.py"),
        ("CONTROLLERS: ", "src/haru/controllers/manager.py"),
        ("class Controller", "src/haru/controllers/base.py"),
        ("COMMANDS = ", "src/haru/cli/main.py"),
    ):
        assert word in (ROOT / path).read_text(), path


def test_make_targets_in_contributing_match_makefile() -> None:
    described = set(re.findall(r"^\| `make ([a-z-]+)`", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert described == set(phony[1].split()) - {"setup"}


def test_make_targets_choose_tests_by_markers_that_exist() -> None:
    """pytest refuses another marker, and its workers do so without a word: "no active workers"."""
    makefile = (ROOT / "Makefile").read_text()
    chosen = {word for choice in re.findall(r'-m "([^"]+)"', makefile) for word in choice.split()}
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    markers = {marker.partition(":")[0] for marker in options["markers"]}
    assert "nightly" in chosen
    assert chosen - {"not", "and", "or"} <= markers


@pytest.mark.parametrize("page", READMES, ids=name)
def test_package_readme_is_short_and_names_existing_modules(page: Path) -> None:
    text = page.read_text()
    assert len(text.splitlines()) <= 26
    modules = [span for span in SPAN.findall(text) if re.fullmatch(r"[a-z_/]+(\.py|/)", span)]
    assert modules
    assert [module for module in modules if not (page.parent / module).exists()] == []


def test_extras_that_pages_install_exist_and_bring_pytest_for_the_plugin() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {extra for page in PAGES for extra in re.findall(r"haru\[([a-z0-9]+)\]", page.read_text())}
    assert {"plots", "testing"} <= named <= set(extras)
    assert any(requirement.startswith("pytest") for requirement in extras["testing"])
    page = (ROOT / "docs" / "how-to" / "test-an-operator.md").read_text()
    assert re.findall(r"pip install [^`\n]*", page) == ["pip install 'haru[testing]'"]


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "how-to").glob("*.md")), ids=lambda page: page.stem)
def test_how_to_that_runs_kubectl_says_which_cluster_and_starts_the_etcd_it_uses(page: Path) -> None:
    text = page.read_text()
    shell = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    starts_its_own = re.search(r"^haru up ", shell, re.MULTILINE)
    if re.search(r"^kubectl ", shell, re.MULTILINE) and not starts_its_own:
        assert re.search(r"^\$ haru up .*--write-kubeconfig lab\.kubeconfig", text, re.MULTILINE)
        assert "\n$ export KUBECONFIG=$PWD/lab.kubeconfig\n" in text
    if "--etcd-servers http://127.0.0.1" in text:
        assert re.search(r"^etcd ", shell, re.MULTILINE)


def test_pages_do_not_say_that_a_controller_of_haru_is_missing() -> None:
    denial = re.compile(r"(?:runs|makes|creates)\s+no(?:ne\s+for)?\s+(\w+)s\b")
    denied = {(page.name, kind) for page in PAGES for kind in denial.findall(page.read_text())}
    controlled = {name.removesuffix("-controller") for name in CONTROLLERS}
    assert {"daemonset", "job"} <= controlled
    assert [(page, kind) for page, kind in denied if kind.lower() in controlled] == []


def test_wheel_excludes_package_readmes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"] == ["README.md"]


def test_pre_commit_hooks_run_local_programs() -> None:
    [repository] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert all(hook["language"] == "system" and hook["entry"].startswith(".venv/bin/") for hook in repository["hooks"])
    assert {hook["id"] for hook in repository["hooks"]} == {"ruff", "ruff-format", "mypy", "check-structure"}


def test_docs_site_and_coverage_are_ignored_by_git() -> None:
    ignored = subprocess.run(
        ["git", "check-ignore", "build/docs", "build/coverage", ".coverage/data"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout.split()  # fmt: skip
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: nothing says what git ignores")
    assert len(ignored) == 3
