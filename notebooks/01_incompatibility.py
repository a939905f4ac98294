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
# their place two masked models embedded in this repository (6 and 3 layers) and passages written for it.

# %% tags=["parameters"]
profile = "mini"

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from glauber_lib.incompatibility import (
    above,
    bootstrap_interval,
    measure_joint,
    measure_rectangles,
    noise_floor,
    sample_rectangles,
)
from glauber_lib.paper import Run, load_passages
from glauber_lib.plotting import COLORS, binned_means, reference_line

run = Run("01_incompatibility", profile)
passages = load_passages().text
PUBLISHED = {  # parameters, mean Δ (Table 1)
    "bert-base-uncased": ("110M", 0.644),
    "bert-large-uncased": ("335M", 0.798),
    "roberta-base": ("125M", 0.705),
    "roberta-large": ("355M", 0.735),
    "answerdotai/ModernBERT-base": ("150M", 0.753),
    "gpt2": ("124M", 0.000),
}

# %% [markdown]
# ## Rectangles
# Passage and sites at random; the replacements b and d from the model's own 50 best predictions at their site. Four
# masked forward passes give one rectangle. The noise floor is the largest change of Δ when the same rectangles are
# evaluated in float64.

# %%
for name in run["models"]:  # all of them first, so that a wrong name is found before any work
    run.model(name)
control = run.model(run["control"], causal=True)

results, floors = {}, {}
for name in run["models"]:
    model = run.model(name)
    states = model.states(passages, n=run["n_tokens"])
    rectangles = run.cached(sample_rectangles, model, states, run["rectangles"], seed=run.seed)
    results[name] = run.cached(measure_rectangles, model, rectangles)
    floors[name] = run.cached(noise_floor, model, rectangles.take(range(run["noise_rectangles"])))

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

# %% [markdown]
# ## Table 1

# %%
rows = []
for name, frame in results.items():
    low, high = bootstrap_interval(frame.delta)
    rows.append(
        {
            "model": name,
            "parameters": f"{run.model(name).network.num_parameters() / 1e6:.0f}M",
            "n": len(frame),
            "mean Δ": frame.delta.mean(),
            "95% low": low,
            "95% high": high,
            "median Δ": frame.delta.median(),
            "90th percentile": frame.delta.quantile(0.9),
            "mean relative Δ": frame.get("relative", pd.Series([np.nan])).mean(),
            "noise floor": floors[name],
            "published mean Δ": PUBLISHED.get(name, ("", np.nan))[1],
        }
    )
others = [
    {"model": name, "parameters": size, "published mean Δ": delta}
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
    low, high = bootstrap_interval(delta)
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
    trimmed = delta[delta <= delta.quantile(0.95)].mean()
    run.claim(
        f"not-outliers/{name}",
        "Incompatibility is broad, not an effect of outliers: the mean without the largest 5% stays above half.",
        trimmed / delta.mean(),
        n=len(delta),
        verdict=trimmed > delta.mean() / 2,
        why=f"the trimmed mean is {trimmed:.2f}; {(delta > 10 * floors[name]).mean():.0%} of the rectangles lie above ten noise floors",
    )
worst = results[control.name].delta.max()
run.claim(
    f"control/{control.name}",
    "For a joint distribution Δ telescopes to zero.",
    results[control.name].delta.mean(),
    published=0.0,
    n=len(results[control.name]),
    verdict=bool(worst < 1e-3),
    why=f"the largest of all is {worst:.1e} nats",
)

# %% [markdown]
# ## Figure 5: the distribution of Δ

# %%
figure, axes = plt.subplots(1, len(masked), figsize=(4.6 * len(masked), 3.4), sharex=True, sharey=True, squeeze=False)
bins = np.linspace(0, np.quantile(np.concatenate([results[k].delta for k in masked]), 0.99), 31)
for axis, name, color in zip(axes[0], masked, COLORS, strict=False):
    delta = results[name].delta
    axis.hist(np.clip(delta, None, bins[-1]), bins=bins, color=color, alpha=0.8)
    reference_line(axis, delta.mean(), f"mean {delta.mean():.2f}", vertical=True, color="black")
    axis.set_title(f"{name}  (n = {len(delta)})")
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
    rho = spearmanr(frame.influence, frame.delta).statistic
    interval = bootstrap_interval(frame.influence, frame.delta, statistic=lambda x, y: spearmanr(x, y).statistic)
    correlation[name] = rho, interval
    axis.scatter(frame.influence, frame.delta, s=9, alpha=0.45, color=color, linewidth=0)
    binned_means(axis, frame.influence, frame.delta)
    axis.set_title(
        f"{name}, n = {len(frame)}: Spearman ρ = {rho:.2f} [{interval[0]:.2f}, {interval[1]:.2f}]", fontsize=9
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
# The most incompatible rectangles of the first model, as text: the tokens a → b and c → d in their passage.

# %%
model, frame = run.model(masked[0]), results[masked[0]].nlargest(5, "delta")
states = model.states(passages, n=run["n_tokens"])
pd.DataFrame(
    {
        "Δ": frame.delta.round(2),
        "a → b": [" → ".join(model.words([a, b])) for a, b in zip(frame.a, frame.b, strict=True)],
        "c → d": [" → ".join(model.words([c, d])) for c, d in zip(frame.c, frame.d, strict=True)],
        "passage": [model.texts(states[[k]])[0] for k in frame.passage],
    }
)

# %%
run.finish()
