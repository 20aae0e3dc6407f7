"""Draw the charts of `haru simulate`: a PNG by matplotlib, or an HTML page with the table and SVG curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from haru.cli.main import UsageError

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _RIGHT, _TOP = 640, 360, 56, 40, 150, 28
_COLOURS = ("#0b6e4f", "#c8553d", "#3d5a98", "#8d6a9f", "#b58900", "#444444")
_DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 3", "10 4")


def chart(title: str, curves: Mapping[str, Sequence[float]], low: float = 0.0, first: int = 1) -> str:
    """An SVG picture; a curve has one value for each whole number from `first` on. `low` is where the axis begins."""
    high = max((max(values) for values in curves.values() if values), default=low + 1)
    high = max(high, low + 1e-9)
    count = max((len(values) for values in curves.values()), default=1)
    inner_width, inner_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(index: float) -> float:
        return _LEFT + inner_width * index / max(count - 1, 1)

    def y(value: float) -> float:
        return _TOP + inner_height * (1 - (value - low) / (high - low))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'role="img" aria-label="{escape(title)}">',
        f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}</text>',
    ]
    for tick in _ticks(low, high):
        at = y(tick)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" font-size="11" text-anchor="end">{tick:g}</text>')
    for tick in _ticks(first, first + count - 1):
        at = x(tick - first)
        parts.append(
            f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 16}" font-size="11" text-anchor="middle">{tick:g}</text>'
        )
    for number, (name, values) in enumerate(curves.items()):
        colour, dash = _COLOURS[number % len(_COLOURS)], _DASHES[number % len(_DASHES)]
        points = " ".join(f"{x(index):.1f},{y(max(value, low)):.1f}" for index, value in enumerate(values))
        stroke = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
        parts.append(f'<polyline fill="none" {stroke} points="{points}"/>')
        row = _TOP + 16 + 18 * number
        parts.append(f'<line x1="{_WIDTH - _RIGHT + 10}" x2="{_WIDTH - _RIGHT + 34}" y1="{row}" y2="{row}" {stroke}/>')
        parts.append(f'<text x="{_WIDTH - _RIGHT + 40}" y="{row + 4}" font-size="12">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"])


def _ticks(low: float, high: float) -> list[float]:
    """A handful of round numbers between two."""
    rough = (high - low) / 5 or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step - 1e-9)
    return [round(index * step, 10) for index in range(first, math.floor(high / step + 1e-9) + 1)]


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
