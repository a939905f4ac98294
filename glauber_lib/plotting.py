"""The one matplotlib style, and what the notebooks' figures share. Functions take results, never models."""

import html
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from glauber_lib.checks import check_columns

COLORS = ["#1f5a94", "#d1701f", "#3f8f5b", "#8c4a9e", "#b03a48", "#5fb3d9"]
COLUMN, PAGE = 3.4, 7.0  # widths in inches of a figure over one column of a printed page, and over both
STYLE: dict[Any, Any] = {
    "figure.dpi": 120,
    "savefig.dpi": 250,
    "figure.constrained_layout.use": True,
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=COLORS),
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "pdf.fonttype": 42,
}


def use_style() -> None:
    """Set the style of every figure of the package."""
    plt.rcParams.update(STYLE)


def literal(text: Any) -> str:
    """A text with its dollar signs escaped: matplotlib takes what stands between two of them for mathematics."""
    return str(text).replace("$", r"\$")


def panels(count: int, *, columns: int = 2, height: float = 2.4, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure over the width of a page with `count` axes in rows of `columns`, each `height` inches high.

    `options` go to `plt.subplots`. ValueError for no panel or no column.
    """
    if min(count, columns) < 1:
        raise ValueError(f"a figure needs a panel and a column, got {count} panels in {columns} columns")
    columns = min(columns, count)
    rows = -(-count // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(PAGE, rows * height), squeeze=False, **options)
    for spare, above in zip(axes.flat[count:], axes.flat[count - columns :], strict=False):
        spare.set_visible(False)
        above.xaxis.set_tick_params(labelbottom=True)  # where x is shared, only the last row has labels
    return figure, list(axes.flat[:count])


def interval_band(axis: Axes, x: ArrayLike, table: pd.DataFrame, **style) -> Line2D:
    """A line through the means of `table` (columns ``mean, low, high``) against `x`, within the band of its intervals.

    `style` goes to the line; the band takes the line's color. ValueError if `table` lacks a column.
    """
    check_columns(table, ["mean", "low", "high"], "table")
    (line,) = axis.plot(x, table["mean"], **style)
    axis.fill_between(np.asarray(x), table.low, table.high, color=line.get_color(), alpha=0.2, linewidth=0)
    return line


def interval_bars(axis: Axes, x: ArrayLike, table: pd.DataFrame, **style) -> ErrorbarContainer:
    """Points at the means of `table` (columns ``mean, low, high``) against `x`, with a bar for each interval.

    Of an interval with one end the bar goes from that to the mean, and on as an arrow where the other is infinite.
    `style` goes to `Axes.errorbar`. ValueError if `table` lacks a column, or a lower end is above the upper one.
    """
    check_columns(table, ["mean", "low", "high"], "table")
    x, mean, ends = np.asarray(x), table["mean"].to_numpy(float), table[["low", "high"]].to_numpy(float).T
    if (turned := ends[0] > ends[1] + 1e-9 * np.abs(ends[1]) + 1e-15).any():  # but for rounding
        raise ValueError(f"intervals must have their lower end first, got {turned.sum()} that have not")
    known = np.isfinite(ends)
    base = np.fmin(np.fmax(mean, np.where(known[0], ends[0], np.nan)), np.where(known[1], ends[1], np.nan))
    beyond = np.isinf(mean) & (known[0] != known[1])  # the arrow goes out from the end that is known
    base = np.where(beyond, np.where(known[0], *ends), base)
    with np.errstate(invalid="ignore"):  # an infinite end of an infinite mean
        bars = np.array([mean - ends[0], ends[1] - mean])
    # the interval of a skewed statistic may leave its value out
    beside = known.all(0) & (bars < -1e-9 * np.abs(ends)).any(0)
    bars = bars.clip(min=0)  # matplotlib refuses what rounding may make -1e-17
    bars[:, beside | ~known.all(0)] = np.nan
    drawn = axis.errorbar(x, mean, yerr=bars, **{"fmt": "o", "capsize": 2, **style})
    if beside.any():
        middle, half = ends.mean(0)[beside], np.ptp(ends, axis=0)[beside] / 2
        axis.errorbar(x[beside], middle, yerr=half, fmt="none", capsize=2, ecolor=drawn[0].get_color())
    half_known = {"fmt": "none", "capsize": 2, "ecolor": drawn[0].get_color()}
    for k in np.flatnonzero(known[0] != known[1]):
        end, other = ends[::-1, k] if known[1, k] else ends[:, k]
        low, high = sorted([end, base[k]])
        axis.errorbar(x[k], low, yerr=[[0.0], [high - low]], **half_known)
        if np.isinf(other):
            length = (high - low) / 2 or abs(base[k]) / 2 or 1.0
            axis.errorbar(x[k], base[k], yerr=length, lolims=other > 0, uplims=other < 0, **half_known)
    return drawn


def trajectory(axis: Axes, points: np.ndarray, *, title: str | None = None) -> None:
    """One chain in the plane, points [K, 2] joined and coloured from warm (early) to cool (late).

    `title` is shown as it is, without mathematics. ValueError for what are no points.
    """
    if np.ndim(points) != 2 or np.shape(points)[1] != 2 or not len(points):
        raise ValueError(f"points must have shape (points, 2), with one at least, got {np.shape(points)}")
    colors = plt.get_cmap("coolwarm_r")(np.linspace(0, 1, len(points)))
    axis.plot(*points.T, color="0.75", linewidth=0.7, zorder=1)
    axis.scatter(*points.T, c=colors, s=22, zorder=2, edgecolor="white", linewidth=0.3)
    axis.scatter(*points[0], marker="s", s=60, color=colors[0], edgecolor="black", zorder=3)
    axis.scatter(*points[-1], marker="D", s=60, color=colors[-1], edgecolor="black", zorder=3)
    if title:
        axis.set_title(literal(title))


def component_labels(axis: Axes, shares: Sequence[float]) -> None:
    """Label both axes with a principal component and its share of the variance, where there is any variance."""
    first, second = (f" ({share:.0%}{{}})" if np.isfinite(share) else " (nothing varies)" for share in shares[:2])
    axis.set(xlabel="PC 1" + first.format(" of variance"), ylabel="PC 2" + second.format(""))


def matrix(
    axis: Axes, values: np.ndarray, labels: Sequence, *, title: str | None = None, vmax: float = 1.0
) -> AxesImage:
    """Heat map of an influence matrix [n, n]: column j influences row i. The `labels` are shown as they are."""
    labels = list(map(literal, labels))
    image = axis.imshow(values, cmap="magma_r", vmin=0, vmax=vmax)
    axis.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7)
    axis.set_yticks(range(len(labels)), labels, fontsize=7)
    axis.set_xlabel("changed site $j$")
    axis.set_ylabel("resampled site $i$")
    axis.grid(False)
    if title:
        axis.set_title(title)
    return image


def value_ticks(axis: Axes, values: Sequence[float]) -> None:
    """A tick with its number at each of `values` along x, and no others."""
    axis.set_xticks(values, [f"{value:g}" for value in values])
    axis.xaxis.minorticks_off()  # those along y stay


def plain_ticks(axis: Axis) -> None:
    """Label a logarithmic axis at 1 and 3 times the powers of ten within its limits, or at 1, 2 and 5 times.

    A long axis has powers of ten alone, so many apart that no more than nine are left; a short one all digits. An axis
    with fewer than two of these is left to matplotlib. ValueError for an axis that reaches zero or below.
    """
    low, high = sorted(axis.get_view_interval())
    if low <= 0:
        raise ValueError(f"plain ticks are those of a logarithmic axis, got one from {low:g} to {high:g}")
    first, last = int(np.floor(np.log10(low))), int(np.ceil(np.log10(high)))
    long = -(-(last - first) // 8)
    for digits, step, least in (((1, 3), 1, 3), ((1, 2, 5), 1, 3), ((1,), long, 2), (range(1, 10), 1, 2)):
        ticks = [float(f"{d}e{power}") for power in range(first, last + 1) if not power % step for d in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if least <= len(ticks) <= 9:
            axis.set_ticks(ticks, list(map(_tick_label, ticks)))
            break
    else:
        axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def _tick_label(tick):
    """A number as it is or, where it is long, as a digit times a power of ten."""
    if 1e-4 <= tick < 1e5:
        return f"{tick:g}"
    digit, power = f"{tick:.0e}".split("e")
    times = "" if digit == "1" else rf"{digit}\cdot"
    return rf"${times}10^{{{int(power)}}}$"


def reference_line(
    axis: Axes, value: float, text: str, *, vertical: bool = False, left: bool = False, color: str = "0.4"
) -> None:
    """A dashed line at `value` with `text` beside it, inside the axes."""
    if vertical:
        axis.axvline(value, color=color, linestyle="--", linewidth=1)
        axis.annotate(text, (value, 0.98), xycoords=("data", "axes fraction"), xytext=(3, 0),
                      textcoords="offset points", va="top", fontsize=7, color=color)  # fmt: skip
    else:
        axis.axhline(value, color=color, linestyle="--", linewidth=1)
        axis.annotate(text, (0.01 if left else 0.99, value), xycoords=("axes fraction", "data"), xytext=(0, 3),
                      textcoords="offset points", ha="left" if left else "right", fontsize=7, color=color)  # fmt: skip


def moves_as_html(table: pd.DataFrame) -> str:
    """The states of `readings.moves_in_words` as an HTML table, each word that a move put there marked.

    ValueError if `table` lacks a column.
    """
    check_columns(table, ["step", "held", "words", "sites", "before"], "table")
    lines = []
    for row in table.to_dict("records"):
        words = [html.escape(word) for word in row["words"]]
        for site, before in zip(row["sites"], row["before"], strict=True):
            words[site] = f'<mark title="before: {html.escape(before)}">{words[site]}</mark>'
        lines.append(f"<tr><td>{row['step']}</td><td>{row['held']}</td><td>{' '.join(words)}</td></tr>")
    head = "<tr><th>step</th><th>steps held</th><th>text, the token that changed marked (hover: what it was)</th></tr>"
    return f'<table class="glauber-chain">{head}{"".join(lines)}</table>'
