"""Pictures of how times grow, for the documents. They need matplotlib (pip install 'haru[plots]')."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def growth(name: str, x: str, y: str, series: Mapping[str, Sequence[tuple[float, float]]]) -> Path:
    """One picture with both axes logarithmic, written as `growth-NAME.svg` beside the documents."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "haru"
    IMAGES.mkdir(exist_ok=True)
    figure, axes = plt.subplots(figsize=(6.4, 4))
    for number, (label, points) in enumerate(series.items()):
        axes.loglog(*zip(*points, strict=True), marker="os^Dv*Px"[number % 8], label=label)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(True, which="both", alpha=0.3)
    axes.legend(fontsize=7)
    figure.tight_layout()
    path = IMAGES / f"growth-{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path
