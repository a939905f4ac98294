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

from glauber_lib import exact
from glauber_lib.chains import run_chains
from glauber_lib.drift import birth_death_time, scan_drift, states_with_count, token_drift
from glauber_lib.escape import (
    basin_escape_times,
    calibrate_stays,
    longest_stays,
    recurrent_states,
    regress_stays,
    time_count_escapes,
    time_escapes,
)
from glauber_lib.influence import (
    contraction_bound,
    contraction_norms,
    measure_influence,
    replacement_tokens,
    search_influence,
    sufficient_temperature,
    threshold,
)
from glauber_lib.margins import describe_trap, escape_probability, mixing_lower_bound
from glauber_lib.models import IsingModel, RestrictedModel, TabularModel, all_states
from glauber_lib.paper import Run
from glauber_lib.plotting import COLORS, matrix, plain_ticks, reference_line, value_ticks
from glauber_lib.stats import Estimate, bootstrap_estimate, bootstrap_interval, poisson_interval, share_estimate

run = Run("02_bounds", profile)
model = run.model(run["model"])
passages = run.passages(model).text
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

# %% [markdown]
# The matrix of one passage, its tokens on the axes, and the oscillations δ over all passages.

# %%
shown, words = run["shown_temperatures"], model.words(contexts[0])
figure, axes = plt.subplots(1, len(shown) + 1, figsize=(3.9 * (len(shown) + 1), 4.4))
for axis, temperature in zip(axes, shown, strict=False):
    values = influence.by_context[0, list(influence.temperatures).index(temperature)]
    image = matrix(axis, values, words, title=f"$c_{{ij}}$, τ = {temperature:g}, α ≥ {values.sum(0).max():.1f}")
figure.colorbar(image, ax=axes[: len(shown)], shrink=0.7, label="largest total variation found")
delta = influence.oscillation
image = matrix(axes[-1], delta, range(1, n + 1), title=f"$δ_{{ij}}$ over {len(contexts)} passages", vmax=delta.max())
figure.colorbar(image, ax=axes[-1], shrink=0.7, label="largest score oscillation found")
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
crossing = lambda matrices: threshold(influence.temperatures, matrices.sum(1).max(1))  # noqa: E731  (K, n, n)
single = pd.DataFrame(  # each context on its own: one ratio per context, so that their mean has an interval
    [
        {"worst": crossing(c), "typical": crossing(a), "oscillation": sufficient_temperature(d)}
        for c, a, d in zip(
            influence.by_context, influence.average_by_context, influence.oscillation_by_context, strict=True
        )
    ]
)
looser = bootstrap_estimate(single.oscillation / single.worst, unit="contexts")
gap = bootstrap_estimate(single.worst / single.typical, unit="contexts")
run.claim(
    "oscillation-is-looser",
    "The threshold through the score oscillation, ¼ max Σ δ, over the one of the measured α: mean over single contexts.",
    looser.value,
    interval=looser.interval,
    n=looser.n,
    verdict="not measurable here",
    why="at least 1 by the tanh bound when both come from the same pairs; the size is the looseness",
)
run.claim(
    "worst-against-typical",
    "Worst changes contract only at higher temperatures than typical ones: ratio of the two crossings, mean over single contexts.",
    gap.value,
    interval=gap.interval,
    n=gap.n,
    verdict="not measurable here",
    why="at least 1 by definition; that this explains the looseness of the threshold is the paper's conjecture",
)
pd.DataFrame({"temperature at which it crosses 1, at least": thresholds}).round(2)

# %% [markdown]
# What α means in steps: t_mix(¼) ≤ ⌈n/(1 − α) · log(4n)⌉. With the measured α, a lower bound, the bound itself is at least:

# %%
bound = [contraction_bound(a, n) for a in norms.alpha]
pd.DataFrame({"τ": norms.index, "α ≥": norms.alpha.values, "contraction bound is at least (steps)": bound}).round(3)

# %% [markdown]
# ## Typical and worst contexts
# α is a supremum over contexts. How much of it is the choice of context? The same sums for each coherent passage, and for
# what a chain at τ = 1 makes of the passages, with as many replacements. All are lower bounds: not even a bound that used the
# contexts a chain is in could apply below these temperatures.

# %%
walked = run.cached(
    run_chains, model, contexts, n_steps=run["context_steps"], seed=run.seed, progress="contexts of a chain"
).final
tried = run.cached(replacement_tokens, model, walked, run["replacements"], seed=run.seed + 1)
along = run.cached(measure_influence, model, walked, tried, run["temperatures"], progress="influence along a chain")
alphas = {"passages": influence.by_context.sum(2).max(2), "states of a chain": along.by_context.sum(2).max(2)}  # (C, K)
crossings = {name: [threshold(influence.temperatures, row) for row in values] for name, values in alphas.items()}

# %% [markdown]
# And how far is a random search from the supremum? From the best random pairs a climb changes one token at a time, of both states or of the
# site itself, with as many evaluations.

# %%
at_one = list(influence.temperatures).index(1.0)
column = int(influence.maximum[at_one].sum(0).argmax())
searches, candidates = {}, 8
for name, climb in (("random pairs", False), ("climbing", True)):
    options = {"rounds": run["search_rounds"], "candidates": candidates, "climb": climb, "seed": run.seed}
    searches[name] = run.cached(search_influence, model, contexts, column, 1.0, **options, progress=name)

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3.9))
for (name, values), color in zip(alphas.items(), COLORS, strict=False):
    axes[0].loglog(influence.temperatures, values.T, color=color, linewidth=0.8, alpha=0.7)
    axes[0].loglog(influence.temperatures, np.median(values, axis=0), "o-", color=color, markersize=3, label=f"{name}: median of {len(values)}")
axes[0].loglog(influence.temperatures, influence.maximum.sum(1).max(1), "k--", linewidth=1, label="maximum over passages: α ≥")
reference_line(axes[0], 1.0, "contraction needs less", left=True)
axes[0].set(xlabel="temperature τ", ylabel="largest column sum of one context", title=f"Contexts one by one, n = {n}")
axes[0].legend(fontsize=8, loc="lower left")
for (name, (best, _, _)), color in zip(searches.items(), COLORS, strict=False):
    axes[1].plot(candidates * np.arange(1, len(best) + 1), best, color=color, label=f"{name}: {best[-1]:.2f}")
axes[1].set(
    xlabel="pairs of states evaluated",
    ylabel=f"largest column sum found (at most {n - 1})",
    title=f"Search for the supremum, site {column + 1}, τ = 1",
)
axes[1].legend()
run.save_figure(figure, "bounds-contexts")

# %%
# NBVAL_CHECK_OUTPUT
best = {name: found[0][-1] for name, found in searches.items()}
run.claim(
    "search-raises-alpha",
    "An adaptive search finds larger influence than random pairs do: largest column sum found at τ = 1.",
    best["climbing"],
    kind="lower bound",
    n=candidates * run["search_rounds"],
    verdict=bool(best["climbing"] > best["random pairs"]),
    why=f"{best['random pairs']:.2f} by random pairs with as many evaluations; it cannot exceed {n - 1}",
)
median_ratio = lambda passage, chain: np.median(chain) / np.median(passage)  # noqa: E731
columns = [np.array(values) for values in crossings.values()]
ratio = bootstrap_estimate(*columns, statistic=median_ratio, n_resamples=500, unit="contexts")
run.claim(
    "chain-contexts-contract-earlier",
    "Where the column sum of single contexts crosses one: a chain's states over coherent passages, ratio of medians.",
    ratio.value,
    interval=ratio.interval,
    n=ratio.n,
    verdict="not measurable here",
    why=f"medians τ = {np.median(columns[1]):.2g} and {np.median(columns[0]):.2g}; each a maximum over the same few replacements",
)

# %% [markdown]
# ## Exact laboratory
# The model restricted to a few sites of a template and a few words is a small chain that can be solved: its α, mixing time, stationary law
# without any sampling. Beside it a ring of Ising spins, which is reversible, and a random table, which is not. Both theorems must hold, and a reader sees by
# how much they are loose: the upper bound exists only where α < 1, the lower one uses the stickiest single state as basin.

# %%
template = model.tokens(run["lab_template"])
lab_tokens = list(dict.fromkeys(template[run["lab_words"]].tolist()))  # as they stand there: a word alone may be other tokens
small = RestrictedModel(model, template, run["lab_sites"], lab_tokens)
ring = np.roll(np.eye(8), 1, axis=1)
laboratory = {  # name: model, number of sites
    f"{model.name}, {len(run['lab_sites'])} sites, {len(lab_tokens)} words": (run.cached(exact.tabulate, small, small.n_sites), small.n_sites),
    "Ising ring, 8 spins, J = 1": (IsingModel(ring + ring.T), 8),
    "random table, 4 sites, 4 tokens": (TabularModel(1.5 * np.random.default_rng(run.seed).normal(size=(4, 4, 4, 4, 4))), 4),
}
rows = []
for name, (system, sites) in laboratory.items():
    every = all_states(system.n_tokens, sites)
    for temperature in run["lab_temperatures"]:
        chain = exact.transition_matrix(system, sites, temperature)
        law = exact.stationary_law(chain)
        held = next(int(k) for k in np.argsort(chain.diagonal())[::-1] if law[k] <= 0.5)  # the stickiest state
        alpha, gamma = exact.influence(system, sites, temperature).sum(0).max(), exact.margin(system, every[[held]])
        rows.append(
            {
                "system": name,
                "τ": temperature,
                "states": len(every),
                "α": alpha,
                "t_mix": exact.mixing_time(chain, law=law),
                "upper bound": contraction_bound(alpha, sites),
                "lower bound": mixing_lower_bound(gamma, temperature, system.n_tokens) if gamma > 0 else np.nan,
                "1/gap": 1 / exact.spectral_gap(chain),
                "circulation": exact.reversibility_defect(chain, law=law),
                **exact.compare_laws(law, exact.pseudo_likelihood(system, sites, temperature)),
            }
        )
lab = run.save_table(pd.DataFrame(rows), "laboratory")

# %%
figure, axes = plt.subplots(1, len(laboratory), figsize=(4.5 * len(laboratory), 3.9))
for axis, (name, group) in zip(axes, lab.groupby("system", sort=False), strict=True):
    axis.loglog(group["τ"], group["t_mix"], "o-", color="black", markersize=4, label="exact $t_{mix}(1/4)$")
    axis.loglog(group["τ"], group["upper bound"].replace(np.inf, np.nan), "v--", markersize=4, label="contraction bound (α < 1)")
    says = group["lower bound"].where(group["lower bound"] >= 1)  # below one step it says nothing
    axis.loglog(group["τ"], says, "^--", markersize=4, label="margin bound of the stickiest state")
    axis.set(xlabel="temperature τ", ylabel="steps", title=name)
    value_ticks(axis, group["τ"])
    axis.title.set_fontsize(10)
plain_ticks(axes[0].yaxis)
axes[0].legend(fontsize=8)
run.save_figure(figure, "bounds-laboratory")

# %%
# NBVAL_CHECK_OUTPUT
applies = lab[np.isfinite(lab["upper bound"])]
run.claim(
    "contraction-theorem-holds",
    "Exact mixing time over the contraction bound, where α < 1: largest ratio, which must not exceed one.",
    (applies["t_mix"] / applies["upper bound"]).max(),
    kind="exact",
    n=len(applies),
    verdict=bool((applies["t_mix"] <= applies["upper bound"]).all()),
    why=f"smallest ratio {(applies['t_mix'] / applies['upper bound']).min():.2g}: this loose at worst",
)
applies = lab[lab["lower bound"] >= 1]  # below one step the bound says nothing
run.claim(
    "margin-theorem-holds",
    "The margin's lower bound over the exact mixing time, where a margin exists: largest ratio, which must not exceed one.",
    (applies["lower bound"] / applies["t_mix"]).max(),
    kind="exact",
    n=len(applies),
    verdict=bool((applies["lower bound"] <= applies["t_mix"]).all()),
    why=f"basin: the stickiest state of at most half the mass; of {lab['lower bound'].notna().sum()} with a margin the others have bounds under one step",
)

# %% [markdown]
# ## What the chain's law is not
# For incompatible conditionals no formula gives the stationary law. The candidate in use is the pseudo-likelihood, normalised over
# the states: $\prod_i \pi_i(x_i \mid x_{-i})$. On the restricted model both are exact; the paper leaves open how they differ. Part of
# the difference has nothing to do with incompatibility: a product of conditionals is not the joint even where there is one, as
# for the ring of spins (grey).

# %%
system, sites = laboratory[next(iter(laboratory))]
name, every = next(iter(laboratory)), all_states(system.n_tokens, sites)
law = exact.stationary_law(exact.transition_matrix(system, sites))
pseudo = exact.pseudo_likelihood(system, sites)
facts = exact.compare_laws(law, pseudo)
figure, axes = plt.subplots(1, 2, figsize=(10, 3.9))
mine = lab[lab.system == name]
for key, style in (("TV", "o-"), ("KL(p‖q)", "s--"), ("KL(q‖p)", "^:"), ("circulation", "d-.")):
    axes[0].loglog(mine["τ"], mine[key], style, markersize=4, label=key)
joint = lab[lab.system.str.startswith("Ising")]
axes[0].loglog(joint["τ"], joint["TV"], color="0.5", linewidth=1, label="TV of the ring, a joint")
axes[0].set(xlabel="temperature τ", ylabel="TV; KL in nats; net flow", title="p: stationary law, q: normalised pseudo-likelihood")
value_ticks(axes[0], mine["τ"])
axes[0].legend(fontsize=8)
axes[1].loglog(law, pseudo, ".", markersize=3, alpha=0.5)
ends = [min(law.min(), pseudo.min()), 1]
axes[1].plot(ends, ends, color="black", linewidth=1, label="equal")
axes[1].set(xlabel="stationary probability", ylabel="normalised pseudo-likelihood", title=f"{len(every)} sentences, τ = 1, rank correlation {facts['rank correlation']:.3f}")
axes[1].legend()
run.save_figure(figure, "bounds-pseudo-likelihood")

# %%
# NBVAL_CHECK_OUTPUT
at_joint = joint[joint["τ"] == 1.0]["TV"].item()
run.claim(
    "stationary-is-not-pseudo-likelihood",
    "The stationary law of the restricted model is not its pseudo-likelihood: total variation at τ = 1.",
    facts["TV"],
    kind="exact",
    n=len(every),
    verdict=bool(facts["TV"] > 0.01),
    why=f"a product of conditionals is no joint law either way: for the ring of spins, which has one, it is {at_joint:.2f}; rank correlation {facts['rank correlation']:.3f}",
)

# %% [markdown]
# The sentences that differ most, by their share of the total variation:

# %%
most = np.abs(law - pseudo).argsort()[::-1][:6]
pd.DataFrame(
    {"sentence": model.texts(small.fill(every[most])), "stationary": law[most], "pseudo-likelihood": pseudo[most]}
).style.format(precision=4).hide()

# %% [markdown]
# ## A basin made by one token
# A token that pulls its own count up makes a basin although no single state in it is strong. A scan of punctuation and the most frequent
# tokens of the passages, each held by half of the sites and by all but one, finds the candidates. The other sites hold the tokens of a passage.

# %%
grid, size = run["scan_temperatures"], run["drift_sites"]
base = model.states(passages.sample(run["drift_states"], replace=True, random_state=run.seed), n=size)
counts = pd.Series(np.concatenate([model.tokens(text) for text in passages])).value_counts()
marks = [int(t[0]) for t in map(model.tokens, filter(model.reads, ".,;:!?-()'\"&/*%$#")) if len(t) == 1]
scanned = list(dict.fromkeys([*marks, *(int(k) for k in counts.index[: run["scan_frequent"]])]))
scan = pd.concat(
    [
        run.cached(
            scan_drift, model, base[: run["scan_states"]], scanned, count, grid, seed=run.seed,
            progress=f"tokens at {count} of {size} sites",
        )
        for count in run["scan_counts"]
    ],
    ignore_index=True,
)  # fmt: skip
with np.errstate(divide="ignore"):  # at low temperature a token may have no chance at all
    scan["lead"] = np.log(scan.up / scan.down)
lead = scan.groupby(["token", "count", "temperature"]).lead.min().unstack()  # an upper bound of the infimum λ
top = max(run["scan_counts"])
order = lead.xs(top, level="count")[grid[0]].sort_values(ascending=False).index


def loses(token, count):
    """Temperature at which the token's lead over balance is lost."""
    values = lead.loc[(token, count)].to_numpy()
    return "no lead" if values[0] <= 0 else f"{threshold(grid, values + 1):.3g}"  # a lead above the whole grid: nan


rows = []
for token in order[: run["scan_shown"]]:
    of = {k: lead.loc[(token, k)] for k in run["scan_counts"]}
    rows.append(
        {
            "token": model.words([token])[0],
            **{f"log p₊/p₋ at {k}, τ = {grid[0]:g}, at most": values[grid[0]] for k, values in of.items()},
            **{f"escape time allowed at {k} (steps)": np.exp(max(values[grid[0]], 0.0) * (k - 1)) for k, values in of.items()},
            **{f"lost at {k} above τ =": loses(token, k) for k in of},
        }
    )
run.save_table(pd.DataFrame(rows), "drift-scan")

# %% [markdown]
# Certified escape times are at most $e^{\lambda m}$ for a strip of m counts; a minimum over sampled states lies above λ, so what the table allows is an
# upper bound: it can refute a basin, not certify one.
#
# ## Table 2
# Boundary states hold exactly half their sites '!' at random positions. The paper finds the expected count to rise from
# every one of 200 such states, at both temperatures. Beside '!' the strongest token of the scan.

# %%
strongest, exclamation = int(order[0]), int(model.tokens("!")[0])
watched = list(dict.fromkeys([exclamation, *(int(t) for t in order[: run["strip_tokens"]])]))
rows, drifts = [], {}
for token in dict.fromkeys([exclamation, strongest]):
    states = states_with_count(base, token, run["drift_count"], seed=run.seed)
    drift = run.cached(token_drift, model, states, token, run["drift_temperatures"])
    for temperature, group in drift.groupby("temperature"):
        drifts[token, temperature] = group.drift.to_numpy()
        rows.append(
            {
                "token": model.words([token])[0],
                "τ": temperature,
                "states": len(group),
                "min drift": group.drift.min(),
                "median drift": group.drift.median(),
                "median, 95%": "{:.3f}–{:.3f}".format(*bootstrap_interval(group.drift, statistic=np.median)),
                "share positive": (group.drift > 0).mean(),
                "median p₊": group.up.median(),
                "median p₋": group.down.median(),
                "min log p₊/p₋": np.log(group.up.clip(lower=1e-300) / group.down).min(),
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
run.save_table(pd.DataFrame(rows + published), "table2-drift")

# %%
# NBVAL_CHECK_OUTPUT
for (token, temperature), values in drifts.items():
    if token == exclamation:
        median = bootstrap_estimate(values, statistic=np.median, unit="states")
        run.claim(
            f"drift/!/{temperature:g}",
            "From every boundary state the expected count of the token rises: median drift.",
            median.value,
            published=0.080 if temperature == min(run["drift_temperatures"]) else 0.066,
            interval=median.interval,
            n=median.n,
            verdict=bool((values > 0).all()),
            why=f"{(values > 0).mean():.0%} of the states have positive drift, all must",
        )

# %% [markdown]
# ## The strip, and chains that start inside
# The boundary alone certifies nothing: what keeps a chain in is a drift that is positive over a whole strip of counts. For '!' and the strongest
# tokens the strip up to all sites; then chains that start with the strongest token at all sites run until at most a given number of
# sites holds it, by the engine that jumps from move to move. Two predictions: the bound $e^{\lambda m}$, and a birth–death
# chain of the count with the median p₊ and p₋ of each count, as if nothing but the count mattered.

# %%
strip = []
floor, rows = run["strip_floor"], []
strip_counts = sorted({*run["strip_counts"], *range(floor + 1, size + 1)})  # above the floor every count
strip_grid = sorted({*grid, *run["strip_temperatures"]})
for token in watched:
    for count in strip_counts:
        states = states_with_count(base[: run["strip_states"]], token, count, seed=run.seed)
        strip.append(run.cached(token_drift, model, states, token, strip_grid).assign(token=token))
strip = pd.concat(strip, ignore_index=True)
with np.errstate(divide="ignore"):
    strip["lead"] = np.where(strip["count"] < size, np.log(strip.up / strip.down), np.nan)  # no way up from all sites

upper = strip[(strip.token == strongest) & (strip["count"] > floor)]
for temperature in run["strip_temperatures"]:
    mine = upper[upper.temperature == temperature]
    medians = mine.groupby("count")[["up", "down"]].median()
    lam = mine.lead.min()
    timed = run.cached(
        time_count_escapes, model, np.full(size, strongest), strongest, floor, temperature, repeats=run["strip_repeats"],
        n_steps=run["strip_budget"], max_moves=run["strip_moves"], seed=run.seed,
    )  # fmt: skip
    exits, exposure = int(timed.left.sum()), timed.exposure.sum()
    low, high = poisson_interval(exits)
    rows.append(
        {
            "τ": temperature,
            "λ, at most": lam,
            "bound e^λm, at most": np.exp(max(lam, 0.0) * (size - 1 - floor)),
            "single state, exact": 1 / escape_probability(model, np.full(size, strongest), temperature),
            "birth–death estimate": birth_death_time(medians.up, medians.down),
            "observed mean": exposure / exits if exits else np.nan,
            "low": exposure / high,
            "high": exposure / low if low else np.inf,
            "chains": len(timed),
            "left": exits,
        }
    )
escapes = run.save_table(pd.DataFrame(rows), "drift-escape")
escapes

# %%
figure, axes = plt.subplots(1, 3, figsize=(14, 3.9))
for temperature, color in zip(run["shown_scan"], COLORS, strict=False):
    values = lead.xs(top, level="count")[temperature].sort_values(ascending=False).to_numpy()
    axes[0].plot(values, ".", markersize=3, color=color, label=f"τ = {temperature:g}: {np.mean(values > 0):.0%} above balance")
reference_line(axes[0], 0.0, "pulled out below, in above")
axes[0].set(
    yscale="symlog",
    xlabel=f"rank among {len(scanned)} tokens",
    ylabel="log p₊/p₋ (linear within ±2)",
    title=f"Tokens at {top} of {size} sites",
)
axes[0].set_ylim(top=4)
axes[0].legend(fontsize=8)
coldest = grid[0]
for token, color in zip(watched, COLORS, strict=False):
    mine = strip[(strip.token == token) & (strip.temperature == coldest) & (strip["count"] < size)]
    ratio = mine.groupby("count").lead.agg(["min", "median"])
    axes[1].plot(ratio.index, ratio["median"], "o-", markersize=4, color=color, label=f"{model.words([token])[0]}")
    axes[1].plot(ratio.index, ratio["min"], "v:", markersize=4, color=color)
reference_line(axes[1], 0.0, "balance", left=True)
axes[1].set(
    yscale="symlog",
    xlabel="number of sites that hold the token",
    ylabel="log p₊/p₋ (dot: median, triangle: min)",
    title=f"A strip of counts, τ = {coldest:g}, {run['strip_states']} states each",
)
axes[1].set_ylim(top=4)
axes[1].legend(fontsize=8, title="token", ncols=2)
drawn = escapes[escapes.left > 0]
bars = np.clip([drawn["observed mean"] - drawn.low, drawn.high - drawn["observed mean"]], 0, None)
axes[2].errorbar(drawn["τ"], drawn["observed mean"], yerr=bars, fmt="s", capsize=2, label=f"observed, {run['strip_repeats']} chains, 95%")
none = escapes[escapes.left == 0]
axes[2].plot(none["τ"], none.low, "^", color=COLORS[0], label="no chain left: lower limit")
axes[2].plot(escapes["τ"], escapes["birth–death estimate"], "o--", markersize=4, color=COLORS[1], label="birth–death estimate")
axes[2].plot(escapes["τ"], escapes["single state, exact"], "d-.", markersize=4, color=COLORS[2], label="first move, exact")
axes[2].plot(escapes["τ"], escapes["bound e^λm, at most"], "v:", markersize=4, color=COLORS[3], label="$e^{λm}$, at most")
axes[2].set(
    yscale="log",
    xlabel="temperature τ",
    ylabel="steps",
    title=f"From {model.words([strongest])[0]} at all sites until at most {floor} hold it",
)
value_ticks(axes[2], escapes["τ"])
axes[2].legend(fontsize=8)
run.save_figure(figure, "bounds-drift")

# %%
# NBVAL_CHECK_OUTPUT
inner = strip[(strip.temperature == coldest) & strip["count"].between(floor + 1, size - 1)]
least = inner.groupby("token").lead.min()  # upper bounds of λ
run.claim(
    "some-token-makes-a-basin",
    f"Some token pulls its own count up over the strip from {floor + 1} to {size - 1} of {size} sites: largest λ of the {len(watched)} tokens tried, τ = {coldest:g}.",
    least.max(),
    kind="upper bound",
    n=len(inner),
    verdict=False if least.max() <= 0 else "not measurable here",
    why=f"of {', '.join(model.words(watched))}; λ is a minimum of log p₊/p₋ over sampled states and must be positive; the other {len(scanned) - len(watched)} tokens have less at {top} sites",
)
first, last = escapes.iloc[0], escapes.iloc[-1]
run.claim(
    "token-basin-escape",
    f"Chains that start with {model.words([strongest])[0]} at every site are held far longer when colder: mean steps until at most {floor} sites hold it, τ = {first['τ']:g}.",
    first["observed mean"] if first.left else first.low,
    interval=(first.low, first.high) if first.left else None,
    kind="estimate" if first.left == first.chains else "lower bound" if not first.left else "censored",
    n=int(first.chains),
    verdict=bool(first.low > 10 * last.high) if last.left else "not measurable here",
    why=f"holds if at least ten times as long as at τ = {last['τ']:g}, {last['observed mean']:.3g}; the count alone predicts {first['birth–death estimate']:.3g} and {escapes['birth–death estimate'].iloc[-1]:.3g}",
)

# %% [markdown]
# ## Margins and escape
# Chains at low temperature settle in states they leave rarely. For a single state the one-step escape probability is
# exact, $\frac1n\sum_i (1 - \pi_i(x_i))$, and so is its mean holding time; for a set of states between which a chain hops the mean time to leave
# it solves $(I - Q)h = 1$. The paper's bound $(|V|-1)e^{-\gamma/\tau}$ uses the smallest gap alone. States are found by
# cold chains: those held longest, and those a chain keeps returning to.

# %%
cold = np.resize(run["trap_temperatures"], run["trap_chains"])
start = model.states(passages.sample(run["trap_chains"], random_state=run.seed + 1), n=n)
trace = run.cached(
    run_chains, model, start, n_steps=run["trap_steps"], temperature=cold, seed=run.seed, progress="cold chains"
)
traps = longest_stays(trace, run["trap_states"]).drop_duplicates(["temperature", "state"], ignore_index=True)
basins = [
    (chain, basin)
    for chain in range(run["trap_chains"])
    for basin in [recurrent_states(trace, chain, run["trap_steps"] // 2, run["basin_states"])]
    if len(basin) > 1
]

# %% [markdown]
# Every state and every set is timed anew: independent chains from it, step by step, until they leave or the budget ends.

# %%
options = {"repeats": run["escape_repeats"], "n_steps": run["escape_steps"]}
rows, timed = [], []
for k, trap in enumerate(traps.itertuples()):
    state = np.array(trap.state)
    facts = describe_trap(model, state, trap.temperature)
    observed = run.cached(time_escapes, model, state, state[None], trap.temperature, **options, seed=run.seed + 1 + k)
    timed.append(observed.assign(escape=facts["escape"], group=k, kind="state"))
    rows.append(
        {
            "text": model.texts(state[None])[0], "τ": trap.temperature, "states": 1, "type": facts["type"],
            "mean gap": facts["mean_gap"], "min gap": facts["min_gap"],
            "mean stay by the bound": 1 / facts["bound"] if facts["min_gap"] > 0 else np.nan,
            "mean stay, exact": 1 / facts["escape"],
        }
    )  # fmt: skip
for k, (chain, basin) in enumerate(basins, start=len(rows)):
    mean = run.cached(basin_escape_times, model, basin, cold[chain])[0]
    observed = run.cached(time_escapes, model, basin[0], basin, cold[chain], **options, seed=run.seed + 1 + k)
    timed.append(observed.assign(escape=1 / mean, group=k, kind="set"))
    rows.append(
        {"text": model.texts(basin[:1])[0], "τ": cold[chain], "states": len(basin), "type": "recurrent set", "mean stay, exact": mean}
    )  # fmt: skip
timed = pd.concat(timed, ignore_index=True)
held = timed.groupby("group").agg(exposure=("exposure", "sum"), left=("left", "sum"), kind=("kind", "first"))
limits = np.array([poisson_interval(k) for k in held.left])
escape_table = pd.DataFrame(rows)
with np.errstate(divide="ignore"):
    escape_table["observed mean"] = held.exposure / held.left.where(held.left > 0)
    escape_table["low"], escape_table["high"] = held.exposure / limits[:, 1], held.exposure / limits[:, 0]
escape_table["chains left"] = [f"{k} of {options['repeats']}" for k in held.left]
escape_table["agree"] = escape_table["mean stay, exact"].between(escape_table.low, escape_table.high)
escape_table = run.save_table(escape_table.sort_values("mean stay, exact", ascending=False, ignore_index=True), "escape")
escape_table.head(12)

# %%
single, sets = timed[timed.kind == "state"], timed[timed.kind == "set"]
fit = regress_stays(single)
figure, axes = plt.subplots(1, 2, figsize=(11, 4.3), sharey=True)
for kind, color, marker in (("state", COLORS[0], "o"), ("set", COLORS[1], "s")):
    mine = escape_table[(escape_table.states > 1) == (kind == "set")]
    for axis, column in ((axes[0], "mean stay, exact"), (axes[1], "mean stay by the bound")):
        shown = mine[mine[column].notna()]
        seen, unseen = shown[shown["observed mean"].notna()], shown[shown["observed mean"].isna()]
        label = f"one state ({len(shown)})" if kind == "state" else f"recurrent set of states ({len(shown)})"
        bars = [seen["observed mean"] - seen.low, seen.high - seen["observed mean"]]
        if len(shown):
            axis.errorbar(
                seen[column], seen["observed mean"], yerr=bars, fmt=marker, color=color, markersize=4, capsize=2,
                elinewidth=0.8, label=f"{label}, 95%",
            )  # fmt: skip
        if len(unseen):
            axis.plot(unseen[column], unseen.low, "^", color=color, markerfacecolor="none", label=f"no chain left: lower limit ({len(unseen)})")
ends = np.array([1, 2 * escape_table["mean stay, exact"].max()])
axes[0].plot(ends, ends, color="black", linewidth=1, label="observed = predicted")
axes[0].plot(
    ends, ends ** fit["slope"] * fit["center"] ** (fit["slope"] - 1) / fit["ratio"], "--", color=COLORS[0], linewidth=1,
    label=f"regression: slope {fit['slope']:.3f} [{fit['slope_interval'][0]:.3f}, {fit['slope_interval'][1]:.3f}]",
)  # fmt: skip
axes[0].set(
    xscale="log",
    yscale="log",
    xlabel="predicted mean stay (steps), exact from the conditionals",
    ylabel=f"observed mean stay of {options['repeats']} chains (steps)",
    title=f"τ = {', '.join(f'{t:g}' for t in run['trap_temperatures'])}, n = {n}, budget {options['n_steps']:,} steps",
)
axes[0].legend(fontsize=8)
axes[1].axvline(1.0, color="0.4", linestyle="--", linewidth=1, label="one step: left of it the bound says nothing")
axes[1].set(
    xscale="log",
    xlabel="mean stay by the worst-case bound $e^{γ/τ}/(|V|-1)$ (steps)",
    title=f"The paper's bound; {int((escape_table['min gap'] <= 0).sum())} states have no margin",
)
axes[1].legend(fontsize=8, loc="upper left")
run.save_figure(figure, "bounds-escape")

# %% [markdown]
# The single states pooled by half a decade of predicted stay:

# %%
calibrate_stays(single).assign(agree=lambda t: t.predicted.between(t.low, t.high)).round(1)

# %%
# NBVAL_CHECK_OUTPUT
contains = lambda interval: interval[0] <= 1 <= interval[1]  # noqa: E731
run.claim(
    "escape-predicts-stay",
    "The exact escape probability predicts holding times, which no bound of the paper does: slope of observed on predicted escape, log–log, censored stays included.",
    fit["slope"],
    interval=fit["slope_interval"],
    n=len(single),
    verdict=bool(contains(fit["slope_interval"])),
    why=f"the interval must contain 1; observed over predicted escapes {fit['ratio']:.3f} [{fit['ratio_interval'][0]:.3f}, {fit['ratio_interval'][1]:.3f}]; exits over {fit['decades']:.1f} orders of magnitude; {1 - single.left.mean():.0%} censored",
)
exits, expected = int(sets.left.sum()), (sets.exposure * sets.escape).sum()
low, high = poisson_interval(exits)
observed = (
    Estimate(exits / expected, (low / expected, high / expected), len(sets), "chains")
    if len(sets)
    else Estimate(np.nan, None, 0, "chains")
)
run.claim(
    "recurrent-set-escape",
    "The linear solve over a recurrent set of states predicts how long chains stay in it: observed over expected exits.",
    observed.value,
    interval=observed.interval,
    n=observed.n,
    verdict=contains(observed.interval) if exits else "not measurable here",
    why=f"{len(basins)} sets of 2 to {run['basin_states']} states; exits counted as if memoryless",
)
lonely = escape_table[escape_table.states == 1]
vacuous = share_estimate(int((~(lonely["mean stay by the bound"] > 1)).sum()), len(lonely), unit="states")
run.claim(
    "worst-case-bound-is-loose",
    "The worst-case bound says nothing about the longest-held states: share for which it allows a stay of one step, or does not apply.",
    vacuous.value,
    published=1.0,
    interval=vacuous.interval,
    n=vacuous.n,
    verdict=vacuous.value > 0.5,
    why=f"every token is the argmax, as the theorem asks, in {(lonely['min gap'] > 0).sum()} of {len(lonely)}",
)

# %%
run.finish()
