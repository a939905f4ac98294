# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Section 4: masked-LM conditionals fit no joint distribution
#
# **Claim.** Walk round a rectangle of four sentences that differ at two sites. If the conditionals came from any
# joint distribution, both ways from one corner to the opposite one would add up to the same log-ratio. For masked
# language models they do not: the difference Δ is broadly spread around 0.6–0.8 nats, it grows with the influence the two sites
# have on each other, and it vanishes for an autoregressive model, which has a joint.
#
# Published models are the base and large BERT and RoBERTa and ModernBERT on MS MARCO passages. The default profile puts in
# their place three masked models embedded in this repository (DistilBERT, and small ones of 6 and 3 layers) and passages
# written for it.

# %% tags=["parameters"]
profile = "mini"

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import permutation_test

from glauber_lib.incompatibility import (
    marked_texts,
    measure_joint,
    measure_rectangles,
    noise_floor,
    opposite_signs,
    sample_rectangles,
)
from glauber_lib.language import CausalLM
from glauber_lib.paper import Run
from glauber_lib.plotting import COLORS, interval_bars, plain_ticks, reference_line, value_ticks
from glauber_lib.stats import above, below, binned_intervals, bootstrap_interval, rank_correlation

run = Run("01_incompatibility", profile)
names = list(dict.fromkeys([*run["models"], run["model"]]))  # those compared and the chain's own
control = run.model(run["control"], causal=True)
passages = run.passages(*map(run.model, names), control).text  # the same texts for all, each in tokens of its own
PUBLISHED = {  # millions of parameters, mean Δ (Table 1)
    "bert-base-uncased": (110, 0.644),
    "bert-large-uncased": (335, 0.798),
    "roberta-base": (125, 0.705),
    "roberta-large": (355, 0.735),
    "answerdotai/ModernBERT-base": (150, 0.753),
    "gpt2": (124, 0.000),
}

# %% [markdown]
# ## Rectangles
# Passage and sites at random; the replacements b and d from the model's own 50 best predictions at their site. Four
# masked forward passes give one rectangle. The noise floor is the largest change of Δ when the same rectangles are
# evaluated in float64. Every interval below is a bootstrap over passages: rectangles of one passage are resampled together.

# %%
results, floors, drawn, parameters = {}, {}, {}, {}
for name in names:
    model = run.model(name)
    states = model.states(passages, n=run["n_tokens"])
    drawn[name] = run.cached(sample_rectangles, model, states, run["rectangles"], seed=run.seed)
    results[name] = run.cached(measure_rectangles, model, drawn[name])
    floors[name] = run.cached(noise_floor, model, drawn[name].take(range(run["noise_rectangles"])))
    parameters[name] = model.network.num_parameters() / 1e6

# %% [markdown]
# The control walks the same four edges with differences of joint log-probabilities. For a joint Δ = 0 is an identity, so what
# is tested is that the model is one: its factors depend on the tokens before alone (checked when it is loaded), and
# the arithmetic returns zero.

# %%
states = control.states(passages, n=run["n_tokens"])
rectangles = run.cached(
    sample_rectangles, control, states, run["control_rectangles"], seed=run.seed, propose=control.proposals
)
results[control.name] = run.cached(measure_joint, control, rectangles)
floors[control.name] = np.nan
parameters[control.name] = control.network.num_parameters() / 1e6

# %% [markdown]
# The identity says nothing about the code that measures masked models. So the control goes through that code too: on short
# random states over its most frequent tokens its conditionals are exact, by enumeration of the joint. The conditionals
# that give Δ for a masked model must then give zero, up to rounding.

# %%
frequent = np.argsort(-np.bincount(states.ravel(), minlength=control.n_tokens), kind="stable")[: run["control_tokens"]]
listed = CausalLM(control.network, control.tokenizer, name=control.name, vocabulary=control.vocabulary[frequent])
states = np.random.default_rng(run.seed).integers(
    listed.n_tokens, size=(run["control_conditionals"], run["control_sites"])
)
rectangles = run.cached(sample_rectangles, listed, states, run["control_conditionals"], seed=run.seed)
exact = run.cached(measure_rectangles, listed, rectangles)
run.claim(
    f"control-conditionals/{control.name}",
    "The exact conditionals of a joint give Δ = 0 up to rounding, by the code that measures masked models (largest Δ tried).",
    exact.delta.max(),
    published=0.0,
    kind="lower bound",
    n=len(exact),
    verdict=bool(exact.delta.max() <= 1e-3),
    why=f"must be at most 0.001 nats; the sites do influence each other: the median of |I_ij| is {exact.I_ij.abs().median():.2f}",
)

# %% [markdown]
# ## Table 1

# %%
rows, intervals = [], {}


def with_interval(values, passages, statistic=np.mean):
    """A statistic and its 95% interval as text."""
    interval = bootstrap_interval(values, groups=passages, statistic=statistic, n_resamples=500)
    return "{:.3g} [{:.3g}, {:.3g}]".format(statistic(values), *interval)


upper = lambda values: np.quantile(values, 0.9)  # noqa: E731
for name, frame in results.items():
    low, high = intervals[name] = bootstrap_interval(frame.delta, groups=frame.passage)
    floor = floors[name]
    rows.append(
        {
            "model": name,
            "parameters": f"{parameters[name]:.0f}M",
            "n": len(frame),
            "mean Δ": frame.delta.mean(),
            "95% low": low,
            "95% high": high,
            "median Δ": with_interval(frame.delta, frame.passage, np.median),
            "90th percentile": with_interval(frame.delta, frame.passage, upper),
            "mean relative Δ": with_interval(frame.relative, frame.passage) if "relative" in frame else None,
            "noise floor": floor,
            "share above floor": None if np.isnan(floor) else with_interval(frame.delta > floor, frame.passage),
            "published mean Δ": PUBLISHED.get(name, (None, np.nan))[1],
        }
    )
others = [
    {"model": name, "parameters": f"{size}M", "published mean Δ": delta}
    for name, (size, delta) in PUBLISHED.items()
    if name not in results
]
table = run.save_table(pd.DataFrame(rows + others), "table1-incompatibility")
table.style.format(precision=3, na_rep="–").hide()

# %%
# NBVAL_CHECK_OUTPUT
masked = [name for name in results if name != control.name]
published = {name: PUBLISHED.get(name, (None, None))[1] for name in results}
for name in masked:
    delta = results[name].delta
    low, high = intervals[name]
    run.claim(
        f"mean-delta/{name}",
        "Masked-LM conditionals are incompatible: the mean Δ is well above zero.",
        delta.mean(),
        published=published[name] or 0.644,
        interval=(low, high),
        n=len(delta),
        verdict=0 < 10 * floors[name] < low,
        why=f"noise floor (float64 against float32): {floors[name]:.1e}, must be ten times below the interval",
    )
    share = lambda values: np.mean(values[values <= np.quantile(values, 0.95)]) / np.mean(values)  # noqa: E731
    interval = bootstrap_interval(delta, statistic=share, groups=results[name].passage, n_resamples=500)
    run.claim(
        f"not-outliers/{name}",
        "Incompatibility is broad, not an effect of outliers: the mean without the largest 5% stays above half.",
        share(delta),
        interval=interval,
        n=len(delta),
        verdict=above(interval, 0.5),
        why=f"the interval must lie above one half; {(delta > 10 * floors[name]).mean():.0%} of the rectangles lie above ten noise floors",
    )
worst = results[control.name].delta.max()
run.claim(
    f"control/{control.name}",
    "For a joint distribution Δ telescopes to zero: largest Δ tried.",
    worst,
    published=0.0,
    kind="lower bound",
    n=len(results[control.name]),
    verdict=bool(worst < 1e-3),
    why="must be below 0.001 nats",
)

# %% [markdown]
# ## Figure 5: the distribution of Δ

# %%
figure, axes = plt.subplots(1, len(masked), figsize=(4.6 * len(masked), 3.4), sharex=True, sharey=True, squeeze=False)
short = {name: name.split("/")[-1] for name in masked}  # of answerdotai/ModernBERT-base what fits a title
bins = np.linspace(0, np.quantile(np.concatenate([results[k].delta for k in masked]), 0.99), 31)
for axis, name, color in zip(axes[0], masked, COLORS, strict=False):
    delta = results[name].delta
    axis.hist(np.clip(delta, None, bins[-1]), bins=bins, color=color, alpha=0.8)
    reference_line(axis, delta.mean(), f"mean {delta.mean():.2f}", vertical=True, color="black")
    axis.set_title(f"{short[name]}  (n = {len(delta)})")
    axis.set_xlabel("Δ (nats); last bar: all larger")
axes[0, 0].set_ylabel("rectangles")
figure.suptitle(
    f"Incompatibility of masked-LM conditionals ({control.name}, a joint: at most {worst:.0g})", fontsize=11
)
run.save_figure(figure, "fig5-incompatibility")

# %% [markdown]
# ## Figure 6: Δ grows with influence
# The influence of a pair is the mean total variation that changing one site causes in the other's conditional.

# %%
figure, axes = plt.subplots(1, len(masked), figsize=(4.6 * len(masked), 3.6), sharex=True, sharey=True, squeeze=False)
correlation = {}
for axis, name, color in zip(axes[0], masked, COLORS, strict=False):
    frame = results[name]
    rho = rank_correlation(frame.influence, frame.delta)
    interval = bootstrap_interval(frame.influence, frame.delta, statistic=rank_correlation, groups=frame.passage)
    correlation[name] = rho, interval
    axis.scatter(frame.influence, frame.delta, s=9, alpha=0.45, color=color, linewidth=0)
    means = binned_intervals(frame.influence, frame.delta, groups=frame.passage)
    label = "mean of about equal groups, 95% over passages"
    interval_bars(axis, means.x, means, fmt="o-", color="black", markersize=4, linewidth=1, label=label)
    axis.set_title(
        f"{short[name]}, n = {len(frame)}\nSpearman ρ = {rho:.2f} [{interval[0]:.2f}, {interval[1]:.2f}]", fontsize=10
    )
    axis.set_xlabel("influence of the pair (total variation)")
    axis.set_yscale("symlog", linthresh=0.1)
axes[0, 0].set_ylabel("Δ (nats)")
axes[0, 0].set_ylim(0, None)
axes[0, 0].legend(loc="upper left")
run.save_figure(figure, "fig6-influence")

# %%
# NBVAL_CHECK_OUTPUT
for name, (rho, interval) in correlation.items():
    run.claim(
        f"delta-grows-with-influence/{name}",
        "Δ grows with the influence of the two sites on each other (Spearman's ρ).",
        rho,
        interval=interval,
        n=len(results[name]),
        verdict=above(interval),
        why="the interval must lie above zero",
    )

# %% [markdown]
# ## One cross-ratio, read from two sides
# Δ is the gap between two readings of one number. In a joint law the log cross-ratio of a rectangle is the same from site
# i and from site j, so all points lie on the diagonal, as those of the control do. For masked models the two readings
# are related, but they often disagree even on the sign: whether the two tokens attract or repel each other.

# %%
figure, axes = plt.subplots(1, len(masked), figsize=(4.4 * len(masked), 5.5), sharex=True, sharey=True, squeeze=False)
reach = 1.3 * max(results[name][["I_ij", "I_ji"]].abs().max().max() for name in masked)
readings, opposite = {}, {}
for axis, name in zip(axes[0], masked, strict=True):
    frame = results[name]
    opposite[name] = opposite_signs(frame.I_ij, frame.I_ji, floor=floors[name])
    readings[name] = rank_correlation(frame.I_ij, frame.I_ji)
    axis.plot([-reach, reach], [-reach, reach], color="black", linewidth=1, label="a joint: equal", zorder=1)
    for rows, marker, color, label in (
        (~opposite[name], "o", COLORS[0], "same sign"),
        (opposite[name], "^", COLORS[1], "opposite signs"),
    ):
        axis.scatter(
            frame.I_ij[rows], frame.I_ji[rows], s=14, marker=marker, alpha=0.6, color=color, linewidth=0, label=label
        )
    label = f"{control.name}, exact conditionals (n = {len(exact)})"
    axis.scatter(
        exact.I_ij, exact.I_ji, s=24, marker="D", facecolor="none", edgecolor="black", linewidth=0.8, label=label
    )
    axis.set_xscale("symlog", linthresh=0.1)
    axis.set_yscale("symlog", linthresh=0.1)
    axis.set_xlim(-reach, reach)
    axis.set_ylim(-reach, reach)
    axis.set_box_aspect(1)
    axis.set_title(
        f"{short[name]}, n = {len(frame)}\nSpearman ρ = {readings[name]:.2f}, opposite signs in {opposite[name].mean():.0%}",
        fontsize=10,
    )
    axis.set_xlabel("$I_{ij}$, read at site i (nats)")
axes[0, 0].set_ylabel("$I_{ji}$, read at site j (nats)")
figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
run.save_figure(figure, "incompatibility-two-sides")

# %%
# NBVAL_CHECK_OUTPUT
for name in masked:
    frame = results[name]
    interval = bootstrap_interval(frame.I_ij, frame.I_ji, statistic=rank_correlation, groups=frame.passage)
    run.claim(
        f"two-sides/{name}",
        "The log cross-ratio read from either site is not the same number (Spearman's ρ of the two readings; one for a joint).",
        readings[name],
        interval=interval,
        n=len(frame),
        verdict=below(interval, 1.0),
        why="the interval must lie below one",
    )
    interval = bootstrap_interval(opposite[name], groups=frame.passage)
    run.claim(
        f"opposite-sign/{name}",
        "The two readings of a rectangle can have opposite signs (share of rectangles; none for a joint).",
        opposite[name].mean(),
        interval=interval,
        n=len(frame),
        verdict=above(interval),
        why="both readings above the noise floor; the interval must lie above zero",
    )

# %% [markdown]
# ## Where Δ is large
# Δ against the distance of the two sites, and against the size of the cross-ratio as read from site i. Since
# $\Delta = |I_{ij} - I_{ji}|$, it cannot but grow with $|I_{ij}|$: on the dashed line the other site sees nothing at all. What
# is left to ask is the mismatch as a share of the two readings.

# %%
figure, axes = plt.subplots(1, 3, figsize=(12.5, 4.2))
PANELS = (  # along x, up y, their labels
    ("distance", "delta", "token distance |i − j| (sites)", "mean Δ (nats)"),
    ("size", "delta", "$|I_{ij}|$ (nats)", "mean Δ (nats)"),
    ("size", "relative", "$|I_{ij}|$ (nats)", "mean $Δ/(|I_{ij}| + |I_{ji}|)$"),
)
for axis, (x, y, across, up) in zip(axes, PANELS, strict=True):
    for k, (name, color) in enumerate(zip(masked, COLORS, strict=False)):
        frame = results[name].assign(size=results[name].I_ij.abs())
        means = binned_intervals(frame[x], frame[y], groups=frame.passage)
        aside = 0.15 * k if x == "distance" else 0  # the models share distances: one bar beside the other
        label = f"{name} (n = {len(frame)})"
        interval_bars(axis, means.x + aside, means, fmt="o-", markersize=4, color=color, label=label)
    axis.set_xlabel(across)
    axis.set_ylabel(up)
for axis in axes[1:]:
    axis.set_xscale("log")
    plain_ticks(axis.xaxis)
ends = np.array(axes[1].get_xlim())
axes[1].plot(ends, ends, color="0.4", linestyle="--", linewidth=1, label="Δ = $|I_{ij}|$: $I_{ji}$ = 0")
axes[1].set_xlim(ends)
axes[1].set_yscale("log")
plain_ticks(axes[1].yaxis)
axes[0].set_ylim(0, None)
axes[2].set_ylim(0, 1.04)
figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=min(len(masked) + 1, 3))
figure.suptitle(
    "Incompatibility by distance and by size of the cross-ratio (up to six groups of about equal size, 95% bars)",
    fontsize=11,
)
run.save_figure(figure, "incompatibility-where")

# %%
# NBVAL_CHECK_OUTPUT
for name in masked:
    frame = results[name]
    interval = bootstrap_interval(frame.distance, frame.delta, statistic=rank_correlation, groups=frame.passage)
    run.claim(
        f"distance/{name}",
        "Δ against token distance (Spearman's ρ).",
        rank_correlation(frame.distance, frame.delta),
        interval=interval,
        n=len(frame),
        verdict=True if interval[0] > 0 or interval[1] < 0 else "not measurable here",
        why="a dependence holds, of either sign, if the interval does not contain zero",
    )

# %% [markdown]
# ## Temperature and size do not cure it
# For one rectangle temperature is trivial: all log-ratios are divided by τ, so Δ is too (the line). Which rectangles a chain
# meets does depend on τ. Here b and d are drawn from the conditional law at τ, from the same passages and sites at every
# τ. On the scale of the scores, τΔ, the mismatch would be level if the rectangles were alike. The model is that of the
# chains of the other sections.

# %%
model, rows = run.model(run["model"]), []
states = model.states(passages, n=run["n_tokens"])
for temperature in run["temperatures"]:
    rectangles = run.cached(
        sample_rectangles, model, states, run["temperature_rectangles"], seed=run.seed, temperature=temperature
    )
    frame = run.cached(measure_rectangles, model, rectangles, temperature=temperature)
    low, high = bootstrap_interval(frame.delta, groups=frame.passage)
    rows.append({"temperature": temperature, "mean": frame.delta.mean(), "low": low, "high": high})
met = pd.DataFrame(rows).set_index("temperature", drop=False)
scaled = met[["mean", "low", "high"]].mul(met.temperature, axis=0)  # on the scale of the scores

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.0))
count = run["temperature_rectangles"]
for table, style, label in (
    (met, {"fmt": "o-", "color": COLORS[0]}, f"Δ, rectangles met at τ (n = {count} each)"),
    (scaled, {"fmt": "s-", "color": COLORS[1]}, "τΔ of the same: scale of the scores"),
):
    interval_bars(left, met.temperature, table, markersize=5, capsize=3, label=label, **style)
grid = np.array([met.temperature.min(), met.temperature.max()])
left.plot(
    grid, results[model.name].delta.mean() / grid, color="0.4", linestyle="--", linewidth=1,
    label=f"Δ/τ, fixed rectangles of Table 1 (n = {len(results[model.name])})",
)  # fmt: skip
left.set_xscale("log")
left.set_yscale("log")
value_ticks(left, met.temperature)
left.set_xlabel("temperature τ")
left.set_ylabel("mean mismatch (nats)")
left.set_ylim(None, left.get_ylim()[1] * 2.5)
plain_ticks(left.yaxis)
left.legend(loc="upper right", fontsize=8)
left.set_title(f"temperature ({model.name}, 95% bars)")

for name, color in zip(masked, COLORS, strict=False):
    mean, (low, high) = results[name].delta.mean(), intervals[name]
    label = f"{name} (n = {len(results[name])}), 95%"
    right.errorbar(
        parameters[name], mean, yerr=[[mean - low], [high - mean]], fmt="o", capsize=3, color=color, label=label
    )
others = {name: point for name, point in PUBLISHED.items() if point[1] > 0}
right.scatter(
    *zip(*others.values(), strict=True), marker="D", s=26, color="0.5", label="published (300 rectangles each)"
)
for name, (size, delta) in others.items():
    side = -1 if 140 < size < 200 else 1  # ModernBERT's name to the left, where the large ones leave it no room
    right.annotate(
        name.split("/")[-1], (size, delta), xytext=(6 * side, 0), textcoords="offset points", fontsize=7.5,
        color="0.35", ha="right" if side < 0 else "left", va="center",
    )  # fmt: skip
right.set_xscale("log")
right.set_xlim(10, 2_000)
value_ticks(right, [10, 30, 100, 300, 1_000])
right.set_ylim(0, 1.25 * max(0.8, *(high for _, high in intervals.values())))
right.set_xlabel("parameters (millions)")
right.set_ylabel("mean Δ (nats)")
right.legend(loc="lower right", fontsize=8)
right.set_title("model size")
run.save_figure(figure, "incompatibility-persists")

# %%
# NBVAL_CHECK_OUTPUT
lowest = scaled.loc[scaled.low.idxmin()]
run.claim(
    f"persists/{model.name}",
    "Incompatibility persists at every temperature tried, for the rectangles a chain meets there (mean τΔ where it is lowest).",
    lowest["mean"],
    interval=(lowest.low, lowest.high),
    n=len(met) * count,
    verdict=bool(lowest.low > 10 * floors[model.name]),
    why=f"τ = {', '.join(f'{t:g}' for t in met.temperature)}; lowest at τ = {lowest.name:g}; the interval must lie above ten noise floors",
)
sizes, means = [parameters[name] for name in masked], [results[name].delta.mean() for name in masked]
chance = permutation_test(
    (means,), lambda y: rank_correlation(sizes, y), permutation_type="pairings", vectorized=False, rng=run.seed
).pvalue
run.claim(
    "size",
    "The mean Δ grows with the number of parameters (Spearman's ρ over the masked models).",
    rank_correlation(sizes, means),
    published=rank_correlation(*zip(*others.values(), strict=True)),
    kind="exact",
    n=len(masked),
    verdict="not measurable here" if chance > 0.05 else rank_correlation(sizes, means) > 0,
    why=f"in any order of {len(masked)} models a trend as strong has chance {chance:.2f}; published: the five means of Table 1",
)

# %% [markdown]
# ## The most incompatible rectangles
# The three largest Δ of the first model, as text, with the two sites in brackets. Down the page: the passage, b put in, d put
# in, both.

# %%
# NBVAL_CHECK_OUTPUT
model, frame = run.model(masked[0]), results[masked[0]].nlargest(3, "delta")
chosen = drawn[masked[0]].take(frame.index)
corners = [
    marked_texts(model, chosen, b=b, d=d) for b, d in ((False, False), (True, False), (False, True), (True, True))
]
for row, *texts in zip(frame.itertuples(), *corners, strict=True):
    a, b, c, d = model.words([row.a, row.b, row.c, row.d])
    print(f"site {row.i}: {a} → {b}   site {row.j}: {c} → {d}")
    print(f"I_ij = {row.I_ij:.2f}, I_ji = {row.I_ji:.2f}, Δ = {row.delta:.2f} nats")
    for label, text in zip(("a, c", "b, c", "a, d", "b, d"), texts, strict=True):
        print(f"  {label}:  {text}")
    print()

# %%
run.finish()
