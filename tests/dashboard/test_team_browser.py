"""The dashboard of a team in a real browser: sign-in, two people, finding, drilling down, what-if, live."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard_driving import MILLISECONDS, listen

from haru_process import Process, Up, free_port, phase, until

ROOT = Path(__file__).parents[2]
AXE = (
    "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"
    ".map((each) => [each.id, each.nodes[0].html.slice(0, 200)])"
)
VIEWERS = """
apiVersion: v1
kind: Namespace
metadata: {name: team-b}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: ann, namespace: default}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: root, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: root}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: root, namespace: default}]
"""
OF_TEAM_B = """
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: ann, namespace: team-b}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{kind: ServiceAccount, name: ann, namespace: default}]
---
apiVersion: v1
kind: Pod
metadata: {name: small, namespace: team-b, labels: {app: web}}
spec: {containers: [{name: main, image: x}]}
"""


@pytest.fixture(scope="module")
def up(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Eight H100 of which notebooks in default have three; a gang of six waits; team-b has a small pod."""
    running = Up(tmp_path_factory.mktemp("up"), "--ephemeral", "--profile", "dgx-h100:1,cpu:1", "--no-dashboard")
    for name in ("10-notebooks", "20-training"):
        running.api.create_all((ROOT / "examples" / "demo" / f"{name}.yaml").read_text(), "default")
    running.api.create_all(VIEWERS, "default")
    running.api.create_all(OF_TEAM_B, "team-b")
    until("notebooks run", lambda: sum(phase(pod) == "Running" for pod in running.api.list("pods", "default")) == 3)
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def address(up: Up, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    home = tmp_path_factory.mktemp("team")
    flags = ["--kubeconfig", str(up.kubeconfig), "--secure-port", str(port), "--bind-address", "127.0.0.1"]
    process = Process(home, ["dashboard", *flags, "--usage-history", str(home / "kept")], "dashboard")
    assert process.line() == f"haru dashboard serves the people of the cluster on port {port}"
    yield f"https://localhost:{port}"
    assert process.stop(signal.SIGINT) == 0
    assert "Traceback" not in process.log.read_text()


def token(up: Up, name: str) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    found = up.api.call("POST", f"/api/v1/namespaces/default/serviceaccounts/{name}/token", body)[1]
    return str(found["status"]["token"])


@pytest.fixture
def people(browser: Any, up: Up, address: str) -> Iterator[Any]:
    """Signs somebody in; whatever the browser complains about fails the test."""
    contexts, complaints = list[Any](), list[str]()

    def signed_in(name: str) -> Any:
        context = browser.new_context(base_url=address, ignore_https_errors=True)
        contexts.append(context)
        context.set_default_timeout(MILLISECONDS)
        page = context.new_page()
        listen(page, complaints)
        page.goto("/queue")
        assert "/sign-in?next=" in page.url
        page.get_by_label("A bearer token of this cluster").fill(token(up, name))
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/queue")
        return page

    yield signed_in
    for context in contexts:
        context.close()
    assert complaints == []


def words(page: Any) -> str:
    return " ".join(page.inner_text("body").split())


def test_deployed_dashboard_keeps_and_shows_its_own_history(people: Any) -> None:
    root = people("root")
    root.goto("/usage?since=1h")

    def shown() -> bool:
        root.reload()
        return "default/deployment/notebooks" in words(root)

    until("the history tells who held cards", shown)
    root.goto("/node/dgx-h100-0")
    assert root.locator("#table-held tbody tr").count() == 3


def test_two_people_with_different_rights_see_different_things(people: Any) -> None:
    ann, root = people("ann"), people("root")
    assert "another namespace" in words(ann) and "training" not in ann.content()
    assert "job/training" in words(root) and "another namespace" not in words(root)
    for path in ("/", "/map", "/timeline", "/usage", "/search?q=note", "/node/dgx-h100-0"):
        ann.goto(path)
        assert "notebooks" not in ann.content() and "training" not in ann.content(), path
        root.goto(path)
    assert "notebooks" in root.content()
    ann.goto("/search?q=small")
    assert "small" in ann.inner_text("#content")
    assert ann.evaluate("document.cookie") == "", "scripts can read the session"
    ann.get_by_role("button", name="Sign out").click()
    ann.wait_for_url("**/sign-in")
    ann.goto("/queue")
    assert "/sign-in" in ann.url


def test_search_arrow_keys_and_enter_lead_to_what_was_found(people: Any) -> None:
    page = people("root")
    page.keyboard.press("/")
    page.keyboard.type("notebooks kind:pod")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?q=*")
    assert page.locator("#content tbody tr").count() == 3
    page.locator("#search").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    focused = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(rf"/workload/default/pod/{focused}$"))
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_url("**/queue")
    page.keyboard.press("?")
    assert "search everything" in page.inner_text("dialog")


def test_tables_sort_and_filter_in_the_address_and_views_are_saved(people: Any) -> None:
    page = people("root")
    page.goto("/node/dgx-h100-0")
    rows = page.locator("#table-devices tbody tr")
    assert rows.count() == 8
    page.locator("#table-devices").get_by_role("link", name="State").click()
    page.wait_for_url("**devices.sort=*")
    page.locator("#table-devices input[type=search]").fill("held")
    page.wait_for_url("**devices.find=held*")
    rows.nth(3).wait_for(state="detached")
    page.get_by_text("Views", exact=True).click()
    page.get_by_label("Name of this view").fill("held cards")
    page.get_by_role("button", name="Save", exact=True).click()
    page.goto("/queue")
    page.get_by_text("Views", exact=True).click()
    page.get_by_role("link", name="held cards").click()
    page.wait_for_url("**devices.find=held*")
    assert rows.count() == 3


def test_drilling_down_leads_from_queue_to_device_and_what_if(people: Any) -> None:
    page = people("root")
    page.locator("#table-queue").get_by_role("link", name="training").click()
    page.wait_for_url("**/workload/default/job/training")
    page.get_by_role("button", name="Ask for another minCount").wait_for()
    page.locator(".what-if input[name=count]").fill("5")
    page.get_by_role("button", name="Ask for another minCount").click()
    page.wait_for_url("**/whatif?change=min-count*")
    assert "5 pods starts" in words(page) or "5 pods start" in words(page)
    page.goto("/node/dgx-h100-0")
    page.locator("#table-devices").get_by_role("link", name="gpu-0").click()
    page.wait_for_url("**/device/**/gpu-0")
    page.get_by_role("button", name="Taint it").click()
    page.wait_for_url("**/whatif?change=taint-device*")
    assert "Before and after" in words(page) and "deployment/notebooks" in words(page)


def test_pages_of_objects_are_accessible_and_fit_narrow_and_wide_windows(people: Any, axe: str) -> None:
    page = people("root")
    device = "/device/gpu.nvidia.com/dgx-h100-0/gpu-0"
    paths = ("/node/dgx-h100-0", device, "/namespace/default", "/search?q=gpu", "/whatif", "/yaml/Node/-/dgx-h100-0")
    for scheme, width in (("light", 390), ("dark", 1440)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        for path in (*paths, "/queue", "/workload/default/job/training"):
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, width)
            page.evaluate(axe)
            found = page.evaluate(AXE)
            assert not found, (path, scheme, found)


def test_two_people_see_a_change_within_a_second_or_so_without_a_reload(people: Any, up: Up) -> None:
    """The last test: it lets the gang run."""
    pages = [people("root"), people("root")]
    for page in pages:
        page.evaluate("window.sameDocument = true")
        page.get_by_text("live", exact=True).wait_for()
    up.api.patch("deployments", "notebooks", {"spec": {"replicas": 2}}, "default")
    for page in pages:
        page.get_by_text("Nothing waits.").wait_for()
        assert page.evaluate("window.sameDocument")
