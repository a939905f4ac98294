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
# A chain started on a passage resamples one token at a time, for thousands of steps. This section asks what its text is about later,
# and where the chain stays.
#
# **Claims of the paper.**
# 1. Chains started on health, sport, science, food and technology lose their topic.
# 2. Political content, nearly absent at the start, rises, and crosses its baseline at some time in most chains (46 of 50).
# 3. Chains are stuck for hundreds of steps in single sentences (traps), some of them perfect: each token is the most likely one.
# 4. Temperature and fixed prefixes shape what the chain visits.
#
# **Added here.** Controls of the scorers: noise, shuffled texts, texts that are no states. The other eight labels beside politics, by one test.
# The labels as a Markov chain; traps in state space, found without an embedding; families of traps. "What was found", at the end, says which
# claims held.

# %% tags=["parameters"]
profile = "mini"

# %%
import textwrap
from dataclasses import replace
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import HTML
from sklearn.decomposition import PCA

from glauber_lib import controls, permutation, plotting, readings, stats, survival, topics, traps
from glauber_lib.chains import run_chains
from glauber_lib.margins import log_pseudo_likelihood
from glauber_lib.paper import Run

run = Run("04_basins", profile)
model, n = run.model(run["model"]), run["n_tokens"]
compared = list(dict.fromkeys([run["model"], *run["models"]]))  # the chain's own model and those of Table 4
passages = run.passages(*map(run.model, compared), n=n)
tools = run.instruments(passages)
scorer, seeds, labels = tools.scorer, tools.seeds, tools.scorer.labels
judges = {"first": scorer, "second": tools.second}
politics, baseline = labels.index("politics"), 1 / len(labels)
own = np.array([labels.index(topic) for topic in seeds.topic])  # the seed's label of each chain


spread = lambda k: np.linspace(0, len(seeds) - 1, k).astype(int)  # noqa: E731  # k of the seeds, over all topics


def span(values, digits=2, within=(0, 1)):
    """Student's 95% interval of a mean that lies `within` two numbers, as text; a dash where the values tell none."""
    band = stats.mean_band(np.asarray(values, float)[:, None], within=within)
    return "–" if np.isnan(band.low[0]) else f"{band.low[0]:.{digits}f}–{band.high[0]:.{digits}f}"


# %% [markdown]
# The published numbers of this section. Table 3 is bert-base-uncased; Table 4 repeats its politics score at step 10,000 beside two other models.
# They belong to other models, scorers and lengths of run than the embedded ones: context, no target.

# %%
PUBLISHED = pd.DataFrame(
    {
        "health": (0.008, 0.044, 0.631, 0.116, 0.112, 0.026),
        "sport": (0.011, 0.036, 0.763, 0.204, 0.042, 0.052),
        "science": (0.003, 0.056, 0.682, 0.068, 0.062, 0.037),
        "food": (0.003, 0.174, 0.834, 0.037, 0.052, 0.038),
        "technology": (0.004, 0.038, 0.846, 0.152, 0.198, 0.033),
    },
    index=[
        "politics start",
        "politics end",
        "seed start",
        "seed end",
        "RoBERTa politics end",
        "ModernBERT politics end",
    ],
).T.reindex(run["topics"])
PUBLISHED_TRAPS = pd.DataFrame(
    [
        (". . . . . . . . . . . . . . . (published)", 4950, 9.14, 7.46, "perfect"),
        ("theme song for jesus christ superstar (published)", 650, 5.44, 0.56, "perfect"),
        ("winners are awarded 2 points... (published)", 350, 4.16, 0.06, "perfect"),
    ],
    columns=["text", "duration", "mean_gap", "min_gap", "type"],
)

# %% [markdown]
# ## The scorers
# A scorer gives each text probabilities of nine labels. The paper asks two NLI classifiers, bart-large-mnli and a DeBERTa-v3. The default profile
# has stand-ins: the first scorer compares sentence embeddings with a description of each label (softmax, scale 20); the second is a logistic
# regression on the words of the passages that seed no chain. The second shares neither features nor texts with the first. VADER stands in for
# the default sentiment pipeline, and passages written for this repository for MS MARCO.
#
# **Claim.** Both scorers recognise the topic of passages whose topic is known, cut to the length of a chain. An accuracy below 0.85 (first) or
# below one half (second) would contradict it.

# %%
cut_short = lambda frame: model.texts(model.states(frame.text, n=n))  # noqa: E731
labelled = "topic" in passages
known = run.cached(scorer.score, cut_short(passages)) if labelled else None  # (passages, labels)


def accuracy(scores, topic):
    """How often the label that scores highest is the passage's topic."""
    hits = np.array(labels)[topics.top_labels(scores)[0]] == topic
    return stats.share_estimate(hits.sum(), len(hits), unit="passages")


# %%
# NBVAL_CHECK_OUTPUT
run.claim(
    "basins/scorer-accuracy",
    accuracy(known, passages.topic) if labelled else None,
    note="" if labelled else "the passages have no labels",
)
run.claim(
    "basins/second-scorer-accuracy",
    accuracy(tools.second.score(cut_short(seeds)), seeds.topic),
    note=f"chance is 1/{len(labels)}" + ("" if labelled else "; the labels are the first scorer's"),
)

# %% [markdown]
# High accuracy on passages says that a scorer knows the topics of fluent text. It says nothing about the scorer's answer to text that is no
# longer fluent, which is what long chains write. The controls below ask for that.
#
# ## Topics along the chain (Tables 3 and 4)
# Each seed topic gives the same number of passages, cut to the chain's length. All chains of a model run as one batch, and both scorers
# read the same states at the same looks. The seeds run a second time at other temperatures. The hottest of these chains write noise.

# %%
times = np.arange(0, run["steps"] + 1, run["score_every"])
late = times > run["steps"] / 2  # the looks that count: the start is half a run away
ladder = np.array(sorted({*run["regime_temperatures"], run["temperature"]}))
others = ladder[ladder != run["temperature"]]  # the chains at the temperature of this section are there already


def steps_of(name):
    """Steps of the chains of a model: those of a model that is only compared may be fewer."""
    return run["steps"] if name == run["model"] else run["other_steps"]


def run_topics(name):
    """The chains of a model from the seeds."""
    states = run.model(name).states(seeds.text, n=n)
    return run.cached(
        run_chains, run.model(name), states, n_steps=steps_of(name), temperature=run["temperature"], seed=run.seed,
        progress=name,
    )  # fmt: skip


traces = {name: run_topics(name) for name in compared}
trace = traces[run["model"]]
ladder_trace = run.cached(
    run_chains, model, np.tile(trace.initial, (len(others), 1)), n_steps=run["regime_steps"],
    temperature=np.repeat(others, len(seeds)), seed=run.seed, progress="other temperatures",
)  # fmt: skip
noise_looks = np.linspace(0.6, 1, 3) * run["regime_steps"]
noise = ladder_trace.states(noise_looks.astype(int)).reshape(3, len(others), len(seeds), n)[:, -1]
shuffled = controls.shuffle_sites(trace.states(times[late]), np.random.default_rng([run.seed, 2]))


# %%
def read(judge, states):
    """Topic scores of states of the section's model, (looks, chains, labels)."""
    return run.cached(readings.topic_scores, model, judge, states)


path = {which: read(judge, trace.states(times)) for which, judge in judges.items()}
noise_scores = {which: read(judge, noise) for which, judge in judges.items()}
texts = {  # what each scorer says of each kind of texts, by chain, (chains, labels)
    which: {
        "chains": path[which][late].mean(0),
        "first looks": path[which][0],
        "noise": noise_scores[which].mean(0),
        "shuffled chains": read(judge, shuffled).mean(0),
    }
    for which, judge in judges.items()
}
vectors = run.cached(readings.embed_states, model, tools.embedder, trace.states(times))  # (looks, chains, d)
drift = readings.cosine_distance(vectors, vectors[0])  # (looks, chains)

# %% [markdown]
# Scorers and embedder read texts, and the text of a state need not be tokenised to that state again: two pieces may read as one word. Measured:
# what each mean of the second half of the chains changes by when only the looks whose state survives are kept. A difference between means that is
# no larger than this change may come from states that are not their texts.


# %%
# NBVAL_CHECK_OUTPUT
def claim_survival(reading, values, survives, note=""):
    """That a mean over looks (looks, chains) is what it is over the looks that survive."""
    run.claim(f"basins/text-is-the-state/{reading}", controls.surviving_difference(values, survives), note=note)


survives = model.round_trips(trace.states(times[late]).reshape(-1, n)).reshape(-1, len(seeds))
run.claim("basins/states-that-survive", stats.bootstrap_estimate(survives.mean(0), unit="chains"))
reread = {f"politics-{which}": path[which][late][..., politics] for which in judges} | {"drift": drift[late]}
for name, values in reread.items():
    claim_survival(name, values, survives)


# %% [markdown]
# Table 3 has the mean scores at the first and the last step, by seed topic. A topic has few chains here, so no verdict is given by topic.


# %%
def table3(values):
    """Politics and seed-topic scores at the first and last step, by seed topic; `values` (times, chains, labels)."""
    rows = []
    for topic in run["topics"]:
        mine = (seeds.topic == topic).to_numpy()
        pol, seed = values[:, mine, politics], values[:, mine, labels.index(topic)]
        rows.append(
            {
                "topic": topic, "chains": mine.sum(),
                "politics start": pol[0].mean(), "politics end": pol[-1].mean(),
                "seed topic start": seed[0].mean(), "seed topic end": seed[-1].mean(),
                "politics end, 95%": span(pol[-1], 3), "seed topic end, 95%": span(seed[-1], 3),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


topic_table = table3(path["first"])
for column in ("politics start", "politics end", "seed start", "seed end"):
    when = ", step 10,000" if column.endswith("end") else ""
    topic_table[f"published {column}{when}"] = PUBLISHED[column].to_numpy()
run.save_table(topic_table, "table3-politics")

# %% [markdown]
# Student's intervals of a topic's few chains are cut at 0 and 1, which a score cannot leave.
#
# Table 4 compares the end points across the profile's models, of which all but the section's own may take fewer steps. The default profile runs
# one model, because the minutes go into its chains.

# %%
model_table = pd.DataFrame({"topic": run["topics"], "chains": run["seeds"]})
ends = {}
for name in run["models"]:
    values = run.cached(readings.topic_scores, run.model(name), scorer, traces[name].states([0, steps_of(name)]))
    ends[name] = values[..., politics]  # (2, chains)
    when = "end" if steps_of(name) == run["steps"] else f"at step {steps_of(name)}"
    model_table[[f"{name}, politics {when}", f"{name}, 95%"]] = table3(values)[["politics end", "politics end, 95%"]]
model_table[[f"{name}, published, step 10,000" for name in ("BERT", "RoBERTa", "ModernBERT")]] = PUBLISHED[
    ["politics end", "RoBERTa politics end", "ModernBERT politics end"]
].to_numpy()
run.save_table(model_table, "table4-models")

# %%
# NBVAL_CHECK_OUTPUT
for name, (start, end) in ends.items():
    after = "" if steps_of(name) == run["steps"] else f" in {steps_of(name)} of {run['steps']} steps"
    run.claim(
        f"basins/politics-end/{name}",
        stats.bootstrap_estimate(end, unit="chains"),
        note=f"mean rise {(end - start).mean():.3f}{after}; the published values are of other models after 10,000 steps",
    )

# %% [markdown]
# The scores at every look: one panel for each seed topic, and one for all chains.


# %%
def panel_topic(axis, title, mine, own_score):
    """Politics and the seed's own topic along some of the chains."""
    series = ((own_score, "the seed's topic", 0, "-"), (path["first"][:, mine, politics], "politics", 4, "--"))
    for values, name, color, dash in series:
        band = stats.mean_band(values.T, within=(0, 1))
        plotting.interval_band(axis, times, band, label=name, color=plotting.COLORS[color], linestyle=dash)
        for edge in (band.low, band.high):
            axis.plot(times, edge, color=plotting.COLORS[color], linestyle=dash, linewidth=0.5)
    level = texts["first"]["noise"][:, politics].mean()
    axis.axhline(level, color="0.3", linestyle=":", label="politics in noise")
    axis.set(title=f"{plotting.literal(title)}, {mine.sum()} chains", ylim=(0, 1.02))


# %%
figure, axes = plt.subplots(2, 3, figsize=(plotting.PAGE, 4.4), sharex=True, sharey=True)
for axis, topic in zip(axes.flat, run["topics"], strict=False):
    mine = (seeds.topic == topic).to_numpy()
    panel_topic(axis, topic, mine, path["first"][:, mine, labels.index(topic)])
for axis in axes.flat[len(run["topics"]) :]:
    axis.set_axis_off()
axes.flat[-1].set_axis_on()
panel_topic(axes.flat[-1], "all seeds", own >= 0, path["first"][:, np.arange(len(own)), own])
figure.supxlabel(f"step ($\\tau$ = {run['temperature']:g}, $n$ = {n})", fontsize=8)
figure.supylabel("score by the first scorer, mean and Student's 95% band", fontsize=8)
figure.legend(*axes.flat[-1].get_legend_handles_labels(), loc="outside upper center", ncols=3)
run.save_figure(figure, "basins-topics")

# %% [markdown]
# Over all seeds the score of the seed's topic falls, and the politics score rises to about the level that the scorer gives to noise. The bands of a
# single topic rest on few chains: the figure does not show that seed topics differ.
#
# **Measured:** how far the seed topic's own score falls from the first look to the second half of the run. The paper claims that the topic is lost; that of
# any chain that moves is, so a fall alone is no evidence.

# %%
# NBVAL_CHECK_OUTPUT
fall = texts["first"]["first looks"] - texts["first"]["chains"]  # (chains, labels)
run.claim("basins/seed-topic-is-lost", stats.bootstrap_estimate(fall[np.arange(len(own)), own], unit="chains"))

# %% [markdown]
# ## Is it politics, or the scorer?
# A scorer answers for any text. A text that turns to noise moves every label that was near zero towards the scorer's answer to noise. So the
# chains are compared with three kinds of texts from the same seeds: their first looks; noise, the states of chains at the highest temperature;
# and the chains' own states with their tokens shuffled, which keep the words and lose the order. Texts of the corpora that the models learned from
# would be a fourth kind; the package has none.
#
# Measured, for both scorers: by how much politics rises from the first looks. That of noise rises too.
#
# **Claims**, each for both scorers, politics having been named before. Politics in the second half of the
# chains exceeds politics in noise, and (by the first scorer; the second reads words alone) in the shuffled texts. An interval of the mean
# difference below zero would contradict each of them.


# %%
def panel_controls(axis, which):
    """Mean scores of all labels in each kind of texts, over the chains whose seed has another label."""
    styles = {"chains": "o", "first looks": "^", "noise": "s", "shuffled chains": "x"}
    for shift, (kind, marker), color in zip((-0.24, -0.08, 0.08, 0.24), styles.items(), (4, 5, 0, 1), strict=True):
        values = texts[which][kind]
        rows = [stats.mean_band(values[own != k, k][:, None], within=(0, 1)) for k in range(len(labels))]
        band = pd.concat(rows, ignore_index=True)
        error = np.array([band["mean"] - band.low, band.high - band["mean"]]).clip(0)
        axis.errorbar(band["mean"], np.arange(len(labels)) + shift, xerr=error, fmt=marker, label=kind, capsize=1.5,
                      color=plotting.COLORS[color], markersize=3.5, elinewidth=0.8)  # fmt: skip
    axis.axvline(baseline, color="0.3", linestyle=":", linewidth=0.8, label=f"1/{len(labels)}")
    axis.set_yticks(range(len(labels)), labels)
    axis.set(xlabel="mean score", title=f"{which} scorer", ylim=(len(labels) - 0.5, -0.5))


figure, axes = plt.subplots(1, 2, figsize=(plotting.PAGE, 3.6), sharex=True, sharey=True)
for axis, which in zip(axes, judges, strict=True):
    panel_controls(axis, which)
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
others_of = len(own) - np.bincount(own, minlength=len(labels))  # chains that a label did not seed
counted = f"{others_of.max()} chains" + (f", {others_of.min()} for a seed topic" if np.ptp(others_of) else "")
figure.supxlabel(f"{counted} (its own chains are left out); Student's 95% intervals, one by one", fontsize=7)
run.save_figure(figure, "basins-controls")

# %% [markdown]
# Each label's level in noise is its scorer's own bias. The distance from the square to the circle is what the chain adds. Shuffled texts score
# nearly as the chains do (in `desk` somewhat higher in education): the scorers read words more than sentences, the second one nothing else. The figure does not show what a better scorer would
# say of text that is no longer fluent.

# %%
# NBVAL_CHECK_OUTPUT
for which in judges:
    said = {kind: values[:, politics] for kind, values in texts[which].items()}
    run.claim(
        f"basins/politics-rises/{which}", stats.bootstrap_estimate(said["chains"] - said["first looks"], unit="chains")
    )
    for kind in ("noise", "shuffled chains") if which == "first" else ("noise",):
        run.claim(
            f"basins/politics-exceeds/{kind.split()[0]}/{which}",
            stats.bootstrap_estimate(said["chains"] - said[kind], unit="chains"),
            note=f"means {said['chains'].mean():.3f} and {said[kind].mean():.3f}",
        )

# %% [markdown]
# ## Politics among nine labels
# Politics is compared with the other labels that were not the seed's, by each chain's gain over noise: the mean score of the second half of its
# run less that of the noise from the same seed. The looks are averaged before the test, so they are not tested one by one. The test exchanges
# the labels in each chain, for both scorers at once. The statistic is Student's t, and its maximum over nine labels and two scorers corrects
# for all eighteen of them.
#
# **Claim.** Politics stands out by both scorers; a corrected p of 0.05 or more by one of them leaves it open. How much more politics gains than the
# others is given as a number, without a verdict: the test answers for the nine labels that were looked at, an interval of one label does not.

# %%
gains = np.stack([texts[which]["chains"] - texts[which]["noise"] for which in judges])  # (scorers, chains, labels)
rises = permutation.label_rises(gains, own, seed=run.seed)
crossed = {which: controls.first_crossings(values, baseline) for which, values in path.items()}
nine = pd.DataFrame({"label": labels})
for k, (which, (low, across)) in enumerate(crossed.items()):
    mine = rises[rises.scorer == k].reset_index(drop=True)
    columns = {"gain": mine.rise, "excess": mine.excess, "p corrected": mine.p_max}
    columns["share that cross"] = across.sum(0) / np.maximum(1, low.sum(0))
    nine = nine.assign(**{f"{name}, {which}": values for name, values in columns.items()})
if labelled:
    nine["passages of other topics, first"] = [
        known[passages.topic != label, k].mean() for k, label in enumerate(labels)
    ]
run.save_table(nine.sort_values("excess, first", ascending=False), "basins-labels")

# %%
# NBVAL_CHECK_OUTPUT
singled = rises[rises.label == politics].set_index("scorer")
most = [labels[rises.label[rises.excess[rises.scorer == k].idxmax()]] for k in range(len(judges))]
named = ", ".join(f"{label} by the {which}" for label, which in zip(most, judges, strict=True))
run.claim(
    "basins/politics-stands-out",
    stats.Estimate(singled.p_max.max(), None, len(own), "chains"),
    note=f"p {singled.p_max[0]:.2g} and {singled.p_max[1]:.2g} by the two scorers; most in excess of noise: {named}",
)
for gain, which in zip(gains, judges, strict=True):
    rest = [np.delete(row, [politics, k]).mean() for row, k in zip(gain, own, strict=True)]
    run.claim(f"basins/politics-gains-more/{which}", stats.bootstrap_estimate(gain[:, politics] - rest, unit="chains"))

# %% [markdown]
# **Claim.** Chains cross the politics baseline of 1/9 oftener than the baselines of the other labels, of which each chain's seed topic is left
# out. An interval of the difference below zero would contradict it. Where more than 95% of all crossings that could be were seen, the shares tell
# nothing apart, and the claim is not measurable. The share that cross, which the paper reports, is given as a number: a label
# that fluctuates crosses in the end, and so do texts of noise, if there are as many looks. The chance of the latter supposes independent looks,
# which those of a chain are not: the chance is an upper end.

# %%
# NBVAL_CHECK_OUTPUT
for which, (low, across) in crossed.items():
    above = (noise_scores[which][..., politics] > baseline).mean()
    by_noise = controls.chance_crossing(above, len(times) - 1)
    run.claim(
        f"basins/politics-crosses/{which}",
        stats.share_estimate(across[:, politics].sum(), low[:, politics].sum(), unit="chains"),
        note=f"{len(times) - 1} looks; as many independent looks at noise cross with chance {by_noise:.2f}",
    )
    excess, seen = controls.crossing_excess(low, across, own, politics), across[low].mean()
    note = f"of all crossings that could be {seen:.0%} were"
    if seen > 0.95:  # politics cannot be crossed oftener, nor much less often, than what nearly always is
        excess, note = None, f"{len(times) - 1} looks saturate the crossing: {note}"
    run.claim(f"basins/politics-crosses-more/{which}", excess, note=note)

# %% [markdown]
# ## Topics as a Markov chain
# The label with the highest score at each look makes a chain of labels. Three properties are measured: how often the label stays from look to
# look; how long it dwells and stays away (Kaplan–Meier, because the end of the run cuts both off); and its entropy production, which is
# zero if the labels are visited in detailed balance. A finite sample of a reversible chain gives more than zero as well. Simulations of the
# reversible chain with the same symmetrised flow say how much, and this bias is subtracted.
#
# How much oftener the label stays than independent draws of the same frequencies would have it is a number without a verdict: between two looks a
# chain changes a part of its tokens, and nearly any chain would keep its label for that reason alone.

# %%
best, near = topics.top_labels(path["first"])
paths = best.T  # (chains, times)
flow = topics.transition_counts(paths, len(labels))
production = topics.measure_entropy_production(paths, len(labels), np.random.default_rng([run.seed, 1]))
stays = topics.persistence(paths, labels)
dwells = topics.describe_labels(paths, labels)
dwells[["dwell", "recurrence"]] *= run["score_every"]
dwells.columns = [
    "label", "share of records", "visits", "median dwell (steps)", "dwells cut off", "median recurrence (steps)", "never back",
]  # fmt: skip
run.save_table(dwells, "basins-topic-chain")


# %%
def panel_transitions(axis):
    """Transition probabilities between labels, with the counts."""
    total = flow.sum(1, keepdims=True)
    chances = np.divide(flow, total, where=total > 0, out=np.zeros(flow.shape))
    image = plotting.matrix(axis, chances, labels, vmax=chances.max())
    for (row, column), count in np.ndenumerate(flow):
        if count:
            color = "white" if chances[row, column] > chances.max() / 2 else "black"
            axis.text(column, row, count, ha="center", va="center", fontsize=7, color=color)
    axis.set(xlabel=f"label {run['score_every']} steps later", ylabel="label", title="transitions (numbers: how many)")
    axis.figure.colorbar(image, ax=axis, shrink=0.7, label="probability")


def panel_stays(axis):
    """How often each label stays, in the order of the transitions, against independent draws."""
    places = np.arange(len(labels))
    error = np.nan_to_num([stays["mean"] - stays.low, stays.high - stays["mean"]]).clip(0)
    axis.errorbar(stays["mean"], places, xerr=error, fmt="o", capsize=2, label="measured, 95%")
    axis.plot(stays.share, places, "kx", label="independent draws")
    axis.set_yticks(places, [f"{label} ({k})" for label, k in zip(labels, stays.chains, strict=True)], fontsize=7)
    axis.set(xlabel="share of looks that keep the label", ylim=(len(labels) - 0.5, -0.5), xlim=(-0.02, 1.02))
    axis.set_title("persistence (in brackets: chains)")


def panel_production(axis):
    """Entropy production against simulations in detailed balance."""
    axis.hist(production.reversible, bins=30, color="0.7", label="reversible chain, simulated")
    axis.axvline(production.measured, color=plotting.COLORS[4], label="measured")
    axis.set(xlabel="entropy production per look (nats)", ylabel="simulations")


# %%
layout = [["transitions", "stays"], ["transitions", "production"]]
figure, axes = plt.subplot_mosaic(layout, figsize=(plotting.PAGE, 4.2), width_ratios=[1.4, 1], height_ratios=[1.5, 1])
for panel in (panel_transitions, panel_stays, panel_production):
    panel(axes[panel.__name__.removeprefix("panel_")])
for name in ("stays", "production"):
    axes[name].legend(loc="lower center", bbox_to_anchor=(0.5, 1.1 if name == "stays" else 1.0), ncols=2, fontsize=7)
run.save_figure(figure, "basins-topic-chain")

# %% [markdown]
# Labels stay from look to look about as often as independent draws would, or more often: those whose interval does not hold the cross. The intervals resample chains; a label visited by fewer than five
# chains has none. The measured entropy production lies among the simulated ones: no direction of time is shown, and none is excluded. Chains that
# start at their seed topics are not in equilibrium, so even a larger value would not prove that the stationary chain lacks detailed balance.

# %%
# NBVAL_CHECK_OUTPUT
run.claim(
    "basins/topics-persist",
    topics.persistence_excess(paths, len(labels)),
    note=f"{(paths[:, 1:] == paths[:, :-1]).mean():.2f} of looks {run['score_every']} steps apart keep the label; "
    f"{near.sum()} of {near.size} labels are near-ties",
)
run.claim(
    "basins/topics-out-of-equilibrium",
    production.excess("chains"),
    note=f"measured {production.measured:.3f}; reversible chains give {production.reversible.mean():.3f} on average, p = {production.p:.2g}",
)

# %% [markdown]
# ## Trajectories (Figures 1 and 4)
# The sentence embeddings of one chain from each seed topic, in the plane of their two principal components, warm (early) to cool (late).

# %%
shown = [int(np.flatnonzero(seeds.topic == topic)[0]) for topic in run["topics"]]
pca = PCA(2, random_state=run.seed).fit(vectors[:, shown].reshape(-1, vectors.shape[-1]))
variance = f"the plane holds {pca.explained_variance_ratio_.sum():.0%} of the variance"
numbered = np.linspace(0, len(times) - 1, 4).astype(int)


def panel_trajectory(axis):
    """The first chain, four of its states numbered."""
    plotting.trajectory(axis, pca.transform(vectors[:, shown[0]]))
    for number, point in enumerate(pca.transform(vectors[numbered, shown[0]]), start=1):
        axis.plot(*point, "o", markersize=8, markerfacecolor="none", markeredgecolor="black")
        axis.annotate(str(number), point, xytext=(6, 4), textcoords="offset points", weight="bold", fontsize=8)
    axis.set(xlabel="PC 1", ylabel="PC 2", title=variance)
    axis.margins(0.12)


def panel_texts(axis):
    """The whole texts of the numbered states."""
    written = model.texts(trace.states(times[numbered])[:, shown[0]])
    told = [
        f"{k} (step {t}): {text}" for k, (t, text) in enumerate(zip(times[numbered], written, strict=True), start=1)
    ]
    filled = "\n\n".join(textwrap.fill(line, 58) for line in told)
    axis.text(0, 1, filled, va="top", fontsize=7, transform=axis.transAxes, in_layout=False)
    axis.plot([], [], "s", color="#b40426", markeredgecolor="black", label="start (warm)")
    axis.plot([], [], "D", color="#3b4cc0", markeredgecolor="black", label=f"step {run['steps']} (cool)")
    axis.legend(loc="lower left", ncols=2)
    axis.set_axis_off()


# %%
figure, axes = plt.subplots(1, 2, figsize=(plotting.PAGE, 3.2))
panel_trajectory(axes[0])
panel_texts(axes[1])
run.save_figure(figure, "fig1-trajectory")

# %%
figure, axes = plt.subplots(2, 3, figsize=(plotting.PAGE, 4.4), sharex=True, sharey=True)
for k, (chain, topic) in enumerate(zip(shown, run["topics"], strict=True)):
    plotting.trajectory(axes.flat[k], pca.transform(vectors[:, chain]), title=topic)
for axis in axes.flat[len(shown) :]:
    axis.set_axis_off()
explained = f"One chain of {run['steps']} steps each,\nlooked at every {run['score_every']} steps.\n{textwrap.fill(variance.capitalize(), 28)}."
axes.flat[-1].text(0, 0.9, f"Square: start (warm).\nDiamond: end (cool).\n\n{explained}", va="top", fontsize=8,
                   transform=axes.flat[-1].transAxes, in_layout=False)  # fmt: skip
for axis in axes.flat[len(shown) - 3 : 3]:
    axis.tick_params(labelbottom=True)  # below it there is none
figure.supxlabel("PC 1", fontsize=8)
figure.supylabel("PC 2", fontsize=8)
run.save_figure(figure, "fig4-trajectories")

# %% [markdown]
# In `desk` the chains wander over the region that the others visit; 400 steps of the default profile are too few for some. The plane holds a small share of the
# variance: two points that are close in the plane need not be close in the embedding, and neither figure proves a basin.
#
# The first chain in words: its first moves, then a dozen of the later ones, the token that changed marked.

# %%
made = int((trace.chain == shown[0]).sum())
moves = sorted({*range(min(8, made)), *range(9, made, max(10, made // 12))})
HTML(plotting.moves_as_html(readings.moves_in_words(model, trace, shown[0], moves)))

# %% [markdown]
# ## Traps (Table 5)
# A trap is a maximal run of 300-step windows whose mean cosine drift stays under 0.12; a run of fewer than 150 steps, the shortest published one,
# is none. Its representative is the state held longest; the trap is perfect if every token of that state is the argmax of its conditional. The
# paper found 17 traps in 30 chains of 10,000 steps, with a mean duration of 671 steps; 4 of the 17 were perfect.
#
# The threshold was chosen for the published embedder. Its meaning for the embedder used here is checked on the chains of the topics above, which
# start from the same seeds at a higher temperature. Cold chains are cheaper: the engine computes only what a chain has not seen.
#
# Measured: by how much the share of still windows of cold chains exceeds that of warm ones, from the same seeds and over the same steps. Warm chains
# never stand still, so the difference cannot be negative, and no claim is made of it.

# %%
cold_trace = run.cached(
    run_chains, model, trace.initial[spread(run["trap_chains"])], n_steps=run["trap_steps"],
    temperature=run["trap_temperature"], seed=run.seed + 1, progress="traps",
)  # fmt: skip
cold = run.cached(traps.survey_traps, model, cold_trace, tools.embedder, stride=run["trap_stride"])
warm = run.cached(traps.survey_traps, model, trace, tools.embedder, stride=run["trap_stride"])
table5 = cold.traps.assign(
    **{"text is the state": model.round_trips(np.array(cold.traps.state.tolist(), int).reshape(-1, n))}
)
columns = [
    "text",
    "chain",
    "duration",
    "censored",
    "type",
    "mean_gap",
    "min_gap",
    "share",
    "escape",
    "bound",
    "holding",
]
calls = cold_trace.model_calls / (run["trap_chains"] * run["trap_steps"])
print(f"{calls:.2f} model calls per step at τ = {run['trap_temperature']:g}")
run.save_table(
    pd.concat([table5[[*columns, "text is the state"]].head(15), PUBLISHED_TRAPS], ignore_index=True), "table5-traps"
)

# %% [markdown]
# The column `bound` of Table 5 is the paper's bound on the escape probability of one step. It exceeds one wherever it is loose; `escape` is the
# exact probability.
#
# The trapped states by what they share: a family holds states that differ at fewer than half of the sites, and its template has a gap where they
# differ.


# %%
def in_words(template):
    """The text of a template, a gap at each site where its states differ."""
    words = np.array(["_"] * n, dtype=object)
    fixed = np.array(template) >= 0
    words[fixed] = model.words(np.array(template)[fixed])
    return model.tokenizer.convert_tokens_to_string(words.tolist())


families = cold.families.assign(
    **{"sites fixed": [sum(token >= 0 for token in template) for template in cold.families.template]},
    template=list(map(in_words, cold.families.template)),
).rename(columns={"states": "distinct states", "steps": "steps in all"})
order = ["template", "traps", "chains", "distinct states", "sites fixed", "steps in all"]
run.save_table(families[order].head(10).reset_index(drop=True), "basins-families")


# %%
# NBVAL_CHECK_OUTPUT
def over_traps(*columns, **options):
    """A statistic of columns of traps, by default the mean, with its interval over chains; None without traps."""
    if len(cold.traps):
        return stats.bootstrap_estimate(*columns, groups=cold.traps.chain, unit="chains", **options)


def median_duration(time, ended):
    """Kaplan–Meier median; where more than half are cut off, infinite."""
    median = survival.median_survival(time, ended)
    return np.inf if np.isnan(median) else median


spans = warm.windows.shape[1]  # of the cold chains the windows that the warm ones have too
warmer = warm.windows[spread(run["trap_chains"])].mean(1) if spans else np.zeros(run["trap_chains"])
run.claim(
    "basins/traps-exist",
    stats.bootstrap_estimate(cold.windows[:, :spans].mean(1) - warmer, unit="chains") if spans else None,
    note=f"τ = {run['trap_temperature']:g} against {run['temperature']:g}, {spans} windows a chain; {warmer.mean():.2f} of the warm ones are still"
    if spans
    else "runs too short",
)
each = cold.traps.chain.value_counts().reindex(range(run["trap_chains"]), fill_value=0)
run.claim(
    "basins/trap-count",
    stats.bootstrap_estimate(each, unit="chains"),
    note=f"{len(cold.traps)} traps in {run['trap_chains']} chains of {run['trap_steps']} steps at τ = {run['trap_temperature']:g}, "
    f"{cold.traps.censored.astype(bool).sum()} of them cut off by the end of the run; they are of {len(cold.families) / run['trap_chains']:.2g} "
    "families a chain",
)

# %% [markdown]
# Durations and kinds are medians or means over traps. Their intervals resample whole chains, because several traps come from one chain, and one
# long trap keeps its chain from another.
#
# **Claim.** Fewer than half of the traps are perfect; an interval of their share above one half would contradict it.

# %%
# NBVAL_CHECK_OUTPUT
cut = cold.traps.censored.astype(bool)
duration = over_traps(cold.traps.duration, ~cut, statistic=median_duration)
perfect = cold.traps.type == "perfect"
run.claim(
    "basins/trap-duration",
    duration and replace(duration, kind="censored"),
    note=f"{cut.sum()} of {len(cut)} traps last to the end of the run; one chain has up to {each.max()}",
)
run.claim("basins/perfect-traps", over_traps(perfect.astype(float)), note=f"{perfect.sum()} of {len(perfect)} traps")


# %%
def panel_spans(axis):
    """When each chain is trapped, the chains with most trapped steps on top."""
    total = cold.traps.groupby("chain").duration.sum().reindex(range(run["trap_chains"]), fill_value=0)
    row = pd.Series(np.arange(len(total)), index=total.sort_values().index)
    for kind, color in (("perfect", 0), ("approximate", 1)):
        mine = cold.traps[cold.traps.type == kind]
        style = {"color": plotting.COLORS[color], "edgecolor": "black", "linewidth": 0.4}
        style["hatch"] = "" if kind == "perfect" else "////"
        axis.barh(row[mine.chain], mine.duration, left=mine.start, height=0.7, **style)
        axis.bar(0, 0, label=kind, **style)
    axis.set(xlabel="step at which a still window starts", ylabel="chain, by trapped steps", yticks=[])
    axis.set(
        ylim=(-0.6, len(total) - 0.4),
        xlim=(0, cold.looks[cold.windows.shape[1] - 1] + run["trap_stride"]),
        title=f"{len(total)} chains, $\\tau$ = {run['trap_temperature']:g}",
    )


def panel_durations(axis):
    """How long traps last: Kaplan–Meier curve, and the interval of its median."""
    curve = survival.survival_curve(cold.traps.duration, ~cut)
    axis.step(curve.time, curve.share, where="post", color="black")
    low, high = duration.interval
    open_end = not high < curve.time.max()
    axis.plot([low, curve.time.max() if open_end else high], [0.5, 0.5], color=plotting.COLORS[4], marker="|",
              markevery=[0] if open_end else [0, 1],
              label="95% interval of the median" + (", open above" if open_end else ""))  # fmt: skip
    axis.axvline(150, color="0.4", linestyle=":", label="least duration")
    axis.set(xlabel="duration (steps)", ylabel="share of traps that last longer", ylim=(0, 1.02))
    axis.set_title(f"{len(cut)} traps of {cold.traps.chain.nunique()} chains, {cut.sum()} cut off")


# %%
figure, axes = plt.subplots(1, 2, figsize=(plotting.PAGE, 3.3), width_ratios=[1.3, 1])
if len(cut):
    panel_spans(axes[0])
    panel_durations(axes[1])
    for axis, columns in zip(axes, (2, 1), strict=True):
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.08), ncols=columns)
run.save_figure(figure, "basins-traps")

# %% [markdown]
# Traps cover most of the cold chains' time, and the length of the run cuts off many of them (note of `trap-count`). A chain's traps follow each other, so they are no
# independent draws. The figure does not show whether two traps are the same state.
#
# Measured: by how much traps found by their embedding coincide with traps found in state space, stretches of which each 300 steps spend at least
# 90% in five states, beyond what independence of the two gives. Measured too: the share of traps that belong to a family of two or more different states.
# It grows with the length of the run. **Claim.** Traps are read from their own states: the text of more than 90% of them is
# tokenised to the state again; an interval of the share below 0.9 would contradict it. The last claim was added after a first run.

# %%
# NBVAL_CHECK_OUTPUT
one, other = cold.still.mean(), cold.occupied.mean()
run.claim(
    "basins/trap-definitions-agree",
    traps.overlap_excess(cold.still, cold.occupied),
    note=f"{one:.0%} of looks are in traps by embedding, {other:.0%} in state space: independence gives an overlap of "
    f"{one * other / (one + other - one * other):.2f}, the most possible is {min(one, other) / max(one, other):.2f}",
)
shared = cold.families.states.reindex(cold.traps.family).to_numpy() > 1
run.claim(
    "basins/trap-families",
    over_traps(shared.astype(float)),
    note=f"{len(cold.families)} families, {(cold.families.chains > 1).sum()} of them found by more than one chain; "
    f"{cold.traps.state.nunique()} distinct states in {len(cold.traps)} traps",
)
run.claim(
    "basins/trap-states-survive",
    over_traps(table5["text is the state"].astype(float)),
    note=f"{table5['text is the state'].sum()} of {len(table5)} traps",
)

# %% [markdown]
# ## Temperature regimes
# The seeds run at each of several temperatures, for the same number of steps. Four quantities describe the last state: its drift from the start,
# the share of tokens kept, its pseudo-perplexity under the model at temperature one (low: text that the model finds natural), and its
# self-overlap (share of tokens that stand earlier in the text).
#
# **Claims.** Colder is slower: of each two neighbouring temperatures the colder chains drift less, from the same seeds; an interval of the
# difference below zero would contradict it, for that pair. The coldest chains repeat themselves more than the passages they started from; an
# interval of the difference below zero would contradict it. That hotter chains write what the model finds less natural is a description: no
# model of language would have it otherwise.

# %%
cooler = ladder_trace.final.reshape(len(others), -1, n)
final = np.empty((len(ladder), *trace.initial.shape), dtype=int)  # (temperatures, seeds, n)
final[ladder != run["temperature"]] = cooler
final[ladder == run["temperature"]] = trace.states([run["regime_steps"]])
moved = readings.cosine_distance(run.cached(readings.embed_states, model, tools.embedder, final), vectors[0])
seen = np.concatenate([trace.initial[None], final])  # (1 + temperatures, seeds, n)
surprise = -run.cached(log_pseudo_likelihood, model, seen.reshape(-1, n)).reshape(seen.shape[:2]) / n  # nats per token
overlap = readings.self_overlap(seen)

# %%
regime_table = pd.DataFrame(
    {
        "τ": ["start", *(f"{t:g}" for t in ladder)],
        "passages": len(seeds),
        "mean drift": [0.0, *moved.mean(1)],
        "drift, 95%": ["–", *(span(row, within=(0, 2)) for row in moved)],
        "tokens kept": [1.0, *(final == trace.initial).mean((1, 2))],
        "pseudo-perplexity": np.exp(surprise.mean(1)),
        "self-overlap": overlap.mean(1),
        "self-overlap, 95%": list(map(span, overlap)),
        "text": model.texts(seen[:, 0]),
    }
)
run.save_table(regime_table, "regimes")

# %% [markdown]
# The drift is that after a fixed number of steps. Cold chains may drift as far as others and then stand still, so a small drift and slowness are
# not the same thing.

# %%
# NBVAL_CHECK_OUTPUT
for k, (colder, hotter) in enumerate(pairwise(ladder)):
    run.claim(
        f"basins/colder-is-slower/{colder:g}-{hotter:g}",
        stats.bootstrap_estimate(moved[k + 1] - moved[k], unit="passages", looks=len(ladder) - 1),
        note=f"drift {moved[k].mean():.3f} and {moved[k + 1].mean():.3f}; interval at 95% for the {len(ladder) - 1} pairs together",
    )
run.claim("basins/colder-repeats", stats.bootstrap_estimate(overlap[1] - overlap[0], unit="passages"))
run.claim("basins/hotter-is-noise", stats.bootstrap_estimate(surprise[-1] - surprise[0], unit="passages"))

# %% [markdown]
# ## Prefix attractors
# The tokens of a fixed prefix are never resampled. Chains with each prefix and chains with none start from the same passages; those with none are
# the chains of the topics above, at the same step. Topic and sentiment are those of the text that follows the prefix.
#
# **Measured:** whether the prefix shapes the topics, and the sentiment, of what follows: p of a permutation test each of 'they do not depend on the
# prefix', one for all prefixes together, and the change by each prefix. Each prefix has one chain a passage, of one seed. A referee drew the chains of the default
# profile with seven other seeds: p of the sentiment was 0.05 to 0.89 (0.008 with this one), so no verdict rests on it.

# %%
chosen = spread(run["prefix_chains"])
lead = {prefix: model.tokens(prefix) for prefix in run["prefixes"]}
prefix_starts = [np.concatenate([tokens, state]) for tokens in lead.values() for state in trace.initial[chosen]]
width = max(map(len, prefix_starts))
frozen = np.stack([np.arange(width) < len(tokens) for tokens in lead.values() for _ in chosen])
prefix_trace = run.cached(
    run_chains, model, prefix_starts, n_steps=run["prefix_steps"], temperature=run["temperature"], seed=run.seed, frozen=frozen,
    progress="prefixes",
)  # fmt: skip
finals = prefix_trace.final.reshape(len(lead), -1, width)
free = [end[:, len(tokens) : len(tokens) + n] for end, tokens in zip(finals, lead.values(), strict=True)]
following = np.stack([trace.states([run["prefix_steps"]])[0][chosen], *free])  # (1 + prefixes, passages, n)
topic_of = np.stack([scorer.score(model.texts(states)) for states in following])  # (1 + prefixes, passages, labels)
feeling = np.stack([tools.sentiment(model.texts(states)) for states in following])  # (1 + prefixes, passages)

# %%
prefix_table = pd.DataFrame(
    {
        "prefix": ["(none)", *lead],
        "passages": len(chosen),
        "topic": [labels[k] for k in topic_of.mean(1).argmax(1)],
        "score": topic_of.mean(1).max(1),
        "politics": topic_of[..., politics].mean(1),
        "politics, 95%": [span(row) for row in topic_of[..., politics]],
        "sentiment": feeling.mean(1),
        "sentiment, 95%": [span(row, within=(-1, 1)) for row in feeling],
        "an end text": model.texts(following[:, 0]),
    }
)
run.save_table(prefix_table, "prefixes")

# %% [markdown]
# The two tests permute the prefixes within starting passages, so what the passages share is no effect of the prefix.

# %%
# NBVAL_CHECK_OUTPUT
prefix_of, passage_of = np.indices(following.shape[:2]).reshape(2, -1)
for what, values in (("topics", topic_of.reshape(-1, len(labels))), ("sentiment", feeling.reshape(-1, 1))):
    between, p = permutation.group_difference(values, prefix_of, blocks=passage_of, seed=run.seed)
    run.claim(
        f"basins/prefix-shapes/{what}",
        stats.Estimate(p, None, len(chosen), "passages"),
        note=f"{between:.0%} of the variance within passages lies between {len(following)} prefixes (none is one of them); "
        f"{1 / len(chosen):.1%} without any effect",
    )
for prefix, changed in zip(lead, feeling[1:] - feeling[0], strict=True):
    name = prefix.removesuffix(" said that").lower().replace(" ", "-")
    run.claim(f"basins/prefix-sentiment/{name}", stats.bootstrap_estimate(changed, unit="passages"))

# %% [markdown]
# **Claim.** Sentiment fades along the chains of the topics above: its strength falls from the first to the last state. An interval of the change
# above zero would contradict it.

# %%
# NBVAL_CHECK_OUTPUT
strength = lambda states: np.abs(tools.sentiment(model.texts(states)))  # noqa: E731
run.claim(
    "basins/sentiment-fades", stats.bootstrap_estimate(strength(trace.final) - strength(trace.initial), unit="chains")
)

# %% [markdown]
# ## What was found
# The statements below are about the embedded models of this package; the published models were not run. Two profiles are reported: the default one
# (35 chains of 400 steps, 30 cold chains of 2,000, `minilm-6l`) and `desk` (50 chains of 10,000 steps, 30 cold chains of 10,000,
# `distilbert-fast`). The verdicts of each stand in its `claims.md`.
#
# The default profile's `minilm-6l` descends from the network of the embedder that the first scorer reads with; `distilbert-fast` of `desk` does not.
#
# **Topics.** The seed topic's score falls, as the paper claims (`seed-topic-is-lost`); any chain that moves passes that test. Politics rises from the first looks by both scorers, and most chains
# cross its baseline, as the paper claims (`politics-rises`, `politics-crosses`). Neither is evidence for an attraction to politics: nearly every label is crossed by nearly every chain of `desk`, so that shares of crossings
# cannot tell labels apart there (`politics-crosses-more`). Noise from the
# same seeds rises as well, and so many independent looks at noise cross the baseline too. Is there more politics than in noise? By the first scorer
# this is undecided in both profiles, and the excess over the chains' own words in random order is zero within its interval (`politics-exceeds`). By the
# second scorer, which reads words alone, it is undecided in the default profile and holds in `desk`. `politics-stands-out` asks for both scorers, and is
# not shown: in `desk` the second scorer singles out politics and the first does not. The second scorer reads words alone: the longer chains
# use somewhat more words of politics than noise does, and that the chains are drawn to political content is not shown. Whether the published scorers agree is open: the paper profile asks them the same.
#
# **States and texts.** Many of the visited states are not the states of their texts (`states-that-survive`). The means over the states
# that are differ little from the means over all (`text-is-the-state`); an excess of that size may come from states that are not their texts.
#
# **Traps.** Cold chains are trapped, as any chain is that is cold enough, and warm ones are not over the steps that both ran (`traps-exist`). Unlike
# those of the paper, most traps of the embedded models are perfect (`perfect-traps`); the temperatures are not the same. In the default profile more than half of the traps are cut off
# by the end of the run, and their median duration has a lower end only; the longer runs of `desk` give a median (`trap-duration`). The two definitions of a
# trap overlap (`trap-definitions-agree`). How many traps belong to a family depends on the length of the run: a longer one has more traps a chain (`trap-families`).
# A trap that is left for the length of a window counts as two, so families, not traps, are the number of places. The state held longest, whose type is counted, takes a small share of some of the longest traps (Table 5).
# No family was found by two chains in either, so families show where a chain went and not what the model attracts to.
#
# **Temperature.** That colder chains drift less far in the same steps holds from τ = 0.1 to 1 in both profiles, and from 1 to 100 in the default one. It is
# not shown for the coldest pair, nor above τ = 1 in `desk`; all pairs are judged together (`colder-is-slower`). The coldest chains repeat themselves. The
# hottest write noise, which any model does.
#
# **Prefixes, sentiment.** That the sentiment, or the topics, of what follows depend on the prefix is not shown: the p are of one draw of the chains, and other
# draws of the default profile's give others (`prefix-shapes`). The strength of the sentiment is not shown to fade along the chains.

# %%
run.finish()
