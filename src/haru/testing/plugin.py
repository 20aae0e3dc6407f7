"""The pytest plug-in: `haru_cluster`, `haru_shared_cluster`, `haru_namespace`, and the marker `haru`.

    @pytest.mark.haru(profiles="dgx-h100:2")
    def test_my_operator(haru_cluster):
        haru_cluster.apply(MANIFEST)
        haru_cluster.wait("Pod", "worker-0")

Nothing of Haru is imported before a test asks for a cluster.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from haru.testing.cluster import Cluster
    from haru.testing.template import Template

_OPTIONS = ("profiles", "feature_gates", "runtime_config", "controllers", "scheduler_names", "process")
_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """What all clusters of a run have in common, from the configuration file."""
    parser.addini("haru_profiles", "simulated nodes of haru_cluster, as NAME:COUNT,…", default="cpu:1")
    parser.addini("haru_feature_gates", "feature gates of haru_cluster, as NAME=true,…", default="")


def pytest_configure(config: pytest.Config) -> None:
    """The marker that says what a test's cluster is made of."""
    names = ", ".join(_OPTIONS)
    config.addinivalue_line("markers", f"haru({names}): what this test's haru_cluster is made of")


@pytest.fixture(scope="session")
def haru_template(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Callable[..., Template]:
    """A function from options to a prepared template; each is brought up once in a run."""
    from haru.testing.template import Template

    base = tmp_path_factory.mktemp("haru-templates")
    made: dict[str, Template] = {}

    def template(**changes: Any) -> Template:
        options = {
            "profiles": pytestconfig.getini("haru_profiles"),
            "feature_gates": pytestconfig.getini("haru_feature_gates"),
            **changes,
        }
        key = json.dumps(options, sort_keys=True)
        if key not in made:
            name = hashlib.sha256(key.encode()).hexdigest()[:12]
            made[key] = Template(base / name, **options).prepare()
        return made[key]

    return template


@pytest.fixture
def haru_cluster(
    request: pytest.FixtureRequest, tmp_path: Path, haru_template: Callable[..., Template]
) -> Iterator[Cluster]:
    """A cluster of this test's own, in the state of one that has just come up."""
    from haru.testing.local import LocalCluster
    from haru.testing.process import ProcessCluster

    options = _marked(request.node)
    kind = ProcessCluster if options.pop("process", False) else LocalCluster
    template = haru_template(**options)
    with kind(template.copy(tmp_path / "haru"), template.options) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def haru_shared_cluster(
    tmp_path_factory: pytest.TempPathFactory, haru_template: Callable[..., Template]
) -> Iterator[Cluster]:
    """One cluster for the whole run; tests keep apart by namespaces."""
    from haru.testing.local import LocalCluster

    template = haru_template()
    with LocalCluster(template.copy(tmp_path_factory.mktemp("haru-shared") / "data"), template.options) as cluster:
        yield cluster


@pytest.fixture
def haru_namespace(haru_shared_cluster: Cluster) -> Iterator[str]:
    """A new namespace in the shared cluster, deleted after the test."""
    name = f"test-{next(_numbers)}"
    haru_shared_cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    haru_shared_cluster.delete("Namespace", name)


def _marked(node: pytest.Item) -> dict[str, Any]:
    """The options of the test's marker, the nearest one first."""
    found: dict[str, Any] = {}
    for marker in node.iter_markers("haru"):
        unknown = set(marker.kwargs) - set(_OPTIONS)
        if marker.args or unknown:
            what = ", ".join(sorted(unknown)) or "positional arguments"
            raise pytest.UsageError(f"{node.nodeid}: @pytest.mark.haru takes {', '.join(_OPTIONS)}, not {what}")
        found = {**marker.kwargs, **found}
    for name in ("controllers", "scheduler_names"):
        if name in found:
            found[name] = tuple(found[name])
    return found
