"""tools/check_structure.py finds a violation of each of its rules in a small repository."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]

CLEAN = {
    "README.md": "A readme.\n",
    "docs/architecture.md": "Nodes have device classes.\n",
    "src/haru/__init__.py": "",
    "src/haru/engine/__init__.py": "",
    "src/haru/engine/__init__.pyi": "from .state.nodes import Node as Node\n",
    "src/haru/engine/state/__init__.py": "",
    "src/haru/engine/state/nodes.py": '"""Nodes."""\n\nclass Node: ...\n',
    "src/haru/engine/filters.py": "from haru.engine.state.nodes import Node\n",
    "src/haru/explain/__init__.py": "from haru.engine import Node\nfrom haru.engine.state import nodes\n",
    "tests/engine/test_nodes.py": "from haru.engine.state.nodes import Node\n",
    "tools/retired_words.txt": "# a comment\nname Outfit: DeviceClass\nword errand: binding task\n",
}


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_structure", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHECK = load(ROOT / "tools" / "check_structure.py")


def findings(root: Path, planted: dict[str, str]) -> list[str]:
    for name, text in {**CLEAN, **planted}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found: list[str] = CHECK.findings(root)
    return found


def test_clean_tree_has_no_findings(tmp_path: Path) -> None:
    assert findings(tmp_path, {}) == []


def test_two_test_modules_of_one_name_are_found(tmp_path: Path) -> None:
    planted = dict.fromkeys(("tests/node/test_nodes.py", "tests/conftest.py", "tests/node/conftest.py"), "")
    assert findings(tmp_path, planted) == ["tests/node/test_nodes.py: tests/engine/test_nodes.py has that name as well"]


@pytest.mark.parametrize("file", ["src/haru/explain/entry.py", "tests/explain/test_entry.py", "tools/derive.py"])
@pytest.mark.parametrize("statement", ["from haru.engine.state.nodes import Node", "import haru.engine.state.nodes"])
def test_import_of_facade_internals_is_found(tmp_path: Path, file: str, statement: str) -> None:
    planted = {file: f"import os\n{statement}\n"}
    assert findings(tmp_path, planted) == [
        f"{file}:2: haru.engine.state.nodes is inside of haru.engine.state: import from there"
    ]


RINGS = {
    "import at the top": "from haru.engine.filters import check\n",
    "import in a function": "def ask():\n    from haru.engine.filters import check\n    return check\n",
    "import for types": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from haru.engine.filters import check\n"
    ),
    "import of the module": "import haru.engine.filters\n",
    "import of a module from its package": "from haru.engine import filters\n",
}


@pytest.mark.parametrize("text", RINGS.values(), ids=RINGS)
def test_import_cycle_of_two_modules_is_found(tmp_path: Path, text: str) -> None:
    found = findings(tmp_path, {"src/haru/engine/state/nodes.py": text})
    assert found == ["import cycle: haru.engine.filters, haru.engine.state.nodes"]


def test_import_cycle_of_three_modules_is_found(tmp_path: Path) -> None:
    planted = {
        "src/haru/engine/state/nodes.py": "from haru.engine.state.pods import Pod\n",
        "src/haru/engine/state/pods.py": "from haru.engine.filters import check\n",
    }
    found = findings(tmp_path, planted)
    assert found == ["import cycle: haru.engine.filters, haru.engine.state.nodes, haru.engine.state.pods"]


def test_import_cycle_through_stub_is_found(tmp_path: Path) -> None:
    found = findings(tmp_path, {"src/haru/engine/state/nodes.py": "from haru.engine import Node\n"})
    assert found == ["import cycle: haru.engine, haru.engine.state.nodes"]


@pytest.mark.parametrize(
    "awaited",
    [
        "await asyncio.wait([task])",
        "await asyncio.gather(task)",
        "with suppress(asyncio.CancelledError):\n        await task",
    ],
)
def test_cancelled_task_that_is_awaited_by_hand_is_found(tmp_path: Path, awaited: str) -> None:
    file = "src/haru/engine/server.py"
    text = f"async def stop(task: Task) -> None:\n    task.cancel()\n    {awaited}\n"
    assert findings(tmp_path, {file: text}) == [
        f"{file}:2: awaits what it cancels: haru.event_loop.cancelled does both"
    ]


PRIVATE = {
    "attribute": "import ssl\n\ndef chain(tls: ssl.SSLObject):\n    return tls._sslobj\n",
    "attribute through self": "class Server(uvicorn.Server):\n    def chain(self):\n\n        self._sslobj()\n",
    "name": "\n\n\nfrom os import _sslobj\n",
    "module": "\n\n\nfrom uvicorn._sslobj import style\n",
}


@pytest.mark.parametrize("text", PRIVATE.values(), ids=PRIVATE)
def test_private_name_of_a_library_is_found(tmp_path: Path, text: str) -> None:
    file = "src/haru/engine/server.py"
    assert findings(tmp_path, {file: text}) == [f"{file}:4: _sslobj is private to another module"]


def test_private_names_of_the_module_and_of_its_bases_are_no_findings(tmp_path: Path) -> None:
    planted = {
        "src/haru/engine/base.py": "class Base:\n    def __init__(self) -> None:\n        self._name = 1\n",
        "src/haru/engine/derived.py": (
            "from haru.engine.base import Base\n\n\nclass Derived(Base):\n    def name(self) -> str:\n"
            "        return self._name\n\n\ndef _check(pair: Pair) -> None:\n    pair._replace(a=1)\n"
        ),
    }
    assert findings(tmp_path, planted) == []


@pytest.mark.parametrize("file", ["src/haru/engine/classes.py", "tests/engine/test_classes.py"])
def test_retired_name_is_found(tmp_path: Path, file: str) -> None:
    found = findings(tmp_path, {file: "class Outfits: ...\n\nclass Outfit: ...\n"})
    assert found == [f"{file}:3: Outfit is a retired name: DeviceClass"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("src/haru/engine/tasks.py", '"""A module.\n\nAn Errand has an end."""\n'),
        ("src/haru/engine/tasks.py", "# It ends the errand.\n"),
        ("docs/guide.md", "Read this.\n\nAn errand.\n"),
        ("README.md", "An errand.\n"),
    ],
    ids=["docstring", "comment", "docs", "readme"],
)
def test_retired_word_in_prose_is_found(tmp_path: Path, file: str, text: str) -> None:
    (found,) = findings(tmp_path, {file: text})
    assert found.startswith(f"{file}:") and found.endswith("is a retired word: binding task")


def test_parts_of_words_and_paths_are_no_findings(tmp_path: Path) -> None:
    assert findings(tmp_path, {"docs/guide.md": "errands, errand-boy, docs/errand.md, an-errand\n"}) == []


def test_exit_status_is_1_with_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(CHECK, "ROOT", tmp_path)
    findings(tmp_path, {})
    assert CHECK.main() == 0
    assert capsys.readouterr().out == "structure: 6 modules, 0 findings\n"
    findings(tmp_path, {"README.md": "An errand.\n"})
    assert CHECK.main() == 1
    assert capsys.readouterr().out.endswith("structure: 6 modules, 1 findings\n")
