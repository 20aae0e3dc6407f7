"""`haru lint` as people call it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from haru.cli.main import main
from haru.kube.yaml import load_all

TYPO = """\
# my claim
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: typo
spec:
  devices:
    requests:
    - name: card
      exactly:
        deviceClasName: gpu.nvidia.com  # whole cards
"""
CLAIM = TYPO.replace("deviceClasName", "deviceClassName").replace("typo", "good")
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: pod}
spec:
  containers: [{name: c, image: i, resources: {claims: [{name: x}]}}]
  resourceClaims: [{name: x, resourceClaimTemplateName: good}]
"""
OLD = """\
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata:
  name: old
spec:
  devices:
    requests:
    - name: card
      # whole cards
      deviceClassName: gpu.nvidia.com
      count: 2
"""


def write(directory: Path, name: str, text: str) -> str:
    path = directory / name
    path.write_text(text)
    return str(path)


def test_directory_is_linted_without_the_files_of_kustomize(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "claim.yaml", CLAIM)
    write(tmp_path, "kustomization.yaml", "resources: [claim.yaml]\n")
    assert main(["lint", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "1 object: 0 errors, 0 warnings\n"


def test_template_that_was_not_rendered_is_named_as_the_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lint", write(tmp_path, "pod.yaml", POD.replace("name: pod", "name: {{ .Release.Name }}"))]) == 1
    assert "=> the file is a template: lint what it is rendered to, as by helm template" in capsys.readouterr().out


def test_exit_status_is_1_with_errors_and_0_after_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, typo = write(tmp_path, "good.yaml", CLAIM), write(tmp_path, "typo.yaml", TYPO)
    assert main(["lint", good]) == 0
    assert capsys.readouterr().out == "1 object: 0 errors, 0 warnings\n"
    assert main(["lint", good, "-f", typo]) == 1
    out = capsys.readouterr().out
    assert (
        f"{typo}:11: error: ResourceClaim/typo: spec.devices.requests[0].exactly.deviceClasName: unknown field" in out
    )
    assert 'did you mean "deviceClassName"? (--fix does it)' in out
    assert out.endswith("2 objects: 1 error, 0 warnings; --fix can mend 1\n")


def test_warnings_and_notices_exit_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unused = POD.replace("resources: {claims: [{name: x}]}", "args: []")
    assert main(["lint", write(tmp_path, "pod.yaml", unused)]) == 0
    out = capsys.readouterr().out
    assert "warning: Pod/pod: spec.resourceClaims[0]" in out
    assert "notice: Pod/pod" in out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "no FILE is given"),
        (["/does/not/exist"], "/does/not/exist: No such file or directory"),
        (["-", "--fix"], "standard input"),
        (["EMPTY"], "has no .yaml"),
        (["COMMENTS"], "there is no object in "),
        (["BYTES"], "invalid start byte at byte 1; save it as UTF-8"),
    ],
)
def test_invalid_arguments_exit_with_2(
    arguments: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bytes").write_bytes(b"a\xff")
    (tmp_path / "comments").write_text("# nothing\n---\n")
    places = {name: str(tmp_path / name.lower()) for name in ("EMPTY", "BYTES", "COMMENTS")}
    assert main(["lint", *(places.get(one, one) for one in arguments)]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("\n") == 1


def test_directory_is_checked_besides_files_that_are_no_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = [tmp_path / "0.yaml", tmp_path / "2.yaml"]
    for path in bad:
        path.write_bytes(b"a\xff")
    typo = write(tmp_path, "1.yaml", TYPO)
    assert main(["lint", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{typo}:")
    told = "this is no UTF-8 text: invalid start byte at byte 1; save it as UTF-8"
    assert captured.err.splitlines() == [f"haru lint: {path}: {told}" for path in bad]


def test_nothing_is_fixed_while_a_file_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "0.yaml").write_bytes(b"a\xff")
    typo = Path(write(tmp_path, "1.yaml", TYPO))
    assert main(["lint", "--fix", str(tmp_path)]) == 2
    assert "0.yaml: this is no UTF-8 text" in capsys.readouterr().err
    assert typo.read_text() == TYPO


def test_empty_list_has_nothing_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", write(tmp_path, "none.yaml", "{apiVersion: v1, kind: List, items: []}")]) == 0
    assert capsys.readouterr().out == "0 objects: 0 errors, 0 warnings\n"


def test_standard_input_and_directories_are_linted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TYPO.encode())))
    assert main(["lint", "-f", "-"]) == 1
    assert "-:11: error" in capsys.readouterr().out
    (tmp_path / "below").mkdir()
    write(tmp_path / "below", "a.yml", CLAIM)
    write(tmp_path, "b.yaml", POD)
    write(tmp_path, "c.txt", TYPO)
    assert main(["lint", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert '"good" is a ResourceClaim, not a ResourceClaimTemplate' in out
    assert "typo" not in out


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_json_and_yaml_reports_have_findings_with_file_and_line(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typo = write(tmp_path, "typo.yaml", TYPO)
    assert main(["lint", typo, "-o", form]) == 1
    out = capsys.readouterr().out
    (report,) = [json.loads(out)] if form == "json" else load_all(out)
    assert (report["apiVersion"], report["kind"]) == ("haru.dev/v1alpha1", "LintReport")
    (finding,) = report["findings"]
    assert (finding["file"], finding["line"], finding["fixable"]) == (typo, 11, True)


def test_fix_writes_file_keeps_mode_and_second_run_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typo = write(tmp_path, "typo.yaml", TYPO)
    Path(typo).chmod(0o640)
    assert main(["lint", "--fix", typo]) == 0
    out = capsys.readouterr().out
    assert f"{typo}:11: fixed spec.devices.requests[0].exactly.deviceClasName of ResourceClaim/typo" in out
    assert Path(typo).read_text() == TYPO.replace("deviceClasName", "deviceClassName")
    assert Path(typo).stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["typo.yaml"]
    stamp = Path(typo).stat().st_mtime_ns, Path(typo).stat().st_ino
    assert main(["lint", "--fix", typo]) == 0
    assert capsys.readouterr().out == "1 object: 0 errors, 0 warnings\n"
    assert (Path(typo).stat().st_mtime_ns, Path(typo).stat().st_ino) == stamp


def test_fix_converts_old_versions_to_v1_and_keeps_comments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = write(tmp_path, "old.yaml", OLD)
    assert main(["lint", old]) == 0
    assert "notice" in capsys.readouterr().out
    assert main(["lint", "--fix", "-o", "json", old]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [one["check"] for one in report["fixed"]] == ["version-deprecated"]
    assert report["notices"] == []
    text = Path(old).read_text()
    assert text.startswith("apiVersion: resource.k8s.io/v1\n")
    assert "      # whole cards\n      exactly:\n        deviceClassName: gpu.nvidia.com\n        count: 2\n" in text


def test_fix_follows_symlink_and_leaves_invalid_yaml_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typo = write(tmp_path, "typo.yaml", TYPO)
    (tmp_path / "link.yaml").symlink_to(typo)
    assert main(["lint", "--fix", str(tmp_path / "link.yaml")]) == 0
    assert (tmp_path / "link.yaml").is_symlink()
    assert "deviceClassName" in Path(typo).read_text()
    broken = write(tmp_path, "broken.yaml", "a: [\n")
    assert main(["lint", "--fix", broken]) == 1
    assert Path(broken).read_text() == "a: [\n"
    assert "yaml-syntax" in capsys.readouterr().out


def test_directory_without_write_permission_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    typo = write(tmp_path, "typo.yaml", TYPO)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("haru.files.os.open", refuse)
    assert main(["lint", "--fix", typo]) == 2
    assert "Permission denied" in capsys.readouterr().err
    assert Path(typo).read_text() == TYPO
