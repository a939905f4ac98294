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
# # Section 5: how fast, how stuck
#
# **Claims.** If every token's influence on the others' conditionals is small, two coupled chains contract and the chain
# mixes in O(n log n): this holds above a temperature. Where every token is the clear favourite of its context,
# the chain leaves only after a time that is exponential in margin over temperature; and a token that pulls its own count up
# ('!') makes a basin without any single strong state.

# %% tags=["parameters"]
profile = "mini"

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from glauber_lib.bounds import (
    calibrate_stays,
    contraction_bound,
    contraction_norms,
    escape_bound,
    measure_influence,
    observed_stays,
    poisson_interval,
    replacement_tokens,
    score_gaps,
    states_with_count,
    sufficient_temperature,
    threshold,
    token_drift,
)
from glauber_lib.chains import run_chains
from glauber_lib.paper import Run, load_passages
from glauber_lib.plotting import matrix, reference_line

run = Run("02_bounds", profile)
passages = load_passages().text
model = run.model(run["model"])
n = run["n_tokens"]

# %% [markdown]
# ## Influence
# $c_{ij}(\tau)$ is the largest total variation that a change at site $j$ causes in the conditional of site $i$;
# $\alpha(\tau) = \max_j \sum_i c_{ij}$. The suprema run over all sentences; what is measured is the maximum over a few
# coherent passages and, at each site, replacement tokens half from the model's best predictions and half random: a **lower bound**.

# %%
contexts = model.states(passages.sample(run["contexts"], random_state=run.seed), n=n)
replacements = run.cached(replacement_tokens, model, contexts, run["replacements"], seed=run.seed)
influence = run.cached(measure_influence, model, contexts, replacements, run["temperatures"], progress="influence")

# %%
shown = run["shown_temperatures"]
figure, axes = plt.subplots(1, len(shown), figsize=(3.9 * len(shown), 4.1))
for axis, temperature in zip(axes, shown, strict=True):
    k = list(influence.temperatures).index(temperature)
    image = matrix(
        axis,
        influence.maximum[k],
        range(1, n + 1),
        title=f"τ = {temperature:g}, α ≥ {influence.maximum[k].sum(0).max():.1f}",
    )
figure.colorbar(image, ax=axes, shrink=0.8, label="largest total variation found: $c_{ij}$ (lower bound)")
run.save_figure(figure, "bounds-influence")

# %% [markdown]
# Four conditions, each sufficient for fast mixing where its number is below one: the paper's column sum α, the
# row sum (Dobrushin), spectral norm and radius (Hayes). Beside them the same for typical instead of worst changes, and
# the bound through the oscillation of the scores, TV ≤ tanh(δ/4τ). All are computed from measured maxima, so the curves, and the temperatures
# at which they cross one, are lower bounds of the true ones: they can refute fast mixing by these theorems, not prove it.

# %%
norms = pd.DataFrame([contraction_norms(c) for c in influence.maximum], index=influence.temperatures)
typical = np.array([c.sum(0).max() for c in influence.average])
by_oscillation = np.array([np.tanh(influence.oscillation / (4 * t)).sum(0).max() for t in influence.temperatures])
thresholds = {name: threshold(influence.temperatures, norms[name]) for name in norms}
thresholds["typical change"] = threshold(influence.temperatures, typical)
thresholds["oscillation, tanh"] = threshold(influence.temperatures, by_oscillation)
thresholds["oscillation, ¼ max Σ δ"] = sufficient_temperature(influence.oscillation)

figure, axes = plt.subplots(1, 2, figsize=(10, 3.9))
for name in norms:
    axes[0].loglog(
        norms.index, norms[name], "o-", markersize=3, label=f"{name}: crosses 1 at τ = {thresholds[name]:.2g}"
    )
axes[0].loglog(
    norms.index, typical, "s--", markersize=3, label=f"typical change: at τ = {thresholds['typical change']:.2g}"
)
axes[0].loglog(
    norms.index, by_oscillation, "^:", markersize=3, label=f"tanh(δ/4τ): at τ = {thresholds['oscillation, tanh']:.2g}"
)
reference_line(axes[0], 1.0, "contraction needs less", left=True)
axes[0].set(
    xlabel="temperature τ", ylabel="size of the measured influence matrix", title=f"Sufficient conditions, n = {n}"
)
axes[0].legend(fontsize=7, loc="lower left")
points = influence.points.sample(min(4_000, len(influence.points)), random_state=0)
axes[1].scatter(points.delta / (4 * points.temperature), points.tv, s=4, alpha=0.3, linewidth=0)
grid = np.geomspace(
    max(1e-4, (points.delta / 4 / points.temperature).min()), (points.delta / 4 / points.temperature).max(), 200
)
axes[1].plot(grid, np.tanh(grid), color="black", label="bound tanh(δ/4τ)")
axes[1].set(
    xscale="log",
    yscale="log",
    ylim=(1e-6, 2),
    xlabel="δ/4τ of the changed pair",
    ylabel="total variation",
    title="Measured influence under its bound",
)
axes[1].legend(loc="lower right")
run.save_figure(figure, "bounds-thresholds")

# %%
# NBVAL_CHECK_OUTPUT
run.claim(
    "tanh-bound",
    "Total variation never exceeds tanh(δ/4τ): largest excess over all pairs tried.",
    influence.excess,
    kind="exact",
    n=influence.n_pairs * n * (n - 1) * len(influence.temperatures),
    verdict=bool(influence.excess < 1e-6),
    why="negative: every point lies under the curve",
)
tau = thresholds["alpha"]
run.claim(
    "contraction-threshold",
    "Above a finite temperature α < 1 and the chain mixes in O(n log n): where the measured α crosses one.",
    tau,
    kind="lower bound",
    n=influence.n_pairs,
    verdict="not measurable here",
    why="a maximum over sampled contexts: below this temperature the theorem does not apply, the true threshold may be higher",
)
ratio = sufficient_temperature(influence.oscillation) / tau
run.claim(
    "oscillation-is-looser",
    "The threshold through the score oscillation, ¼ max Σ δ, over the one of the measured α.",
    ratio,
    kind="estimate",
    n=influence.n_pairs,
    verdict="not measurable here" if np.isnan(ratio) else bool(ratio >= 1),
    why="at least 1 by the tanh bound when both come from the same pairs; the size is the looseness",
)
gap = tau / thresholds["typical change"]
run.claim(
    "worst-against-typical",
    "Typical changes would contract at lower temperatures than worst ones: ratio of the two crossings.",
    gap,
    kind="estimate",
    n=influence.n_pairs,
    verdict="not measurable here",
    why="at least 1 by definition; that this explains the looseness of the threshold is the paper's conjecture",
)
pd.DataFrame({"temperature at which it crosses 1": thresholds}).round(2)

# %% [markdown]
# What α means in steps: t_mix(¼) ≤ ⌈n/(1 − α) · log(4n)⌉. With the measured α, a lower bound, the bound itself is at least:

# %%
bound = [contraction_bound(a, n) for a in norms.alpha]
pd.DataFrame({"τ": norms.index, "α ≥": norms.alpha.values, "contraction bound is at least (steps)": bound}).round(3)

# %% [markdown]
# ## Table 2: a basin made by one token
# Boundary states hold exactly half their sites '!' at random positions. The paper finds the expected count to rise from
# every one of 200 such states, at both temperatures. The other sites hold the tokens of a passage.

# %%
base = model.states(passages.sample(run["drift_states"], replace=True, random_state=run.seed), n=run["drift_sites"])
rows = []
for word in run["drift_tokens"]:
    token = int(model.tokens(word)[0])
    states = states_with_count(base, token, run["drift_count"], seed=run.seed)
    drift = run.cached(token_drift, model, states, token, run["drift_temperatures"])
    for temperature, group in drift.groupby("temperature"):
        rows.append(
            {
                "token": word,
                "τ": temperature,
                "states": len(group),
                "min drift": group.drift.min(),
                "median drift": group.drift.median(),
                "share positive": (group.drift > 0).mean(),
                "median p₊": group.up.median(),
                "median p₋": group.down.median(),
                "min log p₊/p₋": np.log(group.up / group.down).min(),
            }
        )
published = [
    {
        "token": "! (bert-base-uncased, published)",
        "τ": label,
        "states": 200,
        "min drift": low,
        "median drift": middle,
        "share positive": 1.0,
    }
    for label, low, middle in (("lower", 0.042, 0.080), ("higher", 0.024, 0.066))
]
table2 = run.save_table(pd.DataFrame(rows + published), "table2-drift")
table2

# %%
# NBVAL_CHECK_OUTPUT
for row in rows:
    if row["token"] == run["drift_tokens"][0]:
        run.claim(
            f"drift/{row['token']}/{row['τ']:g}",
            "From every boundary state the expected count of the token rises: median drift.",
            row["median drift"],
            published=0.080 if row["τ"] == min(run["drift_temperatures"]) else 0.066,
            n=row["states"],
            verdict=bool(row["share positive"] == 1),
            why=f"{row['share positive']:.0%} of the states have positive drift, all must",
        )

# %% [markdown]
# ## Margins and escape
# Chains at low temperature settle in states they leave rarely. For a single state the one-step escape probability is
# exact, $\frac1n\sum_i (1 - \pi_i(x_i))$, and so is its mean holding time; the paper's bound $(|V|-1)e^{-\gamma/\tau}$ uses
# the smallest gap alone. The longest stays, from the first look:

# %%
cold = np.resize(run["trap_temperatures"], run["trap_chains"])
start = model.states(passages.sample(run["trap_chains"], random_state=run.seed + 1), n=n)
trace = run.cached(
    run_chains, model, start, n_steps=run["trap_steps"], temperature=cold, seed=run.seed, progress="cold chains"
)
stays = run.cached(observed_stays, model, trace, every=run["trap_look_every"])
longest = stays.sort_values("exposure", ascending=False).drop_duplicates("state").head(6)
traps = pd.DataFrame(
    [
        {
            "text": model.texts(np.array([row.state]))[0],
            "τ": row.temperature,
            "observed (steps)": f"{'' if row.left else '> '}{row.exposure}",
            "predicted mean stay": 1 / row.escape,
            "mean gap": gaps.mean(),
            "min gap": gaps.min(),
            "bound on escape": escape_bound(gaps.min(), row.temperature, model.n_tokens),
        }
        for row in longest.itertuples()
        for gaps in [score_gaps(model, row.state)]
    ]
)
traps.style.format(precision=3).hide()

# %% [markdown]
# Prediction against observation: the chains are looked at at fixed times, and from there each stay is followed until the state is left or the
# run ends. Stays of similar predicted escape probability are pooled; a group's observed mean is its steps per exit, so
# stays cut off by the end count as what they are.

# %%
groups = calibrate_stays(stays)
figure, axis = plt.subplots(figsize=(5.8, 4.3))
for left, marker, label in ((True, "o", "one stay"), (False, "^", "one stay, cut off by the end")):
    some = stays[stays.left == left]
    axis.scatter(
        1 / some.escape, some.exposure, s=12, marker=marker, color="0.7", linewidth=0, label=f"{label} ({len(some)})"
    )
finite = groups[np.isfinite(groups.observed)]
bars = [finite.observed - finite.low, finite.high - finite.observed]
axis.errorbar(finite.predicted, finite.observed, yerr=bars, fmt="s", capsize=2, label="group of stays, 95%")
ends = np.array([1, 2 * max((1 / stays.escape).max(), stays.exposure.max())])
axis.plot(ends, ends, color="black", linewidth=1, label="observed = predicted")
axis.set(
    xscale="log",
    yscale="log",
    xlabel="predicted mean stay (steps), exact from the conditionals",
    ylabel="observed stay (steps)",
    title=f"How long a state holds, τ = {', '.join(f'{t:g}' for t in run['trap_temperatures'])}, n = {n}",
)
axis.legend(fontsize=8)
run.save_figure(figure, "bounds-escape")

# %%
# NBVAL_CHECK_OUTPUT
expected, exits = (stays.exposure * stays.escape).sum(), stays.left.sum()
interval = tuple(value / expected for value in poisson_interval(exits))
run.claim(
    "escape-predicts-stay",
    "The exact escape probability predicts holding times, which no bound of the paper does: observed over expected exits.",
    exits / expected,
    interval=interval,
    n=len(stays),
    verdict=bool(interval[0] <= 1 <= interval[1]),
    why=f"predicted stays span {np.log10(stays.escape.max() / stays.escape.min()):.1f} orders of magnitude",
)
applies = traps["min gap"] > 0
vacuous = ((traps["bound on escape"] >= 1) | ~applies).mean()
run.claim(
    "worst-case-bound-is-loose",
    "The worst-case bound says nothing about the longest-held states: share for which it is one or more, or does not apply.",
    vacuous,
    published=1.0,
    n=len(traps),
    verdict=bool(vacuous == 1),
    why=f"every token is the argmax, as the theorem asks, in {applies.sum()} of {len(traps)}",
)

# %%
run.finish()
