r"""Topics along a chain, and their labels as a Markov chain (paper §6.2).

A label path holds the number of the topic that scores highest at each record of a chain (`top_labels`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from glauber_lib.checks import check_columns, check_count, check_indices, check_numbers, check_whole, unmasked
from glauber_lib.readings import TextScorer
from glauber_lib.stats import Estimate, Interval, bootstrap_estimate, percentile_interval, true_runs
from glauber_lib.survival import median_survival


def choose_seeds(
    passages: pd.DataFrame, topics: Sequence[str], per_topic: int, scorer: TextScorer
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Passages that chains of each topic start from, and the others.

    Parameters
    ----------
    passages : DataFrame
        With columns ``id``, ``text`` and, where it is known, ``topic``.
    topics : list of str
        Each named once.
    per_topic : int
        How many passages each topic gets: the first ones with that topic. If no topics are known, those that score
        highest on it among the passages that no earlier topic took.
    scorer : TextScorer
        Asked about passages without topics.

    Returns
    -------
    seeds : DataFrame
        With a column ``topic``, topic by topic.
    others : DataFrame
        The passages that seed no chain.

    Raises
    ------
    ValueError
        If a topic has fewer passages than `per_topic`, is named twice or is none of the scorer's labels, no topic is
        named, a score is not finite, or `passages` lack a column.
    """
    per_topic = check_count(per_topic, "per_topic", least=1)
    check_columns(passages, ["id", "text"], "passages")
    if not len(topics) or len(set(topics)) < len(topics):
        raise ValueError(f"topics must be distinct, one at least, got {list(topics)}")
    counts = passages.topic.value_counts() if "topic" in passages else None
    few = {t: int(counts.get(t, 0)) for t in topics if counts.get(t, 0) < per_topic} if counts is not None else {}
    if few or len(passages) < per_topic * len(topics):
        raise ValueError(f"each of {len(topics)} topics takes {per_topic} passages, got {few or len(passages)}")
    if "topic" in passages:
        rows = [np.flatnonzero(passages.topic == topic)[:per_topic] for topic in topics]
        free = ~np.isin(np.arange(len(passages)), np.concatenate(rows))  # by their places: two may have one id
        return passages.iloc[np.concatenate(rows)].reset_index(drop=True), passages.loc[free]
    if unknown := [topic for topic in topics if topic not in scorer.labels]:
        raise ValueError(f"topics must be labels of the scorer, {list(scorer.labels)}, got {unknown}")
    score, free, chosen = scorer.score(list(passages.text)), np.ones(len(passages), bool), []
    _check_scores(score)
    for topic in topics:
        order = np.argsort(-np.where(free, score[:, scorer.labels.index(topic)], -np.inf), kind="stable")[:per_topic]
        chosen.append(passages.iloc[order].assign(topic=topic))
        free[order] = False
    return pd.concat(chosen, ignore_index=True), passages.loc[free]


def top_labels(scores: ArrayLike, *, resolution: float = 1e-5) -> tuple[np.ndarray, np.ndarray]:
    """The label that scores highest, and where it is a near-tie.

    A scorer computes in float32, and the same text scores differently by some 1e-6 in another batch or on another
    processor. A label that leads by less than `resolution` may therefore change without a cause.

    Parameters
    ----------
    scores : array_like, float[..., L]
        Probabilities of two or more labels.
    resolution : float
        Difference of two scores up to which they count as equal.

    Returns
    -------
    labels : ndarray, int64[...]
        Of equal scores the first.
    near : ndarray, bool[...]
        Whether the next label scores as much, but for `resolution`.

    Raises
    ------
    ValueError
        If a score is not finite, there are fewer than two labels, or `resolution` is no number >= 0.
    """
    check_numbers(scores, "scores")
    scores = np.asarray(scores)  # of float32 the differences stay those of float32
    if scores.ndim < 1 or scores.shape[-1] < 2 or not resolution >= 0:
        raise ValueError(
            f"need scores of two labels or more and a resolution >= 0, got shape {scores.shape} and {resolution}"
        )
    _check_scores(scores)
    second, first = np.moveaxis(np.partition(scores, -2, axis=-1)[..., -2:], -1, 0)
    return scores.argmax(-1), first - second <= resolution


def _check_scores(scores):
    known = np.isfinite(scores).all(-1)
    if not known.all():
        raise ValueError(f"scores must be finite, got nan or infinite ones in {(~known).sum()} texts: mend the scorer")


def transition_counts(paths: ArrayLike, n_labels: int) -> np.ndarray:
    """Transitions int64[L, L] from one record to the next in label paths int[C, K], all chains together.

    ValueError for labels outside 0 .. L - 1.
    """
    paths = _check_paths(paths, n_labels)
    n_labels = int(n_labels)
    return np.bincount(
        (paths[:, :-1] * n_labels + paths[:, 1:]).ravel(), minlength=n_labels**2
    ).reshape(n_labels, n_labels)  # fmt: skip


def _check_paths(paths, n_labels=None):
    """Label paths as int64[C, K] with labels in 0 .. n_labels - 1."""
    array = unmasked(paths, "paths")
    most = np.iinfo(np.int64).max if n_labels is None else check_count(n_labels, "n_labels", 1, 10_000)
    if array.ndim != 2 or not array.size:
        raise ValueError(f"paths must have shape (chains, records), got {array.shape}")
    return check_indices(array, most, "labels of paths")


def entropy_production(counts: ArrayLike) -> float:
    r"""Entropy production per record, nats: :math:`\tfrac12\sum_{ij} (J_{ij} - J_{ji}) \log(J_{ij}/J_{ji})`.

    J is the share of transitions, from `transition_counts`. Each count is raised by one half, so that a transition
    that was never seen adds no infinite term. The value is zero in detailed balance. A finite sample of a chain in
    detailed balance gives more than zero; `reversible_paths` simulates how much. ValueError for what is no square of
    counts, such as a matrix of probabilities, and for counts without a transition.
    """
    counts = check_whole(counts, "counts")
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1]:
        raise ValueError(f"counts must be a square, got shape {counts.shape}")
    if not counts.any():
        raise ValueError("entropy production needs a transition, got counts of none")
    return float(_productions(counts[None])[0])


def _productions(counts):
    """`entropy_production` of each of several counts [R, L, L], float64[R]."""
    flow = np.asarray(counts, float) + 0.5
    flow /= flow.sum((1, 2), keepdims=True)
    back = flow.swapaxes(1, 2)
    return 0.5 * ((flow - back) * np.log(flow / back)).sum((1, 2))


def reversible_paths(paths: ArrayLike, n_labels: int, rng: np.random.Generator, *, copies: int = 1) -> np.ndarray:
    """Simulated label paths int[copies * C, K] of the chain in detailed balance with the symmetrised flow of `paths`.

    The simulated paths start where `paths` start and are as long.
    """
    paths = _check_paths(paths, n_labels)
    counts = transition_counts(paths, n_labels)
    flow = counts + counts.T + 1e-9
    cumulated = (flow / flow.sum(1, keepdims=True)).cumsum(1)
    n_labels, out = len(counts), np.tile(paths, (check_count(copies, "copies", 1, 10**6), 1))
    for k in range(1, paths.shape[1]):
        uniform = rng.random((len(out), 1))
        out[:, k] = np.minimum((uniform >= cumulated[out[:, k - 1]]).sum(1), n_labels - 1)
    return out


@dataclass(frozen=True)
class EntropyProduction:
    """Result of `measure_entropy_production`, in nats per record.

    Attributes
    ----------
    measured : float
        `entropy_production` of the paths. A finite sample gives more than zero even in detailed balance.
    resampled : ndarray, float64[R]
        Of paths drawn with replacement. Drawn paths repeat each other, which adds to their entropy production: the
        values are moved so that their mean is `measured`.
    reversible : ndarray, float64[R]
        Of simulated chains in detailed balance (`reversible_paths`).
    n : int
        Number of paths.
    """

    measured: float
    resampled: np.ndarray
    reversible: np.ndarray
    n: int

    @property
    def interval(self) -> Interval:
        """95% interval of `measured` over resampled paths, cut at zero; nan, nan if they are all the same."""
        low, high = percentile_interval(self.resampled)
        return float(np.maximum(low, 0.0)), float(np.maximum(high, 0.0))

    @property
    def p(self) -> float:
        """Share of the simulated chains in detailed balance that produce as much; never zero, nan without paths."""
        if np.isnan(self.measured) or np.isnan(self.reversible).any() or not len(self.reversible):
            return float("nan")
        as_much = self.reversible >= self.measured * (1 - 1e-9) - 1e-12  # but for rounding: counts in another order
        return float((1 + as_much.sum()) / (1 + len(self.reversible)))

    def excess(self, unit: str) -> Estimate:
        """`measured` less what chains in detailed balance show on average, over paths that are called `unit`."""
        bias = float(self.reversible.mean())
        return Estimate(self.measured - bias, percentile_interval(self.resampled - bias), self.n, unit)


def measure_entropy_production(
    paths: ArrayLike, n_labels: int, rng: np.random.Generator, *, n_resamples: int = 500
) -> EntropyProduction:
    """Entropy production of label paths int[C, K], its interval over paths, and that of chains in detailed balance.

    Raises
    ------
    ValueError
        If there is no path, or the paths have one record: no transition is seen.
    """
    n_resamples = check_count(n_resamples, "n_resamples", least=1)
    if np.ndim(paths) != 2 or not len(np.asarray(paths)) or np.shape(paths)[1] < 2:
        raise ValueError(f"need paths of two records or more, got shape {np.shape(paths)}")
    paths = _check_paths(paths, n_labels)
    each = np.stack([transition_counts(path[None], n_labels) for path in paths])  # (C, L, L)
    times = rng.multinomial(len(paths), np.full(len(paths), 1 / len(paths)), size=n_resamples)  # (R, C)
    drawn = _productions(np.tensordot(times, each, 1))
    simulated = reversible_paths(paths, n_labels, rng, copies=n_resamples).reshape(n_resamples, *paths.shape)
    reversible = _productions(np.stack([transition_counts(copy, n_labels) for copy in simulated]))
    measured = entropy_production(each.sum(0))
    return EntropyProduction(measured, drawn + measured - drawn.mean(), reversible, len(paths))


def persistence(paths: ArrayLike, labels: Sequence[str]) -> pd.DataFrame:
    """How often each label is the same one record later, against its share of the records, in label paths int[C, K].

    Returns
    -------
    DataFrame
        One row per label: ``label``, ``records`` (that have a following one), ``chains`` (that have such records),
        ``mean`` (share of them that are followed by the label itself; nan if there are none) with its interval ``low``,
        ``high`` over chains, and ``share`` of all following records that have the label: what independent draws give.
    """
    paths, rows = _check_paths(paths, len(labels)), []
    for k, label in enumerate(labels):
        held = paths[:, :-1] == k
        stays = (held & (paths[:, 1:] == k)).sum(1)
        kept = lambda a, b: a.sum() / b.sum() if b.any() else np.nan  # noqa: E731
        some = held.any(1)
        kept_share = bootstrap_estimate(stays[some], held.sum(1)[some], statistic=kept, unit="chains")
        low, high = kept_share.interval or (np.nan, np.nan)
        rows.append(
            {
                "label": label, "records": int(held.sum()), "chains": int(some.sum()), "mean": kept_share.value,
                "low": low, "high": high, "share": (paths[:, 1:] == k).mean(),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def persistence_excess(paths: ArrayLike, n_labels: int, *, unit: str = "chains") -> Estimate:
    """Share of records with the label of the record before, less that of independent draws of the same frequencies.

    Both are computed again in every resample of the chains, from label paths int[C, K]. The value is nan of one record,
    the interval of one chain.
    """
    paths = _check_paths(paths, n_labels)
    same = (paths[:, 1:] == paths[:, :-1]).mean(1)
    shares = np.stack([(paths[:, 1:] == k).mean(1) for k in range(n_labels)], axis=1)  # (C, L)
    excess = lambda rows: same[rows.astype(int)].mean() - (shares[rows.astype(int)].mean(0) ** 2).sum()  # noqa: E731
    return bootstrap_estimate(np.arange(len(paths)), statistic=excess, unit=unit)


def dwell_times(paths: ArrayLike, label: int) -> tuple[np.ndarray, np.ndarray]:
    """How long one label is held, run by run, in label paths int[C, K].

    Returns
    -------
    length : ndarray, int64[R]
        Records in the run. A run that is there at the first record counts from that record; a run whose end was not
        seen counts to the last record. A run in the last record alone is left out.
    ended : ndarray, bool[R]
        Whether the end was seen; the others are censored.

    Raises
    ------
    ValueError
        For a `label` that is no number of one, such as its name.
    """
    length, ended, label = [], [], check_count(label, "label")
    for path in _check_paths(paths):
        for first, last in true_runs(path == label):
            if last < len(path) or last - first > 1:
                length.append(min(last, len(path) - 1) - first)
                ended.append(last < len(path))
    return np.array(length, int), np.array(ended, bool)


def recurrence_times(paths: ArrayLike, label: int) -> tuple[np.ndarray, np.ndarray]:
    """How long one label stays away, absence by absence, in label paths int[C, K].

    Returns
    -------
    length : ndarray, int64[R]
        Records without the label between two records that have it. An absence that lasts to the end counts to the last
        record. An absence that begins in the last record is left out.
    back : ndarray, bool[R]
        Whether the label came back; the others are censored.

    Raises
    ------
    ValueError
        For a `label` that is no number of one, such as its name.
    """
    length, back, label = [], [], check_count(label, "label")
    for path in _check_paths(paths):
        at = np.flatnonzero(path == label)
        for k, place in enumerate(at):
            following = at[k + 1] if k + 1 < len(at) else len(path)
            away = min(following, len(path) - 1) - (place + 1)
            if away > 0:  # left after `place`, and looked for at least once more
                length.append(away)
                back.append(following < len(path))
    return np.array(length, int), np.array(back, bool)


def describe_labels(paths: ArrayLike, labels: Sequence[str]) -> pd.DataFrame:
    """How long each label is held and how long it stays away, in label paths int[C, K].

    Returns
    -------
    DataFrame
        One row per label: ``label``; ``share`` of the records; ``visits``; of `dwell_times` the Kaplan–Meier median
        ``dwell`` and how many were ``cut_off`` by the end; of `recurrence_times` the median ``recurrence`` and how many
        absences were ``never_back``. Medians are in records; nan if more than half of the times are censored.
    """
    paths, rows = _check_paths(paths, len(labels)), []
    for k, label in enumerate(labels):
        (dwell, ended), (away, back) = dwell_times(paths, k), recurrence_times(paths, k)
        rows.append(
            {
                "label": label, "share": (paths == k).mean(), "visits": len(dwell),
                "dwell": median_survival(dwell, ended), "cut_off": int((~ended).sum()),
                "recurrence": median_survival(away, back), "never_back": int((~back).sum()),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)
