"""Names of images: their parts, and what is wrong with those that no runtime takes."""

from __future__ import annotations

import pytest

from haru.kube.image_names import ImageNameError, parse_image_name

DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("busybox", ("docker.io", "library/busybox", "")),
        ("me/busybox:1.36", ("docker.io", "me/busybox", "1.36")),
        ("r.example:5000/a/b_c:X-1", ("r.example:5000", "a/b_c", "X-1")),
        ("localhost/a", ("localhost", "a", "")),
        ("Host/a", ("Host", "a", "")),
        (f"r.example/a:1@{DIGEST}", ("r.example", "a", "1")),
        (f"[fd00::1]:5000/a@{DIGEST}", ("[fd00::1]:5000", "a", "")),
    ],
)
def test_name_has_registry_path_and_tag(name: str, parts: tuple[str, str, str]) -> None:
    assert parse_image_name(name) == parts


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "invalid reference format"),
        ("a b", "invalid reference format"),
        ("r.example/a:", "invalid reference format"),
        (f"a:{'x' * 129}", "invalid reference format"),
        ("a@sha256:0", "invalid reference format"),
        ("r.example/A/b", "invalid reference format: repository name (A/b) must be lowercase"),
        ("Busybox", "invalid reference format: repository name (library/Busybox) must be lowercase"),
        ("a/" * 130 + "a", "repository name must not be more than 255 characters"),
        ("0" * 64, f"invalid repository name ({'0' * 64}), cannot specify 64-byte hexadecimal strings"),
    ],
)
def test_name_that_no_runtime_takes_is_refused_in_the_words_of_kubelets(name: str, problem: str) -> None:
    with pytest.raises(ImageNameError) as refused:
        parse_image_name(name)
    assert str(refused.value) == f'couldn\'t parse image name "{name}": {problem}'
