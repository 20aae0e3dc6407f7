"""The Helm chart gives what the overlays give, and its schema refuses what would not work."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from helm_templates import rendered

from haru.install.manifests import deploy_folder, identity, manifests_of
from haru.version import __version__

Obj = dict[str, Any]
CHART = deploy_folder() / "chart"
EVERYTHING: Obj = {
    "mode": "default-scheduler",
    "image": {"repository": "mirror.example/haru", "tag": "test"},
    "imagePullSecrets": [{"name": "mirror"}],
    "scheduler": {
        "replicas": 3,
        "profiles": [{"schedulerName": "default-scheduler", "percentageOfNodesToScore": 100}],
        "extraArgs": ["--backfill"],
        "env": [{"name": "KUBERNETES_SERVICE_HOST", "value": "10.0.0.1"}],
        "hostNetwork": True,
        "nodeSelector": {"pool": "system"},
        "tolerations": [],
    },
    "dashboard": {"enabled": True},
    "explainApi": {"enabled": True},
    "explainPublish": {"enabled": True, "show": "names"},
    "monitoring": {"enabled": True},
}


def objects(text: str) -> dict[tuple[str, str, str], Obj]:
    return {identity(obj): obj for obj in yaml.safe_load_all(text) if obj}


def expected(mode: str) -> dict[tuple[str, str, str], Obj]:
    """The namespace is Helm's to create."""
    return {identity(obj): obj for obj in manifests_of(mode) if obj["kind"] != "Namespace"}


@pytest.mark.parametrize("mode", ["second-scheduler", "default-scheduler"])
def test_default_values_give_the_objects_of_the_overlay(mode: str) -> None:
    assert objects(rendered(CHART, "haru-system", {"mode": mode})) == expected(mode)


def test_dashboard_alone_gives_the_objects_of_its_overlay() -> None:
    values = {"scheduler": {"enabled": False}, "dashboard": {"enabled": True}}
    assert objects(rendered(CHART, "haru-system", values)) == expected("dashboard")


def test_dashboard_has_the_certificate_and_the_proxy_that_values_name() -> None:
    given = {
        "enabled": True,
        "tlsSecret": "page-tls",
        "requestHeaderConfigMap": "proxy-ca",
        "extraArgs": ["--host=x.y"],
    }
    found = objects(rendered(CHART, "team-a", {"scheduler": {"enabled": False}, "dashboard": given}))
    spec = found["Deployment", "team-a", "haru-dashboard"]["spec"]["template"]["spec"]
    [container] = spec["containers"]
    files = {"--tls-cert-file=/etc/haru/tls/tls.crt", "--requestheader-client-ca-file=/etc/haru/proxy/ca.crt"}
    assert files | {"--host=x.y", "--host=haru-dashboard.team-a.svc"} <= set(container["command"])
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts == {"tls": "/etc/haru/tls", "proxy": "/etc/haru/proxy", "history": "/var/lib/haru"}
    sources = {volume["name"]: volume for volume in spec["volumes"]}
    assert sources["tls"]["secret"]["secretName"] == "page-tls" and sources["proxy"]["configMap"]["name"] == "proxy-ca"


@pytest.mark.parametrize(
    ("given", "source", "made"),
    [
        ({}, {"emptyDir": {"sizeLimit": "1Gi"}}, None),
        ({"claimName": "kept"}, {"persistentVolumeClaim": {"claimName": "kept"}}, None),
        ({"size": "2Gi"}, {"persistentVolumeClaim": {"claimName": "haru-dashboard-history"}}, "2Gi"),
    ],
)
def test_dashboard_keeps_its_history_where_values_say(given: Obj, source: Obj, made: str | None) -> None:
    values = {"scheduler": {"enabled": False}, "dashboard": {"enabled": True, "history": given}}
    found = objects(rendered(CHART, "team-a", values))
    spec = found["Deployment", "team-a", "haru-dashboard"]["spec"]
    assert "--usage-history=/var/lib/haru" in spec["template"]["spec"]["containers"][0]["command"]
    assert spec["strategy"] == {"type": "Recreate"} and spec["template"]["spec"]["securityContext"]["fsGroup"] == 65532
    assert spec["template"]["spec"]["volumes"] == [{"name": "history", **source}]
    claim = found.get(("PersistentVolumeClaim", "team-a", "haru-dashboard-history"))
    assert (claim["spec"]["resources"]["requests"]["storage"] if claim else None) == made


def test_explain_api_alone_gives_the_objects_of_its_overlay() -> None:
    values = {"scheduler": {"enabled": False}, "explainApi": {"enabled": True}}
    assert objects(rendered(CHART, "haru-system", values)) == expected("explain-api")
    found = objects(rendered(CHART, "team-a", values))
    [container] = found["Deployment", "team-a", "haru-explain"]["spec"]["template"]["spec"]["containers"]
    assert "--service=team-a/haru-explain" in container["command"]
    assert found["APIService", "", "v1alpha1.explain.haru.dev"]["spec"]["service"]["namespace"] == "team-a"


def test_explain_publish_alone_gives_the_objects_of_its_overlay() -> None:
    values = {"scheduler": {"enabled": False}, "explainPublish": {"enabled": True}}
    assert objects(rendered(CHART, "haru-system", values)) == expected("explain-publish")
    found = objects(rendered(CHART, "team-a", values | {"explainPublish": {"enabled": True, "show": "names"}}))
    [container] = found["Deployment", "team-a", "haru-explain-publisher"]["spec"]["template"]["spec"]["containers"]
    assert {"--publish=names", "--leader-elect-resource-namespace=team-a"} <= set(container["command"])


def test_values_reach_the_deployment() -> None:
    found = objects(rendered(CHART, "team-a", EVERYTHING))
    spec = found["Deployment", "team-a", "haru-scheduler"]["spec"]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    assert (spec["replicas"], pod["hostNetwork"], pod["nodeSelector"]) == (3, True, {"pool": "system"})
    assert (container["image"], container["command"][-1]) == ("mirror.example/haru:test", "--backfill")
    assert "tolerations" not in pod and container["env"] == EVERYTHING["scheduler"]["env"]
    text = found["ConfigMap", "team-a", "haru-scheduler"]["data"]["scheduler.yaml"]
    assert yaml.safe_load(text)["profiles"] == EVERYTHING["scheduler"]["profiles"]
    board = found["ConfigMap", "team-a", "haru-board"]["data"]["haru.json"]
    assert json.loads(board) == json.loads((CHART / "monitoring" / "haru.json").read_text())
    assert ("PrometheusRule", "team-a", "haru-scheduler") in found


SCHEMA = json.loads((CHART / "values.schema.json").read_text())


@pytest.mark.parametrize("values", [yaml.safe_load((CHART / "values.yaml").read_text()), EVERYTHING])
def test_schema_takes_values(values: Obj) -> None:
    jsonschema.validate(values, SCHEMA)


@pytest.mark.parametrize(
    "values",
    [
        {"mode": "third-scheduler"},
        {"replicas": 2},
        {"scheduler": {"replicas": 0}},
        {"scheduler": {"featureGates": "GangScheduling"}},
        {"scheduler": {"extraArgs": ["backfill"]}},
        {"image": {"repository": ""}},
    ],
)
def test_schema_refuses_values(values: Obj) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, SCHEMA)


def test_chart_has_the_version() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert about["version"] == about["appVersion"] == __version__


@pytest.mark.host
@pytest.mark.parametrize("values", [{}, {"mode": "default-scheduler"}, EVERYTHING], ids=["default", "mode", "all"])
def test_helm_renders_the_same(values: Obj, tmp_path: Path) -> None:
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed, and no Debian package brings it")
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    assert subprocess.run([helm, "lint", str(CHART), "-f", str(file)], check=False, capture_output=True).returncode == 0
    command = [helm, "template", "haru", str(CHART), "-n", "haru-system", "-f", str(file), "--kube-version", "1.36.0"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    assert objects(answer.stdout) == objects(rendered(CHART, "haru-system", values))
