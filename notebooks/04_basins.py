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
from IPython.display import HTML
from scipy.stats import spearmanr
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

from glauber_lib.chains import run_chains
from glauber_lib.instruments import Embedder, load_sentiment, load_topic_scorer
from glauber_lib.margins import log_pseudo_likelihood
from glauber_lib.paper import Run
from glauber_lib.permutation import group_difference, label_rises
from glauber_lib.plotting import COLORS, interval_band, matrix, moves_as_html, trajectory
from glauber_lib.readings import cosine_distance, embed_states, moves_in_words, topic_scores
from glauber_lib.stats import (
    above,
    below,
    bootstrap_estimate,
    bootstrap_interval,
    mean_band,
    percentile_interval,
    share_estimate,
)
from glauber_lib.survival import median_interval, median_survival
from glauber_lib.topics import (
    choose_seeds,
    dwell_times,
    entropy_production,
    recurrence_times,
    reversible_paths,
    transition_counts,
)
from glauber_lib.traps import inside_runs, occupied_runs, survey_traps, template_families

run = Run("04_basins", profile)
model = run.model(run["model"])
compared = list(dict.fromkeys([run["model"], *run["models"]]))  # the chain's own and those of Table 4
passages = run.passages(*map(run.model, compared))
name = run["embedder"]
embedder = Embedder(name, revision=run.revision(name), remote_code=run["remote_code"].get(name))
topics, n = run["topics"], run["n_tokens"]
scorer = load_topic_scorer(run["topic_scorer"], embedder, passages, revision=run.revision(run["topic_scorer"]))
seeds, rest = choose_seeds(passages, topics, run["seeds"], scorer)
# one that learns must not know the seeds
second = load_topic_scorer(run["second_scorer"], embedder, rest, revision=run.revision(run["second_scorer"]))
sentiment = load_sentiment(run["sentiment"], revision=run.revision(run["sentiment"]))
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
# in place of MS MARCO. The second scorer, published as a DeBERTa-v3 classifier, is by default a logistic regression on the words of our
# passages that seed no chain: it shares nothing with the first. How often their first choice is the label:

# %%
# NBVAL_CHECK_OUTPUT
if "topic" in passages:
    hits = np.array(scorer.labels)[scorer.score(passages.text).argmax(1)] == passages.topic
    accuracy = share_estimate(hits.sum(), len(hits), unit="passages")
    run.claim(
        "scorer-accuracy",
        "The topic scorer recognises the labelled passages: top-1 accuracy.",
        accuracy.value,
        interval=accuracy.interval,
        n=accuracy.n,
        verdict=bool(accuracy.value >= 0.85),
        why="at least 85% is wanted of a stand-in",
    )
hits = np.array(second.labels)[second.score(seeds.text).argmax(1)] == seeds.topic
accuracy = share_estimate(hits.sum(), len(hits), unit="passages")
run.claim(
    "second-scorer-accuracy",
    "The second scorer recognises the seed passages: top-1 accuracy (labels are the first scorer's where passages have none).",
    accuracy.value,
    interval=accuracy.interval,
    n=accuracy.n,
    verdict=above(accuracy.interval, 0.5),
    why="the interval must lie above one half; chance is 1/9",
)

# %% [markdown]
# ## Topics along the chain
# Passages of each seed topic, truncated to the chain's length; one batch.

# %%
times = np.arange(0, run["steps"] + 1, run["score_every"])
traces, scores = {}, {}
for name in compared:
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
second_scores = run.cached(topic_scores, model, second, traces[run["model"]].states(times))
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
table4[["BERT, published", "RoBERTa, published", "ModernBERT, published"]] = [published4.get(topic, (np.nan,) * 3) for topic in topics]
run.save_table(table4, "table4-models")

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), sharex=True)
for topic, color in zip(topics, COLORS, strict=False):
    mine = (seeds.topic == topic).to_numpy()
    for axis, label in zip(axes, (politics, scorer.labels.index(topic)), strict=True):
        means = mean_band(scores[run["model"]][:, mine, label].T, within=(0, 1))
        interval_band(axis, times, means, label=topic, color=color)
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
rise = bootstrap_estimate(gain[:, politics], unit="chains")
run.claim(
    "politics-rises",
    "The politics score rises along the chain: mean rise over all chains.",
    rise.value,
    published=np.mean([p[1] - p[0] for p in PUBLISHED.values()]),
    interval=rise.interval,
    n=rise.n,
    verdict=above(rise.interval),
    why="the interval must lie above zero",
)
excess = gain[:, politics] - [np.delete(g, [politics, k]).mean() for g, k in zip(gain, own, strict=True)]
more = bootstrap_estimate(excess, unit="chains")
run.claim(
    "politics-rises-more-than-others",
    "Politics rises more than the other labels that were not the seed's: mean difference of the rises.",
    more.value,
    interval=more.interval,
    n=more.n,
    verdict=above(more.interval),
    why="the interval must lie above zero",
)
rises = label_rises(gain, own, seed=run.seed).set_index(pd.Index(scorer.labels, name="label"))
second_rises = label_rises(second_scores[-1] - second_scores[0], own, seed=run.seed).set_index(rises.index)
run.claim(
    "politics-rises-most",
    "Of nine labels politics stands out: p of 'rises more than the other labels that were not the seed's', permutation test, corrected for nine labels (Holm).",
    rises.p_holm["politics"],
    kind="estimate",
    n=len(gain),
    verdict="not measurable here" if rises.p_holm["politics"] >= 0.05 else rises.excess.idxmax() == "politics",
    why=f"holds below 0.05 if no label rises more; the label that rises most is {rises.excess.idxmax()}; by the second scorer p = {second_rises.p['politics']:.2g}, most {second_rises.excess.idxmax()}",
)
for id, of, name, published in (
    ("politics-crosses", values, "first", 46 / 50),
    ("politics-crosses/second-scorer", second_scores, "second", 48 / 50),
):
    low = of[0] <= baseline  # (chains, labels)
    crossed = (of[1:] > baseline).any(0) & low
    crossing = pd.Series(crossed.sum(0) / low.sum(0), index=scorer.labels)
    share = share_estimate(crossed[:, politics].sum(), low[:, politics].sum(), unit="chains")
    run.claim(
        id,
        f"Most chains that start below the politics baseline 1/9 cross it at least once, by the {name} scorer: share of chains.",
        share.value,
        published=published,
        interval=share.interval,
        n=share.n,
        verdict=above(share.interval, 0.5),
        why=f"looked at every {run['score_every']} steps; the mean of the other eight labels is {crossing.drop('politics').mean():.2f}",
    )
    rises[f"share that cross, {name} scorer"] = crossing
for name in run["models"]:
    kinds = [("ModernBERT", 2), ("RoBERTa", 1), ("BERT", 0)]  # columns of the published table; ours stand beside BERT
    kind, column = next(((k, c) for k, c in kinds if k.lower() in name.lower()), kinds[-1])
    end, change = scores[name][-1][:, politics], (scores[name][-1] - scores[name][0])[:, politics]
    run.claim(
        f"politics-end/{name}",
        "Endpoint politics across models (Table 4): mean score of the last state over all chains.",
        end.mean(),
        published=np.mean([row[column] for row in published4.values()]),
        interval=bootstrap_interval(end),
        n=len(end),
        verdict=above(bootstrap_interval(change)),
        why=f"holds if it rises; mean rise {change.mean():.3f}; published is {kind}",
    )
whole = model.round_trips(traces[run["model"]].final)
share = share_estimate(whole.sum(), len(whole), unit="chains")
run.claim(
    "text-is-the-state",
    "Embedder and scorers read the chain's own state: share of last states whose text tokenises to the state again.",
    share.value,
    interval=share.interval,
    n=share.n,
    verdict=bool(whole.all()),
    why="where it does not, two pieces read as one word, or one word as others: the text is judged, not the state",
)
loss = -gain[np.arange(len(own)), own]
fall = bootstrap_estimate(loss, unit="chains")
run.claim(
    "seed-topic-is-lost",
    "The seed topic's own score falls: mean fall over all chains.",
    fall.value,
    published=np.mean([p[2] - p[3] for p in PUBLISHED.values()]),
    interval=fall.interval,
    n=fall.n,
    verdict=above(fall.interval),
    why="the interval must lie above zero",
)

# %% [markdown]
# All nine labels: the rise with its 95% interval over chains; the permutation test of 'it rises more than the other labels that were not the
# seed's', corrected for nine labels; and the share of chains that start below the label's baseline and cross it.

# %%
ends = np.array([bootstrap_interval(g) for g in gain.T])
nine = rises.assign(**{"mean rise": gain.mean(0), "low": ends[:, 0], "high": ends[:, 1], "p, second scorer": second_rises.p})
nine = nine.drop(columns="rise").sort_values("excess", ascending=False).reset_index()
run.save_table(nine, "basins-labels")

# %% [markdown]
# ## Topics as a Markov chain
# The label with the highest score at each look makes a coarse chain. Its transitions, how long it dwells in a label (runs cut off by the
# end of the chain count as censored), how long until it is back, and its entropy production: zero if, in equilibrium, the topics are visited in
# detailed balance. A finite sample of a reversible chain gives more than zero too: how much, says a simulation of the reversible
# chain with the same flow and the same number of records.

# %%
paths, n_labels = values.argmax(2).T, len(scorer.labels)  # (chains, times)
flow = transition_counts(paths, n_labels)
stay = lambda rows: float((rows[:, 1:] == rows[:, :-1]).mean())  # noqa: E731
rng = np.random.default_rng(run.seed)
produced = entropy_production(flow)
resampled = [paths[rng.integers(len(paths), size=len(paths))] for _ in range(500)]
drawn = np.array([entropy_production(transition_counts(r, n_labels)) for r in resampled])
drawn += produced - drawn.mean()  # resampled chains repeat each other, which adds to their entropy production: centred
production_interval = tuple(np.clip(percentile_interval(drawn), 0, None))
stay_interval = percentile_interval([stay(r) for r in resampled])
reversible = [entropy_production(transition_counts(reversible_paths(paths, n_labels, rng), n_labels)) for _ in range(500)]
rows = []
for k, label in enumerate(scorer.labels):
    (dwell, ended), (away, back) = dwell_times(paths, k), recurrence_times(paths, k)
    rows.append(
        {
            "label": label,
            "share of records": (paths == k).mean(),
            "visits": len(dwell),
            "median dwell (steps)": median_survival(dwell, ended) * run["score_every"] if len(dwell) else np.nan,
            "dwells cut off": int((~ended).sum()) if len(dwell) else 0,
            "median recurrence (steps)": median_survival(away, back) * run["score_every"] if len(away) else np.nan,
            "never back": int((~back).sum()) if len(away) else 0,
        }
    )
dwells = run.save_table(pd.DataFrame(rows), "basins-topic-chain")

# %%
figure, axes = plt.subplots(1, 3, figsize=(15, 4.4), width_ratios=[1.25, 1, 1])
total = flow.sum(1, keepdims=True)
image = matrix(axes[0], np.divide(flow, total, where=total > 0, out=np.zeros(flow.shape)), scorer.labels)
for (row, column), count in np.ndenumerate(flow):
    if count:
        axes[0].text(column, row, count, ha="center", va="center", fontsize=7, color="white" if count > total[row, 0] / 2 else "black")
axes[0].set(xlabel=f"label {run['score_every']} steps later", ylabel="label", title="Transitions (numbers: how many)")
figure.colorbar(image, ax=axes[0], shrink=0.8, label="probability")
places = np.arange(n_labels)
axes[1].barh(places + 0.2, dwells["median dwell (steps)"], height=0.4, label="dwell")
axes[1].barh(places - 0.2, dwells["median recurrence (steps)"], height=0.4, label="until back")
axes[1].set_yticks(places, scorer.labels)
axes[1].set(xlabel="median (steps, Kaplan–Meier)", title="No bar: never, or more than half cut off")
axes[1].legend()
axes[2].hist(reversible, bins=30, color="0.7", label="reversible chain, 500 simulations")
axes[2].axvline(produced, color=COLORS[4], label=f"measured: {produced:.3f}")
axes[2].axvspan(*production_interval, color=COLORS[4], alpha=0.15, label="95%, chains resampled")
axes[2].set(xlabel="entropy production per look (nats)", ylabel="simulations", title="Detailed balance between topics?")
axes[2].legend(fontsize=8)
run.save_figure(figure, "basins-topic-chain")

# %%
# NBVAL_CHECK_OUTPUT
alone = ((flow.sum(0) / flow.sum()) ** 2).sum()
run.claim(
    "topics-persist",
    f"Topics persist: share of looks, {run['score_every']} steps apart, at which the dominant label is the one before.",
    stay(paths),
    interval=stay_interval,
    n=len(paths),
    verdict=above(stay_interval, alone),
    why=f"independent draws with the same frequencies would give {alone:.2f}",
)
p = (1 + np.sum(np.array(reversible) >= produced)) / (1 + len(reversible))
run.claim(
    "topics-out-of-equilibrium",
    "The chain of topics produces entropy: nats per look, against what a reversible chain of the same size would show.",
    produced,
    interval=production_interval,
    n=len(paths),
    verdict="not measurable here",
    why=f"reversible chains give {np.mean(reversible):.3f} on average, p = {p:.2g}; chains that start at their seed topics are not in equilibrium, so even more would prove nothing",
)

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
told = []
for number, k in enumerate(np.linspace(0, len(moments) - 1, 4).astype(int), start=1):
    axis.annotate(str(number), pca.transform(vectors[k : k + 1, 0])[0], xytext=(7, 5), textcoords="offset points", weight="bold")
    told.append(f"{number} (step {moments[k]}): {model.texts(trace.states([moments[k]])[0][shown[:1]])[0][:78]}")
figure.supxlabel("\n".join(told), fontsize=7, x=0.02, ha="left")
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
# What the first chain says on its way: its first moves, then a dozen of the later ones, the token that changed marked.

# %%
made = int((trace.chain == shown[0]).sum())
moves = sorted({*range(min(8, made)), *range(9, made, max(10, made // 12))})
HTML(moves_as_html(moves_in_words(model, trace, shown[0], moves)))

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

# %% [markdown]
# The same chains without any embedding: a stretch is a trap in state space if, of each 300 steps, at least 90% are spent in five states. And the
# trapped texts by what they share: families whose states differ at fewer than half of the sites, the template with a gap where they do.

# %%
looks = np.arange(0, run["trap_steps"] + 1, run["trap_stride"])
still, few = np.zeros((2, run["trap_chains"], len(looks)), bool)
for k in range(run["trap_chains"]):
    mine = traps[traps.chain == k]
    still[k] = inside_runs(zip(mine.start, mine.start + mine.duration - run["trap_stride"] + 300, strict=True), looks)
    few[k] = inside_runs(occupied_runs(trap_trace.visits(k), looks), looks)
family, templates = template_families(traps.state.tolist())
rows = []
for k, template in enumerate(templates):
    mine = traps[family == k]
    blank = np.array(["_"] * n, dtype=object)
    blank[template >= 0] = model.words(template[template >= 0])
    rows.append(
        {
            "template": model.tokenizer.convert_tokens_to_string(blank.tolist()),
            "traps": len(mine),
            "chains": mine.chain.nunique(),
            "distinct states": mine.state.nunique(),
            "sites fixed": int((template >= 0).sum()),
            "steps in all": mine.duration.sum(),
        }
    )
families = run.save_table(pd.DataFrame(rows).head(10), "basins-families")

# %%
cold_vectors = run.cached(embed_states, model, embedder, trap_trace.states(looks))  # (looks, chains, d)
cold_pca = PCA(2, random_state=run.seed).fit(cold_vectors.reshape(-1, cold_vectors.shape[-1]))
cold_share = cold_pca.explained_variance_ratio_
figure, axes = plt.subplots(1, 2, figsize=(12.5, 4.8))
some = traps.chain.value_counts().index[:4]
for k, color in zip(some, COLORS, strict=False):
    points = cold_pca.transform(cold_vectors[:, k])
    axes[0].plot(*points.T, color=color, linewidth=0.6, alpha=0.5)
    axes[0].scatter(*points.T, s=8, color=color, alpha=0.5, linewidth=0, label=f"chain {k}")
for row in traps[traps.chain.isin(some)].drop_duplicates("state").itertuples():
    x, y = cold_pca.transform(embedder.embed([row.text]))[0]
    axes[0].scatter(x, y, marker="*", s=90, color=COLORS[list(some).index(row.chain)], edgecolor="black", linewidth=0.6, zorder=3)
axes[0].scatter([], [], marker="*", s=90, color="white", edgecolor="black", label="state of a trap")
axes[0].set(
    xlabel=f"PC 1 ({cold_share[0]:.0%} of variance)",
    ylabel=f"PC 2 ({cold_share[1]:.0%})",
    title=f"Cold chains and their traps, τ = {run['trap_temperature']:g}",
)
axes[0].legend(fontsize=8)
flat = vectors.reshape(-1, vectors.shape[-1])
plane = TSNE(2, perplexity=min(30, len(flat) // 4), init="pca", random_state=run.seed).fit_transform(flat)
plane = plane.reshape(len(moments), len(shown), 2)
for k, (topic, color) in enumerate(zip(topics, COLORS, strict=False)):
    axes[1].plot(*plane[:, k].T, color=color, linewidth=0.6, alpha=0.5)
    axes[1].scatter(*plane[:, k].T, s=14, color=color, alpha=np.linspace(0.25, 1, len(moments)), linewidth=0)
    axes[1].scatter(*plane[0, k], marker="s", s=60, color=color, edgecolor="black", zorder=3)
    axes[1].scatter(*plane[-1, k], marker="D", s=60, color=color, edgecolor="black", zorder=3, label=topic)
axes[1].set(
    xlabel="t-SNE 1",
    ylabel="t-SNE 2",
    title=f"One chain per topic, τ = {run['temperature']:g} (square: start, diamond: end)",
)
axes[1].legend(fontsize=8, title="seed topic")
run.save_figure(figure, "basins-views")

# %%
# NBVAL_CHECK_OUTPUT


def trapped(found, n_chains, steps):
    """Share of its 300-step windows in which each chain is trapped."""
    return found.groupby("chain").duration.sum().reindex(range(n_chains), fill_value=0) / (steps - 300 + run["trap_stride"])


share, warm_share = trapped(traps, run["trap_chains"], run["trap_steps"]), trapped(warm, len(seeds), run["steps"])
trapped_share = bootstrap_estimate(share, unit="chains")
run.claim(
    "traps-exist",
    "Below the crossover chains are trapped, above it not: share of its windows in which a cold chain is trapped.",
    trapped_share.value,
    interval=trapped_share.interval,
    n=trapped_share.n,
    verdict=above(trapped_share.interval, warm_share.mean()),
    why=f"{len(traps)} traps at τ = {run['trap_temperature']:g}; at τ = {run['temperature']:g} the share is {warm_share.mean():.2f}",
)
each = traps.chain.value_counts().reindex(range(run["trap_chains"]), fill_value=0)
run.claim(
    "trap-count",
    "Traps per chain of 10,000 steps.",
    len(traps) / (run["trap_chains"] * run["trap_steps"]) * 10_000,
    published=17 / 30,
    interval=bootstrap_interval(each / run["trap_steps"] * 10_000),
    n=run["trap_chains"],
    verdict=len(traps) > 0,
    why="holds if there are any; the rate depends on model, embedder and temperature",
)
run.claim(
    "trap-duration",
    "Traps last for hundreds of steps: Kaplan–Meier median of their durations.",
    median_survival(traps.duration, ~traps.censored) if len(traps) else np.nan,
    published=671,
    interval=median_interval(traps.duration, ~traps.censored) if len(traps) else None,
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
    interval=bootstrap_interval(traps.type == "perfect", groups=traps.chain) if len(traps) else None,
    n=len(traps),
    verdict=bool(0 < perfect < len(traps) / 2) if len(traps) else "not measurable here",
    why=f"{perfect} of {len(traps)}",
)
overlap = lambda a, b: (a & b).sum() / max(1, (a | b).sum())  # noqa: E731
draws = [overlap(still[rows], few[rows]) for rows in rng.integers(len(still), size=(500, len(still)))]
interval = percentile_interval(draws)
chance = still.mean() * few.mean() / max(1e-9, still.mean() + few.mean() - still.mean() * few.mean())
run.claim(
    "trap-definitions-agree",
    "Traps found by embedding drift and traps found in state space overlap more than by chance: looks in both over looks in either.",
    overlap(still, few),
    interval=interval,
    n=len(still),
    verdict=above(interval, chance),
    why=f"holds if above {chance:.2f}, as if independent; {still.mean():.0%} of looks are in traps by embedding, {few.mean():.0%} in state space, {(still & few).mean():.0%} in both",
)
variants = traps.groupby(family).state.nunique().reindex(family).to_numpy() > 1
interval = bootstrap_interval(variants, groups=traps.chain) if len(traps) else (np.nan, np.nan)
shared = int((traps.groupby(family).chain.nunique() > 1).sum())
run.claim(
    "trap-families",
    "Traps come in families of sentences that share a template: share of traps in a family of two or more different states.",
    variants.mean() if len(traps) else np.nan,
    interval=interval,
    n=len(traps),
    verdict=above(interval, 0.5),
    why=f"the interval, over chains, must lie above one half; {len(templates)} families, {shared} of them found by more than one chain; {traps.state.nunique()} distinct states in {len(traps)} traps",
)

# %% [markdown]
# ## Temperature regimes
# A few passages after the run at each temperature: drift from the start, share of tokens kept, pseudo-perplexity under the model at temperature
# one (low: text the model finds natural), self-overlap (share of the tokens that stood earlier in the same text), and the text of the first.

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
texts = np.concatenate([start[None], final])  # (1 + regimes, passages, n)
surprise = -run.cached(log_pseudo_likelihood, model, texts.reshape(-1, n)).reshape(texts.shape[:2]) / n  # nats per token
overlap = 1 - np.apply_along_axis(lambda x: len(np.unique(x)) / n, 2, texts)
span = lambda values: "{:.2f}–{:.2f}".format(*bootstrap_interval(values))  # noqa: E731
regime_table = pd.DataFrame(
    {
        "τ": ["start", *(f"{t:g}" for t in regimes)],
        "passages": len(start),
        "mean drift": [0.0, *moved.mean(1)],
        "drift, 95%": ["–", *map(span, moved)],
        "tokens kept": [1.0, *(final == start).mean((1, 2))],
        "pseudo-perplexity": np.exp(surprise.mean(1)),
        "self-overlap": overlap.mean(1),
        "text": model.texts(texts[:, 0]),
    }
)
run.save_table(regime_table, "regimes")

# %%
# NBVAL_CHECK_OUTPUT
regime_claims = (
    ("colder-is-slower", "Colder chains stay closer to their start: Spearman's ρ of temperature and drift", moved, 1),
    ("hotter-is-noise", "Hotter chains write what the model finds less natural: Spearman's ρ of temperature and pseudo-perplexity", surprise[1:], 1),
    ("colder-repeats", "Colder chains repeat themselves more: Spearman's ρ of temperature and self-overlap", overlap[1:], -1),
)
for id, statement, measured, sign in regime_claims:
    correlation = lambda *columns: np.nanmean([spearmanr(regimes, row).statistic for row in np.transpose(columns)])  # noqa: E731
    interval = bootstrap_interval(*measured, statistic=correlation, n_resamples=200)
    run.claim(
        id,
        f"{statement}, mean over passages.",
        correlation(*measured),
        interval=interval,
        n=len(start),
        verdict=(above if sign > 0 else below)(interval),
        why=f"the interval, over passages, must lie {'above' if sign > 0 else 'below'} zero",
    )

# %% [markdown]
# ## Prefix attractors
# The tokens of a fixed prefix are never resampled. Topic and sentiment of what follows the prefix, against chains with none, all
# chains in one batch from the same passages.

# %%
names = ["", *run["prefixes"]]
lead = {prefix: model.tokens(prefix) if prefix else np.array([], dtype=int) for prefix in names}
after = model.states(passages.text.sample(run["prefix_chains"], random_state=run.seed), n=n)  # the free sites
starts = [np.concatenate([tokens, state]) for tokens in lead.values() for state in after]
width = max(map(len, starts))
frozen = np.stack([np.arange(width) < len(tokens) for tokens in lead.values() for _ in after])
prefixed = run.cached(
    run_chains, model, starts, n_steps=run["prefix_steps"], temperature=run["temperature"], seed=run.seed, frozen=frozen,
    progress="prefixes",
)  # fmt: skip
ends = prefixed.final.reshape(len(names), -1, width)
following = [model.texts(end[:, len(tokens) : len(tokens) + n]) for end, tokens in zip(ends, lead.values(), strict=True)]
topic_of = np.stack([scorer.score(texts) for texts in following])  # (prefixes, chains, labels)
feeling = np.stack([sentiment(texts) for texts in following])
table = pd.DataFrame(
    {
        "prefix": [prefix or "(none)" for prefix in names],
        "chains": run["prefix_chains"],
        "topic": [scorer.labels[k] for k in topic_of.mean(1).argmax(1)],
        "score": topic_of.mean(1).max(1),
        "politics": topic_of[..., politics].mean(1),
        "politics, 95%": [span(row) for row in topic_of[..., politics]],
        "sentiment": feeling.mean(1),
        "sentiment, 95%": [span(row) for row in feeling],
        "an end text": [texts[0] for texts in following],
    }
)
run.save_table(table, "prefixes")

# %%
# NBVAL_CHECK_OUTPUT
chains = run["prefix_chains"]
prefix_of, passage_of = np.repeat(np.arange(len(names)), chains), np.tile(np.arange(chains), len(names))
share, p = group_difference(topic_of.reshape(-1, n_labels), prefix_of, blocks=passage_of, seed=run.seed)
run.claim(
    "prefix-shapes-topics",
    "A fixed prefix shapes the topics of what follows: p of 'topic scores do not depend on the prefix', permutation test.",
    p,
    kind="estimate",
    n=topic_of[..., 0].size,
    verdict=True if p < 0.05 else "not measurable here",
    why=f"permuted within starting passages; {share:.0%} of the variance of the scores lies between {len(names)} prefixes (none is one of them)",
)
change = feeling[1:] - feeling[0]  # from the same passages
interval = bootstrap_interval(change.mean(0))
run.claim(
    "prefix-sentiment",
    "A prefix changes the sentiment of what follows: mean change against none, over the prefixes.",
    change.mean(),
    interval=interval,
    n=run["prefix_chains"],
    verdict=True if interval[0] > 0 or interval[1] < 0 else "not measurable here",
    why="holds if the interval, over starting passages, excludes zero; no number is published",
)
along = np.abs(sentiment(model.texts(traces[run["model"]].final))) - np.abs(sentiment(model.texts(traces[run["model"]].initial)))
fading = bootstrap_estimate(along, unit="chains")
run.claim(
    "sentiment-fades",
    "Sentiment fades along the chain: mean change of its strength from first to last state.",
    fading.value,
    interval=fading.interval,
    n=fading.n,
    verdict=below(fading.interval),
    why="the interval must lie below zero; no number is published",
)

# %%
run.finish()
