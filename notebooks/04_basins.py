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
from glauber_lib.chains import run_chains
from glauber_lib.incompatibility import bootstrap_interval
from glauber_lib.paper import Run, load_passages
from glauber_lib.plotting import COLORS, band, reference_line, trajectory

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
# place of the published NLI classifier (bart-large-mnli), and sentiment by VADER in place of the default pipeline. How often the
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
for name in dict.fromkeys([run["model"], *run["models"]]):
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
table4 = pd.DataFrame({"topic": topics})
for name in run["models"]:
    table4[f"{name}, politics end"] = table3(scores[name])["politics end"]
table4[["BERT, published", "RoBERTa, published", "ModernBERT, published"]] = [published4[topic] for topic in topics]
run.save_table(table4, "table4-models")

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), sharex=True)
for topic, color in zip(topics, COLORS, strict=False):
    mine = (seeds.topic == topic).to_numpy()
    band(axes[0], times, scores[run["model"]][:, mine, politics].T, label=topic, color=color)
    band(axes[1], times, scores[run["model"]][:, mine, scorer.labels.index(topic)].T, label=topic, color=color)
for axis, title in zip(axes, ("politics score", "score of the seed's own topic"), strict=True):
    reference_line(axis, baseline, "baseline 1/9")
    axis.set(xlabel="step", ylabel="score", title=f"{title}, τ = {run['temperature']:g}, n = {n}")
    axis.set_ylim(0, None)
axes[1].legend(title=f"seed topic ({run['seeds']} chains each)")
run.save_figure(figure, "basins-topics")

# %%
# NBVAL_CHECK_OUTPUT
values = scores[run["model"]]
rise = values[-1, :, politics] - values[0, :, politics]
interval = bootstrap_interval(rise)
run.claim(
    "politics-rises",
    "The politics score rises along the chain: mean rise over all chains.",
    rise.mean(),
    published=np.mean([p[1] - p[0] for p in PUBLISHED.values()]),
    interval=interval,
    n=len(rise),
    verdict=bool(interval[0] > 0),
    why="the interval excludes zero" if interval[0] > 0 else "the interval reaches zero",
)
crossed = (values[:, :, politics] > baseline).any(0)
interval = binomtest(int(crossed.sum()), len(crossed)).proportion_ci(method="wilson")
run.claim(
    "politics-crosses",
    "Most chains cross the politics baseline 1/9 at least once: share of chains.",
    crossed.mean(),
    published=46 / 50,
    interval=tuple(interval),
    n=len(crossed),
    verdict=bool(interval.low > 0.5),
    why=f"{crossed.sum()} of {len(crossed)} chains, looked at every {run['score_every']} steps",
)
loss = np.array(
    [values[0, k, scorer.labels.index(t)] - values[-1, k, scorer.labels.index(t)] for k, t in enumerate(seeds.topic)]
)
interval = bootstrap_interval(loss)
run.claim(
    "seed-topic-is-lost",
    "The seed topic's own score falls: mean fall over all chains.",
    loss.mean(),
    published=np.mean([p[2] - p[3] for p in PUBLISHED.values()]),
    interval=interval,
    n=len(loss),
    verdict=bool(interval[0] > 0),
    why="the interval excludes zero",
)

# %% [markdown]
# Which label gains most? The same rise for all nine labels, with 95% intervals over chains.

# %%
gain = values[-1] - values[0]
pd.DataFrame(
    {
        "mean rise": gain.mean(0),
        "low": [bootstrap_interval(g)[0] for g in gain.T],
        "high": [bootstrap_interval(g)[1] for g in gain.T],
    },
    index=scorer.labels,
).sort_values("mean rise", ascending=False).round(3)

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
# A trap is a maximal run of 300-step windows whose mean cosine drift stays under 0.12; its representative is the state
# held longest. Perfect: every token is the argmax of its conditional. Published: 17 traps in 30 chains of
# 10,000 steps, mean duration 671, 4 of them perfect.

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
published5 = pd.DataFrame(
    [
        (". . . . . . . . . . . . . . . (published)", 4950, 9.14, 7.46, "perfect"),
        ("theme song for jesus christ superstar (published)", 650, 5.44, 0.56, "perfect"),
        ("winners are awarded 2 points... (published)", 350, 4.16, 0.06, "perfect"),
    ],
    columns=["text", "duration", "mean_gap", "min_gap", "type"],
)
columns = ["text", "duration", "censored", "type", "mean_gap", "min_gap", "share", "escape", "bound", "holding"]
run.save_table(pd.concat([traps[columns].head(15), published5], ignore_index=True), "table5-traps")

# %%
# NBVAL_CHECK_OUTPUT
run.claim(
    "traps-exist",
    "Chains below the crossover stay for hundreds of steps in traps: traps found.",
    len(traps),
    published=17,
    kind="estimate",
    n=run["trap_chains"],
    verdict=len(traps) > 0,
    why=f"in {run['trap_chains']} chains of {run['trap_steps']} steps at τ = {run['trap_temperature']:g}",
)
if len(traps):
    run.claim(
        "trap-duration",
        "Mean duration of a trap, in steps.",
        traps.duration.mean(),
        published=671,
        kind="censored" if traps.censored.any() else "estimate",
        interval=bootstrap_interval(traps.duration),
        n=len(traps),
        verdict=bool(traps.duration.mean() >= 300),
        why=f"{traps.censored.sum()} of {len(traps)} were still lasting at the end of the run: a lower bound",
    )
    perfect = (traps.type == "perfect").mean()
    run.claim(
        "perfect-traps",
        "Some traps are perfect, most are not: share of perfect traps.",
        perfect,
        published=4 / 17,
        n=len(traps),
        interval=tuple(binomtest(round(perfect * len(traps)), len(traps)).proportion_ci(method="wilson")),
        verdict=bool(0 < perfect < 1),
        why="both kinds occur" if 0 < perfect < 1 else "only one kind occurs",
    )
else:
    print("no trap found")

# %% [markdown]
# ## Temperature regimes
# The same passage after the run at five temperatures: drift from the start, share of tokens kept, text.

# %%
regimes = run["regime_temperatures"]
start = np.repeat(model.states(passages.text.iloc[[0]], n=n), len(regimes), axis=0)
regime_trace = run.cached(
    run_chains,
    model,
    start,
    n_steps=run["regime_steps"],
    temperature=regimes,
    seed=run.seed,
    chains=[0] * len(regimes),
    progress="regimes",
)
ends = embed_states(model, embedder, np.concatenate([start[:1], regime_trace.final]))
pd.DataFrame(
    {
        "τ": ["start", *[f"{t:g}" for t in regimes]],
        "drift": [0.0, *cosine_distance(ends[1:], ends[0])],
        "tokens kept": [1.0, *(regime_trace.final == start).mean(1)],
        "text": model.texts(np.concatenate([start[:1], regime_trace.final])),
    }
).round(2)

# %%
# NBVAL_CHECK_OUTPUT
moved = cosine_distance(ends[1:], ends[0])
run.claim(
    "colder-is-slower",
    "Colder chains stay closer to their start: Spearman's ρ of temperature and drift.",
    spearmanr(regimes, moved).statistic,
    n=len(regimes),
    verdict=bool(moved[0] < moved[-1]),
    why="verdict: the coldest chain drifted less than the hottest",
)

# %% [markdown]
# ## Prefix attractors
# The tokens of a fixed prefix are never resampled. End texts, topic and sentiment (VADER), against chains with no prefix.

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
    texts = model.texts(prefixed.final)
    score = scorer.score(texts)
    rows.append(
        {
            "prefix": prefix or "(none)",
            "topic": scorer.labels[score.mean(0).argmax()],
            "score": score.mean(0).max(),
            "politics": score[:, politics].mean(),
            "sentiment": sentiment(texts).mean(),
            "an end text": texts[0],
        }
    )
run.save_table(pd.DataFrame(rows), "prefixes").round(2)

# %%
run.finish()
