"""Suggestions of a known name for an unknown one."""

from __future__ import annotations

import pytest

from haru.kube.decoding import suggest_name


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("gpu.nvidia.co", ["gpu.nvidia.com", "mig.nvidia.com"], "gpu.nvidia.com"),
        ("gpu-nvidia-com", ["gpu.nvidia.com"], "gpu.nvidia.com"),
        ("gpu.amd.com", ["gpu.nvidia.com"], ""),
        ("nvdia.com/gpu", ["nvidia.com/gpu", "amd.com/gpu"], "nvidia.com/gpu"),
        ("amd.com/gpu", ["nvidia.com/gpu"], ""),
        ("trainign", ["training", "serving"], "training"),
        ("Training", ["training"], "training"),
        ("node-9", ["node-1"], ""),
        ("eu-west-1c", ["eu-west-1a"], ""),
        ("gpu-h100", ["gpu-a100"], ""),
        ("dxg-h100-0", ["dgx-h100-0"], "dgx-h100-0"),
        ("x", [], ""),
    ],
)
def test_similar_name_is_suggested(name: str, known: list[str], meant: str) -> None:
    assert suggest_name(name, known) == meant
