"""`import haru`: the commands' answers as values; cheap to import, the same JSON and text, tables that are read out."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import haru
from haru.api.cluster_reader import finished
from haru.api.connection import told_as_cluster_error
from haru.cli.main import main
from haru.kube.errors import unauthorized_error
from haru.kube.yaml import dump_all

Obj = dict[str, Any]
ROOT = Path(__file__).parents[2]
GANG = str(ROOT / "examples" / "gang.yaml")


def node(name: str, cpu: str = "8") -> Obj:
    allocatable = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": allocatable}}


def pod(name: str, cpu: str = "6", **spec: Any) -> Obj:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}


@pytest.fixture
def fleet() -> haru.Snapshot:
    return haru.Snapshot.of().changed(haru.AddNodes("dgx-h100"))


@pytest.fixture
def small(fleet: haru.Snapshot) -> haru.Snapshot:
    return fleet.changed(haru.Apply(GANG))


def test_public_names_are_exactly_the_documented_ones() -> None:
    assert set(haru.__all__) == {
        "AddNodes",
        "Apply",
        "ChangeInputError",
        "ClusterError",
        "Cordon",
        "Delete",
        "HaruError",
        "InputError",
        "NotFoundError",
        "Repartition",
        "Snapshot",
        "Taint",
        "__version__",
        "dra",
        "lint_manifests",
    }
    assert all(getattr(haru, name) is not None for name in haru.__all__)
    assert set(haru.__all__) <= set(dir(haru))
    stub = (ROOT / "src" / "haru" / "__init__.pyi").read_text()
    assert all(f"as {name}\n" in stub or f"{name}: str" in stub for name in haru.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Snapshots'"):
        haru.Snapshots  # noqa: B018


def test_import_haru_loads_no_submodule() -> None:
    code = "import sys; before = set(sys.modules); import haru; print(sorted(set(sys.modules) - before))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "['haru']"


def test_api_answers_equal_command_output(
    small: haru.Snapshot, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cluster.json"
    small.write(file)
    assert file.stat().st_mode & 0o077 == 0
    read = haru.Snapshot.read(file)
    assert read.counts() == small.counts()

    def said(*arguments: str) -> str:
        main([*arguments, "-f", str(file)])
        return capsys.readouterr().out

    comparison = read.what_if(haru.AddNodes("dgx-h100"), haru.Cordon("dgx-h100-0"))
    changes = ("--add-nodes", "dgx-h100", "--cordon", "dgx-h100-0")
    asked: list[tuple[Any, tuple[str, ...]]] = [
        (read.schedule(), ("schedule",)),
        (comparison, ("whatif", *changes)),
        (read.explain("podgroup/finetune"), ("explain", "podgroup/finetune", "--wide")),
        (read.allocate(node="dgx-h100-0"), ("allocate", "--node", "dgx-h100-0")),
        (haru.lint_manifests(file), ("lint",)),
    ]
    for answer, command in asked:
        assert json.loads(said(*command, "-o", "json")) == json.loads(json.dumps(answer.as_dict())), command
        assert said(*command) == f"{answer}\n", command
    main(["capture", "-f", str(file), "--hide"])
    assert json.loads(capsys.readouterr().out) == read.hidden().as_dict()


class Outline(HTMLParser):
    """Checks that elements are closed in order, and keeps what a screen reader goes by."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.labels: list[str] = []
        self.bad: list[str] = []
        self.tables = self.captions = 0
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        given = dict(attributes)
        self.tables += tag == "table"
        self.captions += tag == "caption"
        if tag == "th" and given.get("scope") not in ("col", "row"):
            self.bad.append("th without scope")
        if tag in ("script", "img", "iframe") or any(name.startswith("on") for name in given):
            self.bad.append(tag)
        if tag == "section":
            self.labels.append(given.get("aria-label") or "")

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.bad.append(f"</{tag}>")


def test_notebook_html_escapes_values_and_labels_tables(small: haru.Snapshot) -> None:
    nasty = pod("x", cpu="99", nodeSelector={"zone": "a"})
    nasty["metadata"]["annotations"] = {"note": "<script>"}
    mixed = haru.Snapshot.of([*small, pod("big", "500")])
    answers: list[Any] = [
        mixed,
        mixed.explain("podgroup/finetune"),
        mixed.explain("pod/big"),
        mixed.schedule(),
        mixed.allocate(),
        mixed.what_if(haru.AddNodes("dgx-h100"), haru.Apply(nasty)),
        haru.lint_manifests({"apiVersion": "v1", "kind": "<script>alert(1)</script>", "metadata": {"name": "x"}}),
        haru.lint_manifests(GANG),
    ]
    for answer in answers:
        html = answer._repr_html_()
        outline = Outline(html)
        assert outline.bad == [] and outline.open == [], html
        assert len(outline.labels) == 1 and outline.labels[0]
        assert outline.tables == outline.captions
        assert "<script" not in html
    assert sum(Outline(answer._repr_html_()).tables for answer in answers) > 10


def test_older_versions_lists_and_directories_are_accepted(tmp_path: Path) -> None:
    old = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu.nvidia.com"}]}},
    }
    snapshot = haru.Snapshot.of([{"apiVersion": "v1", "kind": "List", "items": [node("n1"), old]}], namespace="team")
    assert snapshot.counts() == {"Node": 1, "ResourceClaim": 1} and len(snapshot) == 2
    [claim] = [obj for obj in snapshot if obj["kind"] == "ResourceClaim"]
    assert (claim["apiVersion"], claim["metadata"]["namespace"]) == ("resource.k8s.io/v1", "team")
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.yaml").write_text(dump_all([node("n1"), pod("a")]))
    (tmp_path / "notes.txt").write_text("no manifest")
    assert haru.Snapshot.read(tmp_path).counts() == {"Node": 1, "Pod": 1}


def test_arguments_are_not_modified() -> None:
    given = [node("n1"), pod("a"), pod("b")]
    before = json.dumps(given)
    snapshot = haru.Snapshot.of(given)
    told = json.dumps(snapshot.as_dict())
    assert len(snapshot.schedule().bindings) == 1
    assert snapshot.what_if(haru.Delete("pod/a")).harmless is True
    assert snapshot.changed(haru.Delete("pod/a")).counts() == {"Node": 1, "Pod": 1}
    snapshot.explain("pod/a")
    assert json.dumps(given) == before and json.dumps(snapshot.as_dict()) == told


def job(pods: int, **metadata: str) -> Obj:
    main = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "5"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [main]}}
    spec = {"completions": pods, "parallelism": pods, "completionMode": "Indexed", "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", **metadata}, "spec": spec}


def test_job_in_manifests_is_explained_with_pods_it_would_create() -> None:
    """One of them has room, the gang has not; of a Job that was stored it is told what is there."""
    told = haru.Snapshot.of([node("a"), job(2)]).explain("job/train")
    assert "NeverFits: 1 of the 2 pods that have to start together find a place" in str(told)
    told = haru.Snapshot.of([node("a", "10"), job(2)]).explain("job/train")
    assert str(told).startswith("Job default/train: Starting")
    stored = [{**obj, "metadata": {**obj["metadata"], "uid": "u"}} for obj in (node("a"), job(2))]
    assert "no pod of job default/train exists yet" in str(haru.Snapshot.of(stored).explain("job/train"))


def test_repeated_calls_give_equal_answers() -> None:
    snapshot = haru.Snapshot.of([node("n1"), pod("a"), pod("b")])
    first = [snapshot.explain("pod/a").as_dict(), snapshot.schedule().as_dict(), str(snapshot.usage())]
    second = [snapshot.explain("pod/a").as_dict(), snapshot.schedule().as_dict(), str(snapshot.usage())]
    assert first == second
    assert first[1]["bindings"] == {"default/a": "n1"}


def test_feature_gates_default_to_those_of_haru_up_and_can_be_overridden() -> None:
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    }
    objects = [node("n1"), group, pod("a", "5", schedulingGroup={"podGroupName": "g"})]
    assert haru.Snapshot.of(objects).schedule().groups == {"default/g": "Held"}
    off = haru.Snapshot.of(objects, feature_gates={"GangScheduling": False})
    assert off.schedule().bindings == {"default/a": "n1"}
    assert off.changed(haru.Cordon("n1")).schedule().bindings == {}, "the gates go with it"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# a template that renders nothing\n---\n", "there is no object in "),
        ("{apiVersion: v1, kind: List, items: [5]}", "an item of a List is no Kubernetes object: 5"),
        ("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: 5}", r"\(Pod p\): .*; haru lint tells where"),
    ],
)
def test_file_without_objects_or_with_one_that_is_none_raises(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    with pytest.raises(haru.InputError, match=problem) as caught:
        haru.Snapshot.read(file)
    assert str(caught.value).count(str(file)) == 1


def test_file_with_an_empty_list_has_no_objects(tmp_path: Path) -> None:
    (tmp_path / "none.yaml").write_text("{apiVersion: v1, kind: List, items: []}")
    assert haru.Snapshot.read(tmp_path / "none.yaml").explain_pending().rows == ()


def asking(**more: object) -> dict[str, Any]:
    """A claim of a GPU that names neither its version nor its kind."""
    exactly = {"deviceClassName": "gpu.nvidia.com", **more}
    return {"metadata": {"name": "one"}, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}


@pytest.mark.parametrize(
    ("ask", "kind", "message"),
    [
        (lambda s: haru.Snapshot.of([{"kind": "Pod"}]), haru.InputError, "object #0: apiVersion is missing"),
        (lambda s: haru.Snapshot.of([{"a": 1}]), haru.InputError, "object #0: apiVersion and kind are missing"),
        (lambda s: haru.Snapshot.of([5]), haru.InputError, "object #0: this is no Kubernetes object: 5"),
        (lambda s: haru.Snapshot.read(), haru.InputError, "name a file"),
        (lambda s: haru.Snapshot.read("nowhere.yaml"), haru.InputError, "nowhere.yaml: No such file"),
        (lambda s: haru.Snapshot.of(feature_gates="Nope=true"), haru.InputError, "feature_gates: unrecognized"),
        (lambda s: haru.Snapshot.kept_in("nowhere"), haru.InputError, "holds no state.db"),
        (lambda s: haru.Snapshot.fetch("nowhere"), haru.ClusterError, "nowhere: no such file"),
        (lambda s: s.explain("pod/none"), haru.NotFoundError, 'there is no pod "none" in namespace default'),
        (lambda s: s.explain("pod"), haru.InputError, "write KIND/NAME"),
        (lambda s: s.what_if(), haru.InputError, "nothing changes"),
        (lambda s: s.what_if("cordon"), haru.ChangeInputError, "is no change"),
        (lambda s: s.what_if(haru.Cordon("n9")), haru.InputError, 'there is no node "n9"'),
        (lambda s: s.what_if(haru.Delete("x")), haru.ChangeInputError, "Delete: .*write KIND/NAME"),
        (lambda s: s.what_if(haru.AddNodes("dgx")), haru.ChangeInputError, "AddNodes: no profile is named"),
        (lambda s: s.what_if(haru.Apply("nowhere.yaml")), haru.ChangeInputError, "nowhere.yaml: No such file"),
        (lambda s: s.changed(haru.Taint("n1", "x")), haru.ChangeInputError, "Taint: .*KEY"),
        (lambda s: s.allocate(), haru.InputError, "no ResourceClaim without allocation"),
        (lambda s: haru.lint_manifests("nowhere.yaml"), haru.InputError, "nowhere.yaml: No such file"),
        (lambda s: s.explain({}), haru.InputError, r"write KIND/NAME, or give an object with kind .*: \{\}"),
        (lambda s: s.explain({"kind": "Pod"}), haru.InputError, "write KIND/NAME, or give an object"),
        (lambda s: s.what_if(haru.AddNodes("cpu", 0)), haru.ChangeInputError, "AddNodes: count 0: give a number"),
        (lambda s: s.allocate([5]), haru.InputError, "object #0: this is no Kubernetes object: 5"),
        (lambda s: s.allocate([{}]), haru.InputError, "object #0: ResourceClaim: metadata.name: Required value"),
        (lambda s: s.allocate([node("n1")]), haru.InputError, "object #0 .Node n1.: give ResourceClaims"),
        (lambda s: s.allocate([asking(count="two")]), haru.InputError, "object #0 .ResourceClaim one.: .*count"),
    ],
)
def test_invalid_input_raises_haru_error_with_message(
    ask: Callable[[Any], Any], kind: type[Exception], message: str
) -> None:
    snapshot = haru.Snapshot.of([node("n1")])
    with pytest.raises(kind, match=message) as caught:
        ask(snapshot)
    assert isinstance(caught.value, haru.HaruError)


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        (lambda s: haru.Snapshot.of(5), "of: objects: give Iterable, not int: 5"),
        (lambda s: haru.Snapshot.of([], namespace=5), "of: namespace: give str, not int: 5"),
        (lambda s: haru.Snapshot.of(feature_gates=["a"]), "of: feature_gates: give str or Mapping, not list"),
        (lambda s: haru.Snapshot.read("a", 5), "read: paths: give str or PathLike, not int: 5"),
        (lambda s: haru.Snapshot.kept_in(None), "kept_in: data_dir: give str or PathLike, not NoneType: None"),
        (lambda s: s.explain("pod/p", now="noon"), "explain: now: give datetime or None, not str: 'noon'"),
        (lambda s: s.explain_pending(selector=5), "explain_pending: selector: give str, not int: 5"),
        (lambda s: s.allocate(timeout="1s"), "allocate: timeout: give Real or None, not str: '1s'"),
        (lambda s: s.what_if(haru.Cordon(5)), "Cordon: node: give str, not int: 5"),
        (lambda s: s.changed(haru.AddNodes("cpu", "2")), "AddNodes: count: give int, not str: '2'"),
        (lambda s: s.changed(haru.Taint("n1", None)), "Taint: taint: give str, not NoneType"),
        (lambda s: haru.lint_manifests(5), "lint_manifests: sources: give str or PathLike or Mapping or Iterable"),
        (lambda s: haru.lint_manifests(["a"]), "object #0: this is no Kubernetes object: 'a'"),
        (lambda s: haru.dra.allocate(5, node={}, slices=[], classes=[]), "allocate: claims: give Sequence, not int: 5"),
    ],
)
def test_argument_of_another_type_is_named(ask: Callable[[Any], Any], problem: str) -> None:
    with pytest.raises(haru.InputError) as caught:
        ask(haru.Snapshot.of([node("n1")]))
    assert problem in str(caught.value)


def test_mappings_that_are_no_dicts_are_accepted() -> None:
    plain = node("n1")
    frozen = MappingProxyType({**plain, "metadata": MappingProxyType(plain["metadata"])})
    listed = MappingProxyType({"apiVersion": "v1", "kind": "NodeList", "items": (frozen,)})
    expected = haru.Snapshot.of([plain]).objects
    assert haru.Snapshot.of([frozen]).objects == haru.Snapshot.of(listed).objects == expected
    assert haru.Snapshot.of().changed(haru.Apply(frozen)).objects == expected
    assert haru.lint_manifests(frozen) == haru.lint_manifests(plain)


def test_one_claim_of_any_version_can_be_allocated_by_itself() -> None:
    fleet = haru.Snapshot.of(namespace="research").changed(haru.AddNodes("dgx-h100"))
    old = {**asking(), "apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaim"}
    old["spec"] = {"devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu.nvidia.com"}]}}
    for claim in (asking(), old):
        answer = fleet.allocate(claim)
        assert answer.fits
        assert [(given.namespace, given.name) for given in answer.claims] == [("research", "one")]


async def test_finished_works_inside_a_running_event_loop() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 42

    assert finished(work) == 42


def test_answer_that_would_be_empty_for_want_of_rights_is_none() -> None:
    asked: list[tuple[str, Callable[[haru.Snapshot], object]]] = [
        ("Pod", haru.Snapshot.explain_pending),
        ("Pod", haru.Snapshot.schedule),
        ("ResourceSlice", haru.Snapshot.usage),
    ]
    for kind, ask in asked:
        ask(haru.Snapshot([], refused=["Deployment"]))
        with pytest.raises(haru.InputError, match=f"cannot be told: not allowed to read {kind} objects"):
            ask(haru.Snapshot([], refused=["Deployment", kind]))


def test_refused_credentials_are_told_with_the_server_and_what_may_be_wrong() -> None:
    class Client:
        server = "https://lab:6443"

    client: Any = Client()
    with pytest.raises(haru.ClusterError, match=r"^https://lab:6443: Unauthorized: "), told_as_cluster_error(client):
        raise unauthorized_error()
