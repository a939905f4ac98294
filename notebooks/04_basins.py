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
# # Section 6.2: what long chains fall into
#
# **Claims.** Chains started on health, sport, science, food and technology lose their topic, and political content,
# nearly absent at the start, rises above its baseline at some time in most of them (46 of 50 in the paper); chains get
# stuck for long times in single sentences or families of sentences (traps); temperature and fixed prefixes shape what is visited.

# %% tags=["parameters"]
profile = "mini"

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import binomtest, spearmanr
from sklearn.decomposition import PCA

from glauber_lib.basins import (
    Embedder,
    cosine_distance,
    embed_states,
    load_topic_scorer,
    sentiment,
    survey_traps,
    topic_scores,
)
from glauber_lib.bounds import poisson_interval
from glauber_lib.chains import run_chains
from glauber_lib.crossover import median_survival
from glauber_lib.incompatibility import above, bootstrap_interval
from glauber_lib.paper import Run, load_passages
from glauber_lib.plotting import COLORS, band, trajectory

run = Run("04_basins", profile)
passages = load_passages()
model = run.model(run["model"])
embedder = Embedder(run["embedder"])
scorer = load_topic_scorer(run["topic_scorer"], embedder)
PUBLISHED = {  # bert-base-uncased: politics at 0 and 10k steps, seed topic at 0 and 10k (Table 3)
    "health": (0.008, 0.044, 0.631, 0.116),
    "sport": (0.011, 0.036, 0.763, 0.204),
    "science": (0.003, 0.056, 0.682, 0.068),
    "food": (0.003, 0.174, 0.834, 0.037),
    "technology": (0.004, 0.038, 0.846, 0.152),
}

# %% [markdown]
# ## The scorer
# By default topics are scored by similarity of sentence embeddings to a description of each label (softmax, scale 20), in
# place of the published NLI classifier (bart-large-mnli), sentiment by VADER in place of the default pipeline; texts are our own passages
# in place of MS MARCO. How often the
# scorer's first choice is the label of our own passages:

# %%
# NBVAL_CHECK_OUTPUT
guess = np.array(scorer.labels)[scorer.score(passages.text).argmax(1)]
hits = guess == passages.topic
run.claim(
    "scorer-accuracy",
    "The topic scorer recognises the labelled passages: top-1 accuracy.",
    hits.mean(),
    kind="estimate",
    n=len(hits),
    interval=tuple(binomtest(int(hits.sum()), len(hits)).proportion_ci(method="wilson")),
    verdict=bool(hits.mean() >= 0.85),
    why="at least 85% is wanted of a stand-in",
)

# %% [markdown]
# ## Topics along the chain
# Passages of each seed topic, truncated to the chain's length; one batch.

# %%
topics, n = run["topics"], run["n_tokens"]
seeds = pd.concat([passages[passages.topic == topic].head(run["seeds"]) for topic in topics], ignore_index=True)
times = np.arange(0, run["steps"] + 1, run["score_every"])
traces, scores = {}, {}
names = list(dict.fromkeys([run["model"], *run["models"]]))
for name in names:  # all of them first, so that a wrong name is found before any work
    run.model(name)
for name in names:
    chain_model = run.model(name)
    traces[name] = run.cached(
        run_chains,
        chain_model,
        chain_model.states(seeds.text, n=n),
        n_steps=run["steps"],
        temperature=run["temperature"],
        seed=run.seed,
        progress=name,
    )
    scores[name] = run.cached(topic_scores, chain_model, scorer, traces[name].states(times))  # (times, chains, labels)
politics = scorer.labels.index("politics")
baseline = 1 / len(scorer.labels)


# %%
def table3(values):
    """Politics and seed-topic scores at the first and last step, by seed topic."""
    rows = []
    for topic in topics:
        mine = (seeds.topic == topic).to_numpy()
        own = values[:, mine, scorer.labels.index(topic)]
        pol = values[:, mine, politics]
        rows.append(
            {
                "topic": topic,
                "chains": mine.sum(),
                "politics start": pol[0].mean(),
                "politics end": pol[-1].mean(),
                "seed topic start": own[0].mean(),
                "seed topic end": own[-1].mean(),
                "politics end, 95%": "{:.3f}–{:.3f}".format(*bootstrap_interval(pol[-1])),
                "seed topic end, 95%": "{:.3f}–{:.3f}".format(*bootstrap_interval(own[-1])),
            }
        )
    return pd.DataFrame(rows)


columns = ["published politics start", "published politics end", "published seed start", "published seed end"]
table = table3(scores[run["model"]])
table[columns] = [PUBLISHED.get(topic, (np.nan,) * 4) for topic in topics]
run.save_table(table, "table3-politics")

# %% [markdown]
# Table 4 compares the end points across the profile's models. Published for BERT, RoBERTa and ModernBERT: health .044, .112, .026; sport .036,
# .042, .052; science .056, .062, .037; food .174, .052, .038; technology .038, .198, .033.

# %%
published4 = {
    "health": (0.044, 0.112, 0.026),
    "sport": (0.036, 0.042, 0.052),
    "science": (0.056, 0.062, 0.037),
    "food": (0.174, 0.052, 0.038),
    "technology": (0.038, 0.198, 0.033),
}
table4 = pd.DataFrame({"topic": topics, "chains": run["seeds"]})
for name in run["models"]:
    table4[[f"{name}, politics end", f"{name}, 95%"]] = table3(scores[name])[["politics end", "politics end, 95%"]]
table4[["BERT, published", "RoBERTa, published", "ModernBERT, published"]] = [published4[topic] for topic in topics]
run.save_table(table4, "table4-models")

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), sharex=True)
for topic, color in zip(topics, COLORS, strict=False):
    mine = (seeds.topic == topic).to_numpy()
    band(axes[0], times, scores[run["model"]][:, mine, politics].T, label=topic, color=color)
    band(axes[1], times, scores[run["model"]][:, mine, scorer.labels.index(topic)].T, label=topic, color=color)
for axis, title in zip(axes, ("politics score", "score of the seed's own topic"), strict=True):
    axis.axhline(baseline, color="0.3", linestyle="--", linewidth=1, label="baseline 1/9")
    axis.set(xlabel="step", ylabel="score, mean with its 95% band", title=f"{title}, τ = {run['temperature']:g}, n = {n}")
    axis.set_ylim(0, None)
axes[1].legend(title=f"seed topic ({run['seeds']} chains each)", loc="upper left", bbox_to_anchor=(1.0, 1.0))
run.save_figure(figure, "basins-topics")

# %% [markdown]
# A text that turns to noise pulls every label that was near zero towards 1/9. So politics is compared with the other
# labels that were not the seed's, and the share of chains that cross the baseline is given for each of them.

# %%
# NBVAL_CHECK_OUTPUT
values = scores[run["model"]]  # (times, chains, labels)
own = np.array([scorer.labels.index(topic) for topic in seeds.topic])
gain = values[-1] - values[0]
interval = bootstrap_interval(gain[:, politics])
run.claim(
    "politics-rises",
    "The politics score rises along the chain: mean rise over all chains.",
    gain[:, politics].mean(),
    published=np.mean([p[1] - p[0] for p in PUBLISHED.values()]),
    interval=interval,
    n=len(gain),
    verdict=above(interval),
    why="the interval must lie above zero",
)
excess = gain[:, politics] - [np.delete(g, [politics, k]).mean() for g, k in zip(gain, own, strict=True)]
interval = bootstrap_interval(excess)
run.claim(
    "politics-rises-more-than-others",
    "Politics rises more than the other labels that were not the seed's: mean difference of the rises.",
    excess.mean(),
    interval=interval,
    n=len(gain),
    verdict=above(interval),
    why="the interval must lie above zero",
)
below = values[0] <= baseline  # (chains, labels)
crossed = (values[1:] > baseline).any(0) & below
crossing = pd.Series(crossed.sum(0) / below.sum(0), index=scorer.labels)
count, total = int(crossed[:, politics].sum()), int(below[:, politics].sum())
interval = tuple(binomtest(count, total).proportion_ci(method="wilson"))
run.claim(
    "politics-crosses",
    "Most chains that start below the politics baseline 1/9 cross it at least once: share of chains.",
    count / total,
    published=46 / 50,
    interval=interval,
    n=total,
    verdict=above(interval, 0.5),
    why=f"looked at every {run['score_every']} steps; the mean of the other eight labels is {crossing.drop('politics').mean():.2f}",
)
loss = -gain[np.arange(len(own)), own]
interval = bootstrap_interval(loss)
run.claim(
    "seed-topic-is-lost",
    "The seed topic's own score falls: mean fall over all chains.",
    loss.mean(),
    published=np.mean([p[2] - p[3] for p in PUBLISHED.values()]),
    interval=interval,
    n=len(loss),
    verdict=above(interval),
    why="the interval must lie above zero",
)

# %% [markdown]
# The rise of each label, with 95% intervals over chains, and the share of chains that start below its baseline and cross it.

# %%
ends = np.array([bootstrap_interval(g) for g in gain.T])
labels = {"mean rise": gain.mean(0), "low": ends[:, 0], "high": ends[:, 1], "share that cross": crossing}
pd.DataFrame(labels, index=scorer.labels).sort_values("mean rise", ascending=False).round(3)

# %% [markdown]
# ## Trajectories (Figures 1 and 4)
# Sentence embeddings of a chain in the plane of their two principal components, warm (early) to cool (late).

# %%
moments = np.arange(0, run["steps"] + 1, run["trajectory_every"])
trace = traces[run["model"]]
shown = [int(np.flatnonzero(seeds.topic == topic)[0]) for topic in topics]
vectors = run.cached(embed_states, model, embedder, trace.states(moments)[:, shown])  # (moments, chains, d)
pca = PCA(2, random_state=run.seed).fit(vectors.reshape(-1, vectors.shape[-1]))
share = pca.explained_variance_ratio_

figure, axis = plt.subplots(figsize=(6.2, 4.8))
trajectory(
    axis,
    pca.transform(vectors[:, 0]),
    title=f"One chain from a {topics[0]} passage, τ = {run['temperature']:g}, every {run['trajectory_every']} steps",
)
axis.set(xlabel=f"PC 1 ({share[0]:.0%} of variance)", ylabel=f"PC 2 ({share[1]:.0%})")
axis.plot([], [], "s", color="#b40426", markeredgecolor="black", label="start (warm)")
axis.plot([], [], "D", color="#3b4cc0", markeredgecolor="black", label=f"step {run['steps']} (cool)")
axis.legend()
run.save_figure(figure, "fig1-trajectory")

# %%
figure, axes = plt.subplots(1, len(topics), figsize=(3.1 * len(topics), 3.3), sharex=True, sharey=True)
for k, (axis, topic) in enumerate(zip(axes, topics, strict=True)):
    trajectory(axis, pca.transform(vectors[:, k]), title=topic)
    axis.set_xlabel(f"PC 1 ({share[0]:.0%})")
axes[0].set_ylabel(f"PC 2 ({share[1]:.0%})")
figure.suptitle(f"Trajectories of one chain per seed topic; square: start, diamond: step {run['steps']}", fontsize=11)
run.save_figure(figure, "fig4-trajectories")

# %% [markdown]
# What the first chain says on its way:

# %%
look = moments[np.linspace(0, len(moments) - 1, 6).astype(int)]
pd.DataFrame({"step": look, "text": model.texts(trace.states(look)[:, shown[0]])})

# %% [markdown]
# ## Traps (Table 5)
# Below the crossover the engine computes only what a chain has not seen: these chains take a fraction of a model call per step.
# A trap is a maximal run of 300-step windows whose mean cosine drift stays under 0.12; its representative is the state
# held longest. Perfect: every token is the argmax of its conditional. Published: 17 traps in 30 chains of
# 10,000 steps, mean duration 671, 4 of them perfect. The threshold was chosen for the published embedder; to see what it means in
# the one used here, the same survey is made of the chains above, at the higher temperature, where nothing should be stuck.

# %%
starts = model.states(passages.text.sample(run["trap_chains"], random_state=run.seed), n=n)
trap_trace = run.cached(
    run_chains,
    model,
    starts,
    n_steps=run["trap_steps"],
    temperature=run["trap_temperature"],
    seed=run.seed + 1,
    progress="traps",
)
traps = run.cached(survey_traps, model, trap_trace, embedder, stride=run["trap_stride"])
warm = run.cached(survey_traps, model, traces[run["model"]], embedder, stride=run["trap_stride"])
published5 = pd.DataFrame(
    [
        (". . . . . . . . . . . . . . . (published)", 4950, 9.14, 7.46, "perfect"),
        ("theme song for jesus christ superstar (published)", 650, 5.44, 0.56, "perfect"),
        ("winners are awarded 2 points... (published)", 350, 4.16, 0.06, "perfect"),
    ],
    columns=["text", "duration", "mean_gap", "min_gap", "type"],
)
columns = ["text", "duration", "censored", "type", "mean_gap", "min_gap", "share", "escape", "bound", "holding"]
calls = trap_trace.model_calls / (run["trap_chains"] * run["trap_steps"])
print(f"{calls:.2f} model calls per step at τ = {run['trap_temperature']:g}")
run.save_table(pd.concat([traps[columns].head(15), published5], ignore_index=True), "table5-traps")

# %%
# NBVAL_CHECK_OUTPUT
share = np.array([traps.duration[traps.chain == k].sum() / run["trap_steps"] for k in range(run["trap_chains"])])
warm_share = np.array([warm.duration[warm.chain == k].sum() / run["steps"] for k in range(len(seeds))])
interval = bootstrap_interval(share)
run.claim(
    "traps-exist",
    "Below the crossover chains are trapped, above it not: share of its steps that a cold chain spends in traps.",
    share.mean(),
    interval=interval,
    n=run["trap_chains"],
    verdict=above(interval, warm_share.mean()),
    why=f"{len(traps)} traps at τ = {run['trap_temperature']:g}; at τ = {run['temperature']:g} the share is {warm_share.mean():.2f}",
)
run.claim(
    "trap-count",
    "Traps per chain of 10,000 steps.",
    len(traps) / (run["trap_chains"] * run["trap_steps"]) * 10_000,
    published=17 / 30,
    interval=tuple(x / (run["trap_chains"] * run["trap_steps"]) * 10_000 for x in poisson_interval(len(traps))),
    n=run["trap_chains"],
    verdict=len(traps) > 0,
    why="holds if there are any; the rate depends on model, embedder and temperature",
)
run.claim(
    "trap-duration",
    "Traps last for hundreds of steps: Kaplan–Meier median of their durations.",
    median_survival(traps.duration, ~traps.censored) if len(traps) else np.nan,
    published=671,
    kind="censored",
    n=len(traps),
    verdict="not measurable here",
    why=f"published is a mean, over longer runs; {traps.censored.sum()} of {len(traps)} last to the end of the run",
)
perfect = int((traps.type == "perfect").sum())
run.claim(
    "perfect-traps",
    "Some traps are perfect, most are not: share of perfect traps.",
    perfect / len(traps) if len(traps) else np.nan,
    published=4 / 17,
    interval=tuple(binomtest(perfect, len(traps)).proportion_ci(method="wilson")) if len(traps) else None,
    n=len(traps),
    verdict=bool(0 < perfect < len(traps) / 2) if len(traps) else "not measurable here",
    why=f"{perfect} of {len(traps)}",
)

# %% [markdown]
# ## Temperature regimes
# A few passages after the run at each temperature: drift from the start, share of tokens kept, and the text of the first.

# %%
regimes = np.array(run["regime_temperatures"])
start = model.states(passages.text.sample(run["regime_passages"], random_state=run.seed + 2), n=n)
regime_trace = run.cached(
    run_chains,
    model,
    np.tile(start, (len(regimes), 1)),
    n_steps=run["regime_steps"],
    temperature=np.repeat(regimes, len(start)),
    seed=run.seed,
    progress="regimes",
)
final = regime_trace.final.reshape(len(regimes), len(start), n)
moved = cosine_distance(
    embed_states(model, embedder, final), embed_states(model, embedder, start)
)  # (regimes, passages)
regime_table = pd.DataFrame(
    {
        "τ": ["start", *(f"{t:g}" for t in regimes)],
        "passages": len(start),
        "mean drift": [0.0, *moved.mean(1)],
        "tokens kept": [1.0, *(final == start).mean((1, 2))],
        "text": model.texts(np.concatenate([start[:1], final[:, 0]])),
    }
)
run.save_table(regime_table, "regimes")

# %%
# NBVAL_CHECK_OUTPUT
correlation = lambda *columns: np.mean([spearmanr(regimes, row).statistic for row in np.transpose(columns)])  # noqa: E731
interval = bootstrap_interval(*moved, statistic=correlation, n_resamples=200)
run.claim(
    "colder-is-slower",
    "Colder chains stay closer to their start: Spearman's ρ of temperature and drift, mean over passages.",
    correlation(*moved),
    interval=interval,
    n=len(start),
    verdict=above(interval),
    why="the interval, over passages, must lie above zero",
)

# %% [markdown]
# ## Prefix attractors
# The tokens of a fixed prefix are never resampled. Topic and sentiment (VADER) of what follows the prefix, against chains with none.

# %%
rows = []
for prefix in ["", *run["prefixes"]]:
    tokens = model.tokens(prefix) if prefix else np.array([], dtype=int)
    states = model.states(passages.text.sample(run["prefix_chains"], random_state=run.seed), n=n)
    states[:, : len(tokens)] = tokens
    prefixed = run.cached(
        run_chains,
        model,
        states,
        n_steps=run["prefix_steps"],
        temperature=run["temperature"],
        seed=run.seed,
        frozen=np.arange(n) < len(tokens),
        progress=prefix or "no prefix",
    )
    texts = model.texts(prefixed.final[:, len(tokens) :])
    score = scorer.score(texts)
    rows.append(
        {
            "prefix": prefix or "(none)",
            "chains": len(texts),
            "topic": scorer.labels[score.mean(0).argmax()],
            "score": score.mean(0).max(),
            "politics": score[:, politics].mean(),
            "politics, 95%": "{:.2f}–{:.2f}".format(*bootstrap_interval(score[:, politics])),
            "sentiment": sentiment(texts).mean(),
            "an end text": texts[0],
        }
    )
run.save_table(pd.DataFrame(rows), "prefixes")

# %%
run.finish()
