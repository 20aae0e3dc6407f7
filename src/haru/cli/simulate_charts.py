"""Draw the charts of `haru simulate`: a PNG by matplotlib, or an HTML page with the table and SVG curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from haru.cli.main import UsageError
from haru.simulate.chart import chart

Curves = Mapping[str, Mapping[str, Sequence[float]]]
"""By panel and policy: one value for each whole number from 1 on."""

_STYLE = "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}pre{overflow-x:auto}"


def draw_png(path: Path, title: str, curves: Curves) -> None:
    """One panel for each workload; raises UsageError without matplotlib, and where the file cannot be written."""
    try:
        import matplotlib  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise UsageError(
            "--plot: needs matplotlib: pip install 'haru[plots]'; --html FILE writes a page without it"
        ) from error
    matplotlib.use("agg")
    import matplotlib.pyplot as plt  # type: ignore[import-not-found,unused-ignore]

    across = min(len(curves), 3)
    down = -(-len(curves) // across)
    figure, axes = plt.subplots(down, across, figsize=(5 * across, 3.6 * down), squeeze=False)
    for axis in axes.flat[len(curves) :]:
        axis.set_visible(False)
    for axis, (panel, lines) in zip(axes.flat, curves.items(), strict=False):
        for name, values in lines.items():
            axis.plot(range(1, len(values) + 1), values, label=name)
        axis.set_title(panel)
        axis.set_ylim(bottom=_bottom(lines))
        axis.grid(alpha=0.3)
        axis.legend()
    figure.suptitle(title)
    figure.tight_layout()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"--plot: {path}: {error}") from error
    finally:
        plt.close(figure)


def write_page(path: Path, title: str, table: str, curves: Curves) -> None:
    """A page that needs nothing else; raises UsageError where it cannot be written."""
    pictures = "\n".join(chart(panel, lines, _bottom(lines)) for panel, lines in curves.items())
    page = (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n<h1>{escape(title)}</h1>\n<pre>{escape(table)}</pre>\n{pictures}\n</html>\n"
    )
    try:
        path.write_text(page)
    except OSError as error:
        raise UsageError(f"--html: {path}: {error.strerror}") from error


def _bottom(lines: Mapping[str, Sequence[float]]) -> float:
    """Where the axis begins: at three fifths of the highest end, so that differences at the top can be seen."""
    return max((max(values) for values in lines.values() if values), default=0.0) * 0.6
