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
# # Section 6.1: where the crossover lies
#
# **Claims.** At high temperature the text drifts away from its start in O(n log n) steps: the drift at a fixed
# time grows logarithmically with n, and the time to a fixed distance follows a·n log n. Two maximally
# coupled chains meet fast above a temperature and not at all below; the transition is smooth, and its centre moves up with n.

# %% tags=["parameters"]
profile = "mini"

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import entropy
from sklearn.decomposition import PCA

from glauber_lib import exact
from glauber_lib.chains import run_chains
from glauber_lib.couplings import coalesce
from glauber_lib.crossover import coalescence_bound, compare_growth, transition_temperatures
from glauber_lib.influence import (
    contraction_bound,
    measure_influence,
    replacement_tokens,
    sufficient_temperature,
    threshold,
)
from glauber_lib.instruments import Embedder
from glauber_lib.margins import log_pseudo_likelihood
from glauber_lib.models import RestrictedModel, all_states
from glauber_lib.paper import Run
from glauber_lib.plotting import COLORS, interval_band, interval_bars, plain_ticks, reference_line, value_ticks
from glauber_lib.readings import cosine_distance, embed_states
from glauber_lib.stats import (
    Estimate,
    above,
    bootstrap_estimate,
    convergence,
    mean_band,
    percentile_interval,
    rank_correlation,
    share_estimate,
)
from glauber_lib.survival import median_survival, survival_curve

run = Run("03_crossover", profile)
model = run.model(run["model"])
passages = run.passages(model).text
name = run["embedder"]
embedder = Embedder(name, revision=run.revision(name), remote_code=run["remote_code"].get(name))

# %% [markdown]
# ## Semantic drift
# $d(t) = 1 - \cos(e(x_0), e(x_t))$, with $e$ the embedding of the profile (all-MiniLM-L6-v2 in place of Jina v4 by default),
# from passages truncated to n tokens.

# %%
lengths, trials = run["drift_lengths"], run["trials"]
steps = np.unique(np.concatenate([[0], np.geomspace(1, run["drift_steps"], 40).round().astype(int), run["drift_at"]]))
chosen = passages.sample(trials, random_state=run.seed)
drift = {}
for n in lengths:
    trace = run.cached(
        run_chains,
        model,
        model.states(chosen, n=n),
        n_steps=run["drift_steps"],
        temperature=run["temperature"],
        seed=run.seed,
        progress=f"n = {n}",
    )
    vectors = run.cached(embed_states, model, embedder, trace.states(steps))
    drift[n] = cosine_distance(vectors, vectors[0]).T  # (trials, steps)

# %% [markdown]
# A hitting time is known up to the recorded steps around it (a geometric grid), and for trials that never get to the distance
# d*, as more than the length of the run. Both are used as they are: Kaplan–Meier medians in the figure, maximum likelihood for the
# growth laws a·f(n), with log-normal scatter between trials.

# %%
hitting = []
for level in run["thresholds"]:
    for n in lengths:
        reached = drift[n] >= level
        index, hit = reached.argmax(1), reached.any(1)
        low = np.where(hit, steps[np.maximum(index - 1, 0)], run["drift_steps"])
        hitting.append(pd.DataFrame({"d*": level, "n": n, "low": low, "high": np.where(hit, steps[index], np.inf)}))
hitting = pd.concat(hitting, ignore_index=True)
hitting["censored"] = np.isinf(hitting.high)
growth = {level: compare_growth(g.n, g.low, g.high, seed=run.seed) for level, g in hitting.groupby("d*")}

# %%
figure, axes = plt.subplots(1, 3, figsize=(13.5, 3.9))
for n, color in zip(lengths, COLORS, strict=False):
    interval_band(axes[0], np.maximum(steps, 0.7), mean_band(drift[n], within=(0, 1)), label=f"n = {n}", color=color)
axes[0].set(
    xscale="log",
    xlabel="step t (left edge: start)",
    ylabel="semantic drift d(t)",
    title=f"Saturation, τ = {run['temperature']:g}, {trials} trials, 95% bands",
)
axes[0].legend()
for t, color in zip(run["drift_at"], COLORS, strict=False):
    means = mean_band(np.stack([drift[n][:, list(steps).index(t)] for n in lengths], axis=1))
    slope, offset = np.polyfit(np.log(lengths), means["mean"], 1)
    interval_bars(axes[1], lengths, means, color=color, label=f"t = {t}: slope {slope:+.2f} per log n")
    axes[1].plot(lengths, offset + slope * np.log(lengths), "--", color=color, linewidth=1)
axes[1].set(
    xscale="log",
    xlabel="sequence length n",
    ylabel="drift at fixed t",
    title=f"Drift against n, {trials} trials, 95% of the mean",
)
value_ticks(axes[1], lengths)
axes[1].legend()
fine = np.linspace(min(lengths), max(lengths), 100)
for (level, fit), color in zip(growth.items(), COLORS, strict=False):
    law, group = fit.loc["n log n"], hitting[hitting["d*"] == level]
    median = [median_survival(g.high.clip(upper=run["drift_steps"]), ~g.censored) for _, g in group.groupby("n")]
    axes[2].plot(
        lengths, median, "o", color=color, label=f"d* = {level:g}: a = {law.a:.2f} [{law.low:.2f}, {law.high:.2f}]"
    )
    axes[2].plot(fine, law.a * fine * np.log(fine), "--", color=color, linewidth=1)
axes[2].set(
    xlabel="sequence length n",
    ylabel="median hitting time (steps)",
    title=f"Time to distance d*, {trials} trials, fits a·n log n",
)
axes[2].legend()
run.save_figure(figure, "fig3-scaling")

# %%
# NBVAL_CHECK_OUTPUT
slopes = {}
for t in run["drift_at"]:
    at = np.stack([drift[n][:, list(steps).index(t)] for n in lengths], axis=1)  # (trials, lengths)
    fit = lambda *columns: np.polyfit(np.log(lengths), [np.mean(c) for c in columns], 1)[0]  # noqa: E731
    slopes[t] = bootstrap_estimate(*at.T, statistic=fit, n_resamples=500, unit="trials")
    run.claim(
        f"drift-against-n/{t}",
        "At a fixed time the drift grows with n: slope per unit of log n.",
        slopes[t].value,
        interval=slopes[t].interval,
        n=slopes[t].n,
        verdict=above(slopes[t].interval),
        why="must lie above zero; that the growth is logarithmic is not tested",
    )
for level, fit in growth.items():
    excess = (fit.aic - fit.aic.min()).round(1)
    close = [law for law, value in excess.items() if value <= 2]
    censored = hitting[hitting["d*"] == level].censored
    run.claim(
        f"hitting-time/{level:g}",
        "The time to a fixed distance grows like a·n log n: a.",
        fit.a["n log n"],
        interval=(fit.low["n log n"], fit.high["n log n"]),
        kind="censored" if censored.any() else "estimate",
        n=trials * len(lengths),
        verdict=close == ["n log n"] if "n log n" not in close or len(close) == 1 else "not measurable here",
        why=f"within 2 AIC of the best: {', '.join(close)}; n log n is {excess['n log n']} above it; {censored.mean():.0%} censored",
    )

near = [fit.aic["n log n"] - fit.aic.min() <= 2 for fit in growth.values()]
run.claim(
    "hitting-time-shape",
    "The shape does not depend on the distance d*: share of thresholds for which n log n is within 2 AIC of the best law.",
    np.mean(near),
    kind="exact",
    n=len(near),
    verdict=bool(all(near)),
    why=f"d* = {', '.join(f'{level:g}' for level in growth)}; laws compared: n, n log n, n², √n",
)

# %% [markdown]
# Growth laws compared by AIC (smaller is better; differences under 2 do not decide).

# %%
pd.concat(growth, names=["d*", "law"]).round(2)

# %% [markdown]
# ## Coalescence
# Two chains from different passages update the same site each step, with tokens drawn by a maximal coupling. All
# temperatures of one length run as one batch, with the same pairs of passages and the same budget of steps for every n:
# longer texts have less time per site.

# %%
temperatures, pairs = np.array(run["coupling_temperatures"]), run["coupling_pairs"]
rng = np.random.default_rng(run.seed)
first, second = rng.permutation(len(passages))[: 2 * pairs].reshape(2, pairs)
coupling, distance, together = [], {}, {}
for n in run["coupling_lengths"]:
    states = model.states(passages, n=n)
    result = run.cached(
        coalesce,
        model,
        np.tile(states[first], (len(temperatures), 1)),
        np.tile(states[second], (len(temperatures), 1)),
        temperature=np.repeat(temperatures, pairs),
        n_steps=run["coupling_steps"],
        seed=run.seed,
        progress=f"pairs, n = {n}",
    )
    together[n] = result
    distance[n] = result.hamming.reshape(-1, len(temperatures), pairs).mean(2) / n  # (steps + 1, temperatures)
    columns = {"temperature": np.repeat(temperatures, pairs), "pair": np.tile(np.arange(pairs), len(temperatures))}
    coupling.append(pd.DataFrame({"n": n, **columns, "time": result.time, "met": ~result.censored}))
coupling = pd.concat(coupling, ignore_index=True)
coupling["observed"] = coupling.time.fillna(run["coupling_steps"])
share = coupling.pivot_table(index="n", columns="temperature", values="met")
transition = transition_temperatures(coupling, seed=run.seed)

# %% [markdown]
# Once two chains agree they must agree for ever: the same states under the same numbers never part.

# %%
same = coalesce(model, states[first], states[first], n_steps=run["coupling_steps"], temperature=1.0, seed=run.seed)
assert not same.hamming.any() and (same.time == 0).all()

# %% [markdown]
# Where the contraction theorem applies it also bounds this time: with α < 1 half of all pairs have met after $n/(1-\alpha)\,\log 2n$ steps. The
# measured α is a maximum over a few contexts and replacement tokens, a lower bound, so the bound drawn is at least that high.

# %%
alphas, sufficient = {}, {}
for n in run["coupling_lengths"]:
    contexts = model.states(passages.sample(run["threshold_contexts"], random_state=run.seed), n=n)
    tried = run.cached(replacement_tokens, model, contexts, run["threshold_replacements"], seed=run.seed)
    influence = run.cached(measure_influence, model, contexts, tried, temperatures, progress=f"influence, n = {n}")
    alphas[n] = influence.maximum.sum(1).max(1)
    sufficient[n] = sufficient_temperature(influence.oscillation)

# %%
figure, axes = plt.subplots(1, 3, figsize=(13.5, 3.9))
fine = np.geomspace(temperatures.min(), temperatures.max(), 200)
for k, ((n, fit), color) in enumerate(zip(transition.items(), COLORS, strict=False)):
    met = [share_estimate(round(value * pairs), pairs, unit="pairs") for value in share.loc[n]]
    table = pd.DataFrame([(e.value, *e.interval) for e in met], columns=["mean", "low", "high"])
    interval_bars(axes[0], temperatures * 1.03 ** (k - 1), table, color=color, markersize=4, label=f"n = {n}: {fit}")
    if np.isfinite(fit.center):
        axes[0].plot(fine, fit.predict(fine), color=color, linewidth=1)
axes[0].set(
    xscale="log",
    xlabel="temperature τ",
    ylabel=f"share met within {run['coupling_steps']} steps",
    title=f"Coalescence, {pairs} pairs a point, logistic fits",
)
value_ticks(axes[0], temperatures)
axes[0].legend(loc="lower right", fontsize=8)
for (n, group), color in zip(coupling.groupby("n"), COLORS, strict=False):
    scale = n * np.log(n)
    medians = [median_survival(g.observed, g.met) / scale for _, g in group.groupby("temperature")]
    axes[1].plot(temperatures, medians, "o-", color=color, label=f"n = {n}")
    axes[1].axhline(run["coupling_steps"] / scale, color=color, linestyle=":", linewidth=1)
    axes[1].plot(temperatures, [coalescence_bound(a, n) / scale for a in alphas[n]], "v--", color=color, markersize=4)
axes[1].set(
    xscale="log",
    yscale="log",
    xlabel="temperature τ",
    ylabel="median $T_c$ / (n log n)",
    title="Coalescence time (dotted: budget; dashed: bound where α < 1)",
)
axes[1].title.set_fontsize(9)
value_ticks(axes[1], temperatures)
axes[1].legend()
largest = max(distance)
colors = plt.cm.viridis(np.linspace(0, 0.9, len(temperatures)))
for temperature, curve, color in zip(temperatures, distance[largest].T, colors, strict=True):
    axes[2].plot(curve, color=color, label=f"τ = {temperature:g}")
axes[2].set(
    xlabel="step",
    ylabel="share of sites that differ",
    title=f"Distance of a pair, n = {largest}, mean of {pairs}",
    ylim=(0, 1.3),
)
axes[2].legend(fontsize=8, ncols=4, loc="upper center")
run.save_figure(figure, "fig2-crossover")

# %% [markdown]
# The same runs as survival curves (Kaplan–Meier: pairs that have not met when the budget ends are censored, not dropped), as the share that met for
# every temperature and length, and as the distance of the two texts in embedding space.

# %%
looks = np.unique(np.linspace(0, run["coupling_steps"], 9).astype(int))
vectors = run.cached(embed_states, model, embedder, together[largest].states(looks))  # (looks, 2, runs, d)
apart = cosine_distance(vectors[:, 0], vectors[:, 1]).reshape(len(looks), len(temperatures), pairs)
figure, axes = plt.subplots(1, 3, figsize=(14, 4))
of_largest = coupling[coupling.n == largest]
for (temperature, group), color in zip(of_largest.groupby("temperature"), colors, strict=True):
    curve = survival_curve(group.observed, group.met)
    axes[0].step(curve.time, curve.share, where="post", color=color, label=f"τ = {temperature:g}")
axes[0].set(
    xlabel="step",
    ylabel="share of pairs that have not met",
    title=f"Survival (Kaplan–Meier), n = {largest}, {pairs} pairs each",
    ylim=(0, 1.3),
)
axes[0].legend(fontsize=8, ncols=4, loc="upper center")
image = axes[1].imshow(share, cmap="viridis", vmin=0, vmax=1, aspect="auto")
axes[1].set_xticks(range(share.shape[1]), [f"{t:g}" for t in share.columns])
axes[1].set_yticks(range(share.shape[0]), share.index)
axes[1].grid(False)
for (row, column), value in np.ndenumerate(share.to_numpy()):
    axes[1].text(column, row, f"{value:.0%}", ha="center", va="center", fontsize=8, color="white" if value < 0.6 else "black")
axes[1].set(xlabel="temperature τ", ylabel="sequence length n", title=f"Share met within {run['coupling_steps']} steps")
figure.colorbar(image, ax=axes[1], label="share of pairs")
for k, (temperature, color) in enumerate(zip(temperatures, colors, strict=True)):
    axes[2].plot(looks, apart[:, k].mean(1), "o-", markersize=3, color=color, label=f"τ = {temperature:g}")
axes[2].set(
    xlabel="step",
    ylabel="cosine distance of the two texts",
    title=f"Embedding distance of a pair, n = {largest}, mean of {pairs}",
    ylim=(0, 1.3),
)
axes[2].legend(fontsize=8, ncols=4, loc="upper center")
run.save_figure(figure, "crossover-coalescence")

# %%
# NBVAL_CHECK_OUTPUT
run.claim(
    "identical-stay-identical",
    "Identical chains under the same numbers stay identical: largest Hamming distance ever.",
    same.hamming.max(),
    kind="exact",
    n=pairs * run["coupling_steps"],
    verdict=bool(same.hamming.max() == 0),
    why="also asserted above",
)
for n, fit in transition.items():
    cold, hot = share.loc[n].iloc[[0, -1]]
    run.claim(
        f"transition-temperature/{n}",
        "Coalescence within the budget passes from rare to sure as temperature rises: centre τ_c.",
        fit.center,
        interval=fit.interval,
        n=pairs * len(temperatures),
        verdict=True if cold < 0.5 < hot and np.isfinite(fit.center) else "not measurable here",
        why=f"share met within {run['coupling_steps']} steps: {cold:.0%} at τ = {temperatures[0]:g}, {hot:.0%} at τ = {temperatures[-1]:g}",
    )
small, large = transition[min(transition)], transition[max(transition)]
comparisons = {
    "transition-moves-up": ("The transition temperature rises with n: τ_c", small.centers, large.centers, 1),
    "no-sharpening": ("The transition does not sharpen with n: width in log τ", small.widths, large.widths, 0.5),
}
for id, (statement, at_smallest, at_largest, null) in comparisons.items():
    ratios = (at_largest / at_smallest)[np.isfinite(at_largest / at_smallest)]
    enough = len(ratios) > 0.9 * len(at_smallest)
    ratio = Estimate(
        np.median(ratios) if enough else np.nan, percentile_interval(ratios) if enough else None, pairs, "pairs"
    )
    run.claim(
        id,
        f"{statement} at the largest over that at the smallest n.",
        ratio.value,
        interval=ratio.interval,
        n=ratio.n,
        verdict=above(ratio.interval, null) if enough else "not measurable here",
        why=f"the interval, from resampled pairs, must lie above {null:g}; the budget is the same for all n",
    )

# %% [markdown]
# ## Theory beside data
# Left, where theory and measurement put the boundary, by length: the temperature from which ¼ max Σ δ guarantees fast
# mixing and the one at which the measured α crosses one (both lower bounds), and the measured transition τ_c; the paper finds the first about ten times above the last. Right, a chain
# small enough to be solved: the model on a few sites of a template and a few words, its exact mixing time, the contraction
# bound from its exact α, and coalescence measured as above, of random pairs that differ everywhere: after the time by which three quarters of them
# met, the laws of the two chains are within ¼ of each other, on average over the pairs.

# %%
template = model.tokens(run["lab_template"])
words = list(dict.fromkeys(template[run["lab_words"]].tolist()))  # as they stand there: a word alone may be other tokens
small = RestrictedModel(model, template, run["lab_sites"], words)
table = run.cached(exact.tabulate, small, small.n_sites)
n_lab, n_words = small.n_sites, len(words)
ends = all_states(n_words, n_lab)[np.random.default_rng(run.seed).integers(n_words**n_lab, size=run["lab_pairs"])]
others = (ends + np.random.default_rng(run.seed + 1).integers(1, n_words, size=ends.shape)) % n_words  # differs everywhere
rows = []
for temperature in run["lab_temperatures"]:
    chain = exact.transition_matrix(table, n_lab, temperature)
    alpha = exact.influence(table, n_lab, temperature).sum(0).max()
    met = run.cached(coalesce, table, ends, others, n_steps=run["lab_steps"], temperature=temperature, seed=run.seed)
    curve = survival_curve(np.where(met.censored, met.n_steps, met.time), ~met.censored)
    within = curve[curve.share <= 0.25].time
    rows.append(
        {
            "τ": temperature,
            "α": alpha,
            "t_mix": exact.mixing_time(chain),
            "contraction bound": contraction_bound(alpha, n_lab),
            "three quarters met": within.min() if len(within) else np.nan,
            "met": (~met.censored).mean(),
        }
    )
solved = run.save_table(pd.DataFrame(rows), "crossover-laboratory")

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 4))
at = run["coupling_lengths"]
crossing = [threshold(temperatures, alphas[n]) for n in at]
centers = [transition[n].center for n in at]
bars = np.abs(np.array([np.subtract(transition[n].interval, transition[n].center) for n in at])).T
axes[0].plot(at, [sufficient[n] for n in at], "v--", color=COLORS[1], label="¼ max Σ δ: sufficient, at least")
axes[0].plot(at, crossing, "^-.", color=COLORS[2], label="measured α crosses 1, at least")
axes[0].errorbar(at, centers, yerr=bars, fmt="o-", color=COLORS[0], capsize=2, label="τ_c: half of the pairs met, 95%")
axes[0].set(
    xlabel="sequence length n",
    ylabel="temperature τ",
    yscale="log",
    title=f"Predicted and measured boundary, budget {run['coupling_steps']} steps",
)
axes[0].set_ylim(top=4 * max(sufficient.values()))
value_ticks(axes[0], at)
axes[0].legend(fontsize=8)
axes[1].loglog(solved["τ"], solved["t_mix"], "o-", color="black", markersize=4, label="exact $t_{mix}(1/4)$")
axes[1].loglog(
    solved["τ"], solved["contraction bound"].replace(np.inf, np.nan), "v--", color=COLORS[1], markersize=4,
    label="contraction bound (α < 1)",
)  # fmt: skip
axes[1].loglog(
    solved["τ"], solved["three quarters met"], "s-", color=COLORS[0], markersize=4,
    label=f"three quarters of {run['lab_pairs']} pairs met",
)  # fmt: skip
axes[1].set(
    xlabel="temperature τ", ylabel="steps", title=f"{n_words**n_lab} states: {n_lab} sites, {n_words} words, budget {run['lab_steps']}"
)
value_ticks(axes[1], solved["τ"])
plain_ticks(axes[1].yaxis)
axes[1].legend(fontsize=8)
run.save_figure(figure, "crossover-theory")

# %%
# NBVAL_CHECK_OUTPUT
ratio = sufficient[largest] / large.center
run.claim(
    "threshold-over-boundary",
    f"The sufficient temperature (at least {sufficient[largest]:.2g} at n = {largest}) lies above the measured boundary: ratio.",
    ratio,
    published=10,
    kind="lower bound",
    n=influence.n_pairs,
    verdict=True if ratio > 1 else "not measurable here",
    why="holds if above one; a maximum over sampled contexts can only be too low",
)
finite = solved[np.isfinite(solved["contraction bound"])]
run.claim(
    "coalescence-under-bound",
    "Where α < 1, exactly known, three quarters of the pairs meet within the contraction bound: largest ratio of the two times.",
    (finite["three quarters met"] / finite["contraction bound"]).max(),
    kind="censored" if finite["three quarters met"].isna().any() else "estimate",
    n=run["lab_pairs"] * len(finite),
    verdict="not measurable here"
    if finite.empty or finite["three quarters met"].isna().any()
    else bool((finite["three quarters met"] <= finite["contraction bound"]).all()),
    why=f"{len(finite)} of {len(solved)} temperatures have α < 1; the bound at ε = ¼ is on the chance not to have met",
)
unmet = solved["three quarters met"].isna().any()
agreement = rank_correlation(solved["three quarters met"].fillna(np.inf), solved["t_mix"])
run.claim(
    "coalescence-tracks-mixing",
    "Coalescence follows the exact mixing time over temperature: Spearman's ρ of the two.",
    agreement,
    kind="censored" if unmet else "estimate",
    n=len(solved),
    verdict="not measurable here" if unmet else bool(agreement > 0.8),
    why=f"holds above 0.8; factor between them at most {np.exp(np.abs(np.log(solved['three quarters met'] / solved['t_mix'])).max()):.2g}, the exact time spans {solved['t_mix'].max() / solved['t_mix'].min():.2g}",
)

# %% [markdown]
# ## What practitioners would see
# The usual check of convergence is R̂ over chains from overdispersed starts, below about 1.01 to 1.1, and an effective sample size. Here chains from
# different passages, the second half of each run, and three summaries of a state: the entropy of its tokens, its projections on the first principal component of
# the embeddings, and its pseudo-log-likelihood. Does R̂ see the transition?

# %%
length, chains, grid = run["convergence_length"], run["convergence_chains"], np.array(run["convergence_temperatures"])
starts = model.states(passages.sample(chains, random_state=run.seed + 3), n=length)
trace = run.cached(
    run_chains, model, np.tile(starts, (len(grid), 1)), n_steps=run["convergence_steps"], temperature=np.repeat(grid, chains),
    seed=run.seed + 3, progress="convergence",
)  # fmt: skip
moments = np.arange(run["convergence_steps"] // 2, run["convergence_steps"] + 1, run["convergence_every"])
visited = trace.states(moments)  # (draws, temperatures x chains, n)
vectors = run.cached(embed_states, model, embedder, visited)
axis = PCA(1, random_state=run.seed).fit(vectors.reshape(-1, vectors.shape[-1]))
summaries = {
    "token entropy": np.apply_along_axis(lambda x: entropy(np.unique(x, return_counts=True)[1]), 2, visited),
    "first principal component": axis.transform(vectors.reshape(-1, vectors.shape[-1])).reshape(visited.shape[:2]),
    "pseudo-log-likelihood": run.cached(log_pseudo_likelihood, model, visited.reshape(-1, length)).reshape(visited.shape[:2]),
}
rows = []
for name, values in summaries.items():
    for k, temperature in enumerate(grid):
        draws = values[:, k * chains : (k + 1) * chains].T  # (chains, draws)
        rows.append({"summary": name, "τ": temperature, **convergence(draws)})
checked = run.save_table(pd.DataFrame(rows), "crossover-convergence")

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3.9), sharex=True)
for (name, group), marker in zip(checked.groupby("summary", sort=False), "osd", strict=True):
    axes[0].plot(group["τ"], group.rhat, f"{marker}-", markersize=5, label=name)
    axes[1].plot(group["τ"], group.ess, f"{marker}-", markersize=5, label=name)
nearest = min(transition, key=lambda n: abs(n - length))
center = transition[nearest].center
for axis, name in zip(axes, ("R̂", f"effective sample size of {chains * len(moments)} draws"), strict=True):
    axis.set(xscale="log", yscale="log", xlabel="temperature τ", ylabel=name)
    if np.isfinite(center):
        reference_line(axis, center, f"τ_c, n = {nearest}" if axis is axes[0] else "", vertical=True)
    value_ticks(axis, grid)
for axis in axes:
    axis.yaxis.set_major_formatter("{x:.3g}")
    axis.yaxis.set_minor_formatter("{x:.3g}")
axes[0].axhline(1.1, color="0.4", linestyle=":", linewidth=1, label="R̂ = 1.1")
axes[0].set_title(f"{chains} chains, n = {length}, second half of {run['convergence_steps']} steps")
axes[1].set_title("No point: the summary stands still in every chain")
axes[0].legend(fontsize=8)
run.save_figure(figure, "crossover-convergence")

# %%
# NBVAL_CHECK_OUTPUT
worst = checked.groupby("τ").rhat.max()
below, beyond = worst[worst.index < center], worst[worst.index > 1.5 * center]
run.claim(
    "rhat-sees-the-transition",
    "R̂ over chains from different passages is high below the coalescence transition and low above it: smallest below over largest above.",
    below.min() / beyond.max() if len(below) and len(beyond) else np.nan,
    kind="estimate",
    n=chains * len(grid),
    verdict=bool(below.min() > 1.1 > beyond.max()) if len(below) and len(beyond) else "not measurable here",
    why=f"largest R̂ of three summaries: {', '.join(f'{value:.2f} at τ = {t:g}' for t, value in worst.items())}; τ_c = {center:.2f}; no interval: one set of chains",
)

# %%
run.finish()
