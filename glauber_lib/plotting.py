"""The one matplotlib style, and the figures the notebooks share. Functions take results, never models."""

import html

import matplotlib.pyplot as plt
import numpy as np

COLORS = ["#1f5a94", "#d1701f", "#3f8f5b", "#8c4a9e", "#b03a48", "#6b6b6b"]
STYLE = {
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": plt.cycler(color=COLORS),
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "pdf.fonttype": 42,
}


def use_style():
    """Set the style of every figure of the package."""
    plt.rcParams.update(STYLE)


def band(axis, x, samples, *, label=None, color=None):
    """Mean over the rows of ``samples`` [R, K] against ``x`` [K], with the 95% band of the mean, cut at 0 and 1."""
    mean = samples.mean(0)
    half = 1.96 * samples.std(0, ddof=1) / np.sqrt(len(samples))
    (line,) = axis.plot(x, mean, label=label, color=color)
    axis.fill_between(
        x, np.maximum(mean - half, 0), np.minimum(mean + half, 1), color=line.get_color(), alpha=0.2, linewidth=0
    )
    return line


def trajectory(axis, points, *, title=None):
    """One chain in the plane, points [K, 2] joined and coloured from warm (early) to cool (late)."""
    colors = plt.cm.coolwarm_r(np.linspace(0, 1, len(points)))
    axis.plot(*points.T, color="0.75", linewidth=0.7, zorder=1)
    axis.scatter(*points.T, c=colors, s=22, zorder=2, edgecolor="white", linewidth=0.3)
    axis.scatter(*points[0], marker="s", s=60, color=colors[0], edgecolor="black", zorder=3)
    axis.scatter(*points[-1], marker="D", s=60, color=colors[-1], edgecolor="black", zorder=3)
    if title:
        axis.set_title(title)


def matrix(axis, values, labels, *, title=None, vmax=1.0):
    """Heat map of an influence matrix [n, n]: row i is influenced by column j."""
    image = axis.imshow(values, cmap="magma_r", vmin=0, vmax=vmax)
    axis.set_xticks(range(len(labels)), labels, rotation=90, fontsize=8)
    axis.set_yticks(range(len(labels)), labels, fontsize=8)
    axis.set_xlabel("changed site $j$")
    axis.set_ylabel("resampled site $i$")
    axis.grid(False)
    if title:
        axis.set_title(title)
    return image


def value_ticks(axis, values):
    """A tick with its number at each of `values` along x, and no others."""
    axis.set_xticks(values, [f"{value:g}" for value in values])
    axis.xaxis.minorticks_off()  # those along y stay


def plain_ticks(axis):
    """Label a logarithmic axis at 1 and 3 times the powers of ten within its limits."""
    low, high = axis.get_view_interval()
    ticks = [digit * 10.0**power for power in range(-6, 4) for digit in (1, 3) if low <= digit * 10.0**power <= high]
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_minor_formatter("")


def reference_line(axis, value, text, *, vertical=False, left=False, color="0.4"):
    """A dashed line at `value` with `text` beside it, inside the axes."""
    if vertical:
        axis.axvline(value, color=color, linestyle="--", linewidth=1)
        axis.annotate(text, (value, 0.98), xycoords=("data", "axes fraction"), xytext=(3, 0),
                      textcoords="offset points", va="top", fontsize=8, color=color)  # fmt: skip
    else:
        axis.axhline(value, color=color, linestyle="--", linewidth=1)
        axis.annotate(text, (0.01 if left else 0.99, value), xycoords=("axes fraction", "data"), xytext=(0, 3),
                      textcoords="offset points", ha="left" if left else "right", fontsize=8, color=color)  # fmt: skip


def binned_means(axis, x, y, *, bins=6):
    """Means of `y` in `bins` groups of equal size along `x`, with 95% bars of the mean."""
    order = np.argsort(np.asarray(x))
    groups = np.array_split(order, bins)
    x, y = np.asarray(x), np.asarray(y)
    centers, means = [x[g].mean() for g in groups], [y[g].mean() for g in groups]
    bars = [1.96 * y[g].std(ddof=1) / np.sqrt(len(g)) for g in groups]
    axis.errorbar(centers, means, yerr=bars, fmt="o-", color="black", markersize=4, linewidth=1, capsize=2,
                  label="mean of equal groups, 95%")  # fmt: skip


def chain_table(model, trace, row, moves):
    """Some moves of one chain as an HTML table: the step, and the text with the changed token marked.

    Parameters
    ----------
    model : MaskedLM
    trace : Trace
    row : int
    moves : array_like, int[K]
        Which of the chain's moves, from 0.
    """
    states, entered, durations = trace.visits(row)
    lines = []
    for k in [0, *(int(m) + 1 for m in moves)]:
        words = [html.escape(word) for word in model.words(states[k])]
        if k:
            site = int(np.flatnonzero(states[k] != states[k - 1])[0])
            before = html.escape(model.words(states[k - 1])[site])
            words[site] = f"<mark title=\"before: {before}\">{words[site]}</mark>"
        lines.append(f"<tr><td>{entered[k]}</td><td>{durations[k]}</td><td>{' '.join(words)}</td></tr>")
    head = "<tr><th>step</th><th>steps held</th><th>text, the token that changed marked (hover: what it was)</th></tr>"
    return f'<table class="glauber-chain">{head}{"".join(lines)}</table>'
