r"""Topics along a chain, and their labels as a Markov chain (paper §6.2)."""

import numpy as np
import pandas as pd

from glauber_lib.stats import _true_runs


def choose_seeds(passages, topics, count, scorer):
    """Passages that chains of each topic start from, and the others.

    Parameters
    ----------
    passages : DataFrame
        With columns ``id``, ``text`` and, where it is known, ``topic``.
    topics : list of str
    count : int
        Of each topic the first passages; where no topics are known, those with the topic's highest score, each once.
    scorer
        A topic scorer, for passages without topics.

    Returns
    -------
    seeds, rest : DataFrame
        The seeds with a column ``topic``, topic by topic.
    """
    if "topic" in passages:
        seeds = pd.concat([passages[passages.topic == topic].head(count) for topic in topics], ignore_index=True)
        return seeds, passages[~passages.id.isin(seeds.id)]
    score, free, chosen = scorer.score(list(passages.text)), np.ones(len(passages), bool), []
    for topic in topics:
        order = np.argsort(-np.where(free, score[:, scorer.labels.index(topic)], -np.inf), kind="stable")[:count]
        chosen.append(passages.iloc[order].assign(topic=topic))
        free[order] = False
    return pd.concat(chosen, ignore_index=True), passages[free]


def transition_counts(paths, n_labels):
    """Transitions int64[L, L] from one record to the next in label paths int[C, K], all chains together."""
    paths = np.asarray(paths)
    return np.bincount(
        (paths[:, :-1] * n_labels + paths[:, 1:]).ravel(), minlength=n_labels**2
    ).reshape(n_labels, n_labels)  # fmt: skip


def entropy_production(counts):
    r"""Entropy production per record, nats: :math:`\tfrac12\sum_{ij} (J_{ij} - J_{ji}) \log(J_{ij}/J_{ji})`.

    J is the share of transitions, each counted half a time more, so that a flow that was never seen is not infinite.
    Zero for a chain in equilibrium; a finite sample of one gives more than zero (`reversible_paths` says how much).
    """
    flow = np.asarray(counts, float) + 0.5
    flow /= flow.sum()
    return float(0.5 * ((flow - flow.T) * np.log(flow / flow.T)).sum())


def reversible_paths(paths, n_labels, rng):
    """Paths as long as `paths`, from the same starts, of the chain in detailed balance with the symmetrised flow."""
    paths = np.asarray(paths)
    counts = transition_counts(paths, n_labels)
    flow = counts + counts.T + 1e-9
    cumulated = (flow / flow.sum(1, keepdims=True)).cumsum(1)
    out = paths.copy()
    for k in range(1, paths.shape[1]):
        uniform = rng.random((len(paths), 1))
        out[:, k] = np.minimum((uniform >= cumulated[out[:, k - 1]]).sum(1), n_labels - 1)
    return out


def dwell_times(paths, label):
    """Lengths of the runs of one label in label paths int[C, K], in records; and whether their end was seen.

    A run that began before the first record is counted from it; one whose end was not seen, to the last record.
    """
    length, ended = [], []
    for path in np.asarray(paths):
        for first, last in _true_runs(path == label):
            if last < len(path) or last - first > 1:  # one seen in the last record alone says nothing
                length.append(min(last, len(path) - 1) - first)
                ended.append(last < len(path))
    return np.array(length, int), np.array(ended, bool)


def recurrence_times(paths, label):
    """Records from the first without one label to being back, in label paths int[C, K]; and whether it came back."""
    length, back = [], []
    for path in np.asarray(paths):
        at = np.flatnonzero(path == label)
        for k, place in enumerate(at):
            following = at[k + 1] if k + 1 < len(at) else len(path)
            away = min(following, len(path) - 1) - (place + 1)
            if away > 0:  # left after `place`, and looked for at least once more
                length.append(away)
                back.append(following < len(path))
    return np.array(length, int), np.array(back, bool)
