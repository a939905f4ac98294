"""Noise, its reversal and the bound on small systems, against laws that are listed."""

from itertools import pairwise, permutations

import numpy as np
import pytest
import scipy.linalg
from conftest import codes, fit, random_joint, random_table
from hypothesis import given
from hypothesis import strategies as st

from glauber_lib import evolution, exact, kernels
from glauber_lib.diffusion import bound, denoise, noise
from glauber_lib.models import TabularModel, all_states
from glauber_lib.reversals import (
    CountModel,
    FrozenInTime,
    MaskTokenModel,
    TimedTable,
    UnigramModel,
    path_counts,
    posterior,
    timed_tables,
    uniform_model,
)
from glauber_lib.schedules import Schedule, make_schedule

STATES = all_states(3, 3)


def kl(p, q):
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(p > 0, p * np.log(p / q), 0.0).sum())


def ratios(p):
    return p[None] / p[:, None]


def entropy(p):
    return -kl(p, np.ones_like(p))


def law_of(log_joint):
    law = np.exp(log_joint).ravel()
    return law / law.sum()


def random_law(size=27, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(size))


@st.composite
def processes(draw):
    """Data, a compatible noise with its law, and a schedule of one or two rounds."""
    n, n_tokens, seed = draw(st.integers(2, 3)), draw(st.integers(2, 3)), draw(st.integers(0, 2**32))
    model, log_joint = random_joint(n, n_tokens, seed=seed)
    schedule = make_schedule(n, draw(st.integers(1, 2)), seed=seed)
    return random_law(n_tokens**n, seed), model, law_of(log_joint), schedule


# Schedules -----------------------------------------------------------------------------------------------------------


def test_a_schedule_goes_through_its_orders_and_hides_what_comes_next():
    schedule = Schedule([[2, 0, 1], [1, 2, 0]], 4, window=2)
    assert [schedule.site(t) for t in range(1, 7)] == [2, 0, 1, 1, 2, 0]
    marks = lambda s, t: np.flatnonzero(s.hidden(t)).tolist()  # noqa: E731
    assert [marks(schedule, t) for t in (6, 5, 4, 3, 2, 1)] == [[0, 2], [1, 2], [1], [0, 1], [0, 2], [2]]
    assert marks(Schedule([[2, 0, 1], [1, 2, 0]], 4, 2, shrinks=False), 1) == [0, 2]
    assert make_schedule(5, 3, seed=1).orders.tolist() == make_schedule(5, 3, seed=1).orders.tolist()
    assert not np.isin(make_schedule(5, 3, frozen=[True, False, False, True, False]).orders, [0, 3]).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"orders": [[0, 0]]}, "distinct sites"), ({"orders": [[0, 1], [0, 2]]}, "the same sites in each round"),
        ({"orders": [[0, 3]]}, "orders must be whole numbers"), ({"orders": [0, 1]}, "the same sites in each round"),
        ({"window": 3}, "window must be"), ({"window": 0}, "window must be"), ({"n_sites": 0}, "n_sites must be"),
    ],
)  # fmt: skip
def test_schedules_that_are_none_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Schedule(**({"orders": [[0, 1]], "n_sites": 3} | change))
    with pytest.raises(ValueError, match="every chain needs a free site"):
        make_schedule(2, 1, frozen=[True, True])


# Noise ---------------------------------------------------------------------------------------------------------------


def test_noise_ends_where_the_exact_laws_say_at_every_step():
    model, schedule = random_table(3, 3), make_schedule(3, 2, seed=4)
    start = STATES[5]
    paths = noise(model, np.tile(start, (20_000, 1)), schedule, seed=1)
    laws = evolution.evolve(np.eye(27)[5], evolution.noise_kernels(model, schedule))
    for done in range(1, 7):
        assert fit(np.bincount(codes(paths.state(done), 3), minlength=27), laws[done]) > 1e-3
    assert fit(np.bincount(codes(paths.final, 3), minlength=27), laws[2]) < 1e-6  # the test has power
    chance = exact.conditional_laws(model, 3)[schedule.site(6)][codes(paths.state(5), 3), paths.tokens[5]]
    np.testing.assert_allclose(paths.log_prob[5], np.log(chance), atol=1e-9)


def test_a_path_depends_on_neither_batch_nor_steps_nor_where_it_was_resumed():
    model, schedule = random_table(3, 3), make_schedule(3, 3)
    whole = noise(model, STATES, schedule, seed=2)
    some = noise(model, STATES[[4, 9]], schedule, seed=2, chains=[4, 9], steps=5)
    np.testing.assert_array_equal(some.tokens, whole.tokens[:5, [4, 9]])
    rest = noise(model, some.final, schedule, seed=2, chains=[4, 9], first=5)
    np.testing.assert_array_equal(rest.tokens, whole.tokens[5:, [4, 9]])
    back = denoise(FrozenInTime(model), STATES, schedule, seed=2)
    alone = denoise(FrozenInTime(model), STATES[[4]], schedule, seed=2, chains=[4])
    np.testing.assert_array_equal(alone.tokens[:, 0], back.tokens[:, 4])
    assert (back.tokens[::-1] != whole.tokens).any() and whole.model_calls == 9 * 27


def test_frozen_sites_keep_their_tokens_and_are_not_asked_for():
    model, schedule = random_table(3, 3), make_schedule(3, 2)
    frozen = np.array([False, True, False])
    for paths in (
        noise(model, STATES, schedule, frozen=frozen),
        denoise(FrozenInTime(model), STATES, schedule, frozen=frozen),
    ):
        assert (paths.final[:, 1] == STATES[:, 1]).all() and paths.model_calls == 4 * 27
        assert (paths.log_prob[paths.sites == 1] == 0).all()


def test_noise_reaches_the_law_of_a_joint_and_an_incompatible_one_depends_on_the_order():
    model, log_joint = random_joint(3, 3)
    pi, start = law_of(log_joint), random_law()
    laws = evolution.evolve(start, evolution.noise_kernels(model, make_schedule(3, 40)))
    apart = 0.5 * np.abs(laws - pi).sum(1)
    assert (np.diff(apart) <= 1e-12).all() and apart[-1] < 1e-9
    other = random_table(3, 3)
    ends = [
        evolution.limit_law(evolution.noise_kernels(other, Schedule([order], 3))) for order in permutations(range(3))
    ]
    far = evolution.evolve(start, evolution.noise_kernels(other, Schedule([[0, 1, 2]] * 60, 3)))[-1]
    np.testing.assert_allclose(ends[0], far, atol=1e-10)
    assert max(0.5 * np.abs(a - b).sum() for a in ends for b in ends) > 0.05


def test_denoising_with_a_model_that_knows_no_time_is_a_sweep_of_plain_glauber_dynamics():
    model, size = random_table(3, 3), 20_000
    start, schedule = np.tile(STATES[7], (size, 1)), Schedule([[2, 1, 0]], 3)  # reversed: sites in rising order
    sweep = kernels.run(model, start[:4_000], n_steps=3, scan="sweep", seed=1).final
    law = evolution.evolve(np.eye(27)[7], evolution.denoise_kernels(FrozenInTime(model), schedule))[-1]
    for found in (sweep, denoise(FrozenInTime(model), start, schedule, seed=3).final):
        assert fit(np.bincount(codes(found, 3), minlength=27), law) > 1e-3


# Reversal ------------------------------------------------------------------------------------------------------------


@given(processes())
def test_the_exact_reversal_returns_the_data(process):
    data, model, _, schedule = process
    laws = evolution.evolve(data, forward := evolution.noise_kernels(model, schedule))
    reversal = evolution.exact_reversal(laws, schedule, model.n_tokens)
    backward = evolution.denoise_kernels(reversal, schedule)
    for t, (ahead, back) in enumerate(zip(forward, backward[::-1], strict=True), start=1):
        joint = laws[t - 1][:, None] * ahead.toarray()
        np.testing.assert_allclose(laws[t][:, None] * back.toarray(), joint.T, atol=1e-12)
    np.testing.assert_allclose(evolution.evolve(laws[-1], backward)[-1], data, atol=1e-12)


def test_heat_bath_erases_its_site_and_lazy_or_filtered_steps_do_not():
    model, log_joint = random_joint(3, 3)
    data, pi, site = random_law(), law_of(log_joint), 1

    def information(kernel):
        joint = (data[:, None] * kernel.toarray()).reshape(3, 3, 3, 3, 3, 3)
        pair = np.einsum("abcadc->acbd", joint).reshape(9, 3, 3)  # the others, before, after
        rest, first, last = pair.sum((1, 2)), pair.sum(2), pair.sum(1)
        return kl(pair, first[:, :, None] * last[:, None, :] / rest[:, None, None])

    heat = evolution.site_kernel(model, 3, site)
    lazy = 0.5 * heat + 0.5 * exact.sp.identity(27)
    states, filtered = STATES, np.zeros((27, 27))
    for k, state in enumerate(states):
        for token in range(3):
            target = codes(np.where(np.arange(3) == site, token, state), 3)
            filtered[k, target] = min(1, pi[target] / pi[k]) / 3 if target != k else 0
        filtered[k, k] = 1 - filtered[k].sum()
    assert abs(information(heat)) < 1e-12
    assert information(lazy) > 0.01 and information(exact.sp.csr_matrix(filtered)) > 0.01


@given(processes())
def test_what_is_to_be_learned_is_the_divergence_that_the_noise_takes_off(process):
    data, model, pi, schedule = process
    laws = evolution.evolve(data, evolution.noise_kernels(model, schedule))
    conditionals = exact.conditional_laws(model, schedule.n_sites)
    steps = evolution.path_budget(laws, conditionals, schedule.orders.ravel())
    taken = [kl(a, pi) - kl(b, pi) for a, b in pairwise(laws)]
    np.testing.assert_allclose(steps, taken, atol=1e-10)
    assert (steps > -1e-12).all()


def test_of_incompatible_conditionals_the_budget_is_not_a_difference_of_divergences():
    model, schedule = random_table(3, 3, seed=3), make_schedule(3, 3)
    sweep = np.linalg.multi_dot([k.toarray() for k in evolution.noise_kernels(model, make_schedule(3, 1))])
    pi = exact.stationary_law(exact.sp.csr_matrix(sweep))
    laws = evolution.evolve(pi, evolution.noise_kernels(model, schedule))
    steps = evolution.path_budget(laws, exact.conditional_laws(model, 3), schedule.orders.ravel())
    assert steps.sum() > 0.05  # from its own law there would be nothing to learn


@given(processes(), st.integers(0, 2**32))
def test_the_bound_is_met_by_the_exact_reversal_and_kept_by_any(process, seed):
    data, model, _, schedule = process
    laws = evolution.evolve(data, evolution.noise_kernels(model, schedule))
    prior = random_law(len(data), seed)
    best = evolution.mean_bound(
        evolution.exact_reversal(laws, schedule, model.n_tokens), model, prior, data, schedule
    ).total
    assert best == pytest.approx(entropy(data) + kl(laws[-1], prior), abs=1e-10)
    rng, shape = np.random.default_rng(seed), (schedule.steps, len(data))
    tables = np.stack(
        [
            evolution.reverse_conditionals(random_law(len(data), rng), schedule.n_sites, model.n_tokens, site)
            for site in schedule.orders.ravel()
        ]
    )
    assert tables.shape == (*shape, model.n_tokens)
    timed = TimedTable(tables, schedule)
    made = evolution.evolve(prior, evolution.denoise_kernels(timed, schedule))[-1]
    for code in range(len(data)):
        one = evolution.mean_bound(timed, model, prior, np.eye(len(data))[code], schedule).total
        assert one >= -np.log(made[code]) - 1e-10


def test_the_sampled_bound_has_the_exact_mean():
    model, schedule, prior = random_joint(3, 3)[0], make_schedule(3, 2), random_law(seed=5)
    timed = FrozenInTime(random_joint(3, 3, seed=8)[0])
    found = bound(timed, model, lambda x: np.log(prior[codes(x, 3)]), np.tile(STATES[11], (20_000, 1)), schedule)
    wanted = evolution.mean_bound(timed, model, prior, np.eye(27)[11], schedule)
    for term in ("prior", "noise", "denoising", "total"):
        values = getattr(found, term)
        assert abs(values.mean() - getattr(wanted, term)) < 5 * values.std() / np.sqrt(len(values)) + 1e-12
    with pytest.raises(ValueError, match="prior_log_prob must return"):
        bound(timed, model, lambda x: 0.0, STATES, schedule)


def test_uniform_noise_in_one_round_is_an_autoregressive_model_in_the_reversed_order():
    data, schedule = random_law(seed=2), Schedule([[1, 2, 0]], 3)
    laws = evolution.evolve(data, evolution.noise_kernels(uniform_model(3), schedule))
    timed = evolution.exact_reversal(laws, schedule, 3)
    joint = data.reshape(3, 3, 3)
    for code, (a, b, c) in enumerate(STATES):  # drawn 0 first, then 2, then 1
        chain = joint[a].sum() / 1, joint[a, :, c].sum() / joint[a].sum(), joint[a, b, c] / joint[a, :, c].sum()
        one = evolution.mean_bound(timed, uniform_model(3), np.full(27, 1 / 27), np.eye(27)[code], schedule).total
        assert one == pytest.approx(-np.log(chain).sum(), abs=1e-10)


def test_absorbing_noise_in_the_mean_over_orders_is_the_weighted_loss_of_masked_diffusion():
    log_joint = np.random.default_rng(3).normal(size=(2, 2, 2))
    data, model = law_of(log_joint), TabularModel.from_joint(np.random.default_rng(4).normal(size=(2, 2, 2)))
    states, masked = all_states(2, 3), all_states(3, 3)
    lifted = np.zeros(27)
    lifted[codes(states, 3)] = data
    absorbing, timed = UnigramModel([-np.inf, -np.inf, 0.0]), FrozenInTime(MaskTokenModel(model))
    prior = np.eye(27)[codes([2, 2, 2], 3)]
    orders = [
        evolution.mean_bound(timed, absorbing, prior, lifted, Schedule([order], 3)).total
        for order in permutations(range(3))
    ]
    loss = 0.0  # one over the number of masks, times their log-losses, over the number of masks and their places
    for size in (1, 2, 3):
        marks = [row for row in all_states(2, 3).astype(bool) if row.sum() == size]
        for row in marks:
            for x, weight in zip(states, data, strict=True):
                shown = np.where(row, 2, x)
                law = timed_tables(timed, Schedule([np.arange(3)], 3))[:, codes(shown, 3)]
                loss -= weight * sum(np.log(law[i, x[i]]) for i in np.flatnonzero(row)) / size / len(marks)
    assert np.mean(orders) == pytest.approx(loss, abs=1e-10) and len(masked) == 27


def test_score_entropy_of_exact_scores_is_the_entropy_plus_the_divergence_of_the_end():
    model, data, prior, horizon = random_joint(3, 3)[0], random_law(), random_law(seed=9), 1.0
    for rates in (
        3 * (exact.transition_matrix(model, 3) - exact.sp.identity(27)),
        3 * (exact.transition_matrix(uniform_model(3), 3) - exact.sp.identity(27)),
    ):
        rates = rates.toarray()
        end = data @ scipy.linalg.expm(horizon * rates)
        found = evolution.score_entropy(data, rates, horizon, prior)
        assert found == pytest.approx(entropy(data) + kl(end, prior), abs=1e-4)
        tilt = np.exp(0.2 * np.random.default_rng(0).normal(size=(27, 27)))
        ratio = lambda t, now, tilt=tilt: tilt * now[None] / now[:, None]  # noqa: E731
        assert evolution.score_entropy(data, rates, horizon, prior, scores=ratio) > found + 1e-3
        given_one = lambda t, now, rates=rates: ratios(scipy.linalg.expm(t * rates)[0])  # noqa: E731
        assert evolution.score_entropy(data, rates, horizon, prior, scores=given_one) > found + 1e-3


# The window ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [2, 3])
def test_a_window_samples_the_visible_sites_exactly_and_all_of_them_if_it_shrinks(window):
    model, log_joint = random_joint(4, 3)
    pi, order, states = law_of(log_joint), [3, 1, 0, 2], all_states(3, 4)
    timed = FrozenInTime(model)
    ends = {}
    for shrinks in (True, False):
        schedule = Schedule([order] * 3, 4, window, shrinks)
        laws = evolution.evolve(pi, evolution.denoise_kernels(timed, schedule))
        ends[shrinks] = 0.5 * np.abs(laws[-1] - pi).sum()
        for t, law in zip(range(schedule.steps, 0, -1), laws[1:], strict=True):
            seen = ~schedule.hidden(t)
            seen[schedule.site(t)] = True
            key = states[:, seen] @ 3 ** np.arange(seen.sum())
            np.testing.assert_allclose(np.bincount(key, law), np.bincount(key, pi), atol=1e-12)
    assert ends[True] < 1e-12 and ends[False] > 0.05


@pytest.mark.parametrize("window", [2, 3])
def test_a_window_that_shrinks_is_exact_as_a_reversal_too_and_pays_in_the_bound(window):
    model, data = random_joint(4, 2)[0], random_law(16, 3)
    found = {}
    for width in (1, window):
        schedule = Schedule([[3, 1, 0, 2], [0, 1, 2, 3]], 4, width)
        laws = evolution.evolve(data, evolution.noise_kernels(model, schedule))
        best = evolution.exact_reversal(laws, schedule, 2)
        made = evolution.evolve(laws[-1], evolution.denoise_kernels(best, schedule))[-1]
        np.testing.assert_allclose(made, data, atol=1e-12)
        found[width] = evolution.mean_bound(best, model, laws[-1], data, schedule).total
    assert found[1] == pytest.approx(entropy(data), abs=1e-10) and found[window] > found[1] + 0.01


# Learning ------------------------------------------------------------------------------------------------------------


def test_counts_approach_the_exact_reversal_and_an_infinite_start_is_kept():
    model, data, schedule = random_joint(3, 3)[0], random_law(), make_schedule(3, 1, seed=1)
    laws = evolution.evolve(data, evolution.noise_kernels(model, schedule))
    start = FrozenInTime(model)
    drawn = STATES[np.random.default_rng(0).choice(27, size=40_000, p=data)]
    lost = []
    for size in (400, 40_000):
        learned = CountModel(noise(model, drawn[:size], schedule, seed=4), schedule, start, 1.0)
        lost.append(kl(data, evolution.evolve(laws[-1], evolution.denoise_kernels(learned, schedule))[-1]))
    assert lost[1] < lost[0] / 20 and lost[1] < 2e-3
    kept = CountModel(noise(model, drawn[:50], schedule), schedule, start, np.inf)
    np.testing.assert_array_equal(kept.tables, timed_tables(start, schedule))


def test_counts_are_of_the_token_before_each_step_given_the_others_after_it():
    model, schedule = random_table(3, 3), make_schedule(3, 2)
    paths = noise(model, STATES, schedule, seed=1)
    counts, wanted = path_counts(paths, schedule, 3), np.zeros((6, 27, 3))
    for t in range(1, 7):
        for before in paths.state(t - 1):
            for own in range(3):
                code = codes(np.where(np.arange(3) == schedule.site(t), own, before), 3)
                wanted[t - 1, code, before[schedule.site(t)]] += 1
    np.testing.assert_array_equal(counts, wanted)
    with pytest.raises(ValueError, match="of this schedule"):
        path_counts(noise(model, STATES, schedule, steps=3), schedule, 3)
    with pytest.raises(ValueError, match="alpha must be"):
        posterior(counts, counts, 0.0)


def test_a_table_is_asked_for_the_site_of_its_step_alone():
    model, schedule = random_joint(3, 3)[0], Schedule([[0, 1, 2]], 3)
    timed = TimedTable(timed_tables(FrozenInTime(model), schedule), schedule)
    np.testing.assert_allclose(
        timed.scores(STATES, np.ones(27, int), np.full(27, 2)).exp(),
        exact.conditional_laws(model, 3)[1], atol=1e-12,
    )  # fmt: skip
    with pytest.raises(ValueError, match="another site"):
        timed.scores(STATES, np.ones(27, int), np.full(27, 1))
    for tables, message in ((np.ones((3, 27, 3)), "sum to one"), (np.ones((2, 27, 3)) / 3, "for this schedule")):
        with pytest.raises(ValueError, match=message):
            TimedTable(tables, schedule)


def test_what_does_not_fit_is_refused_before_a_model_is_asked():
    class Unasked:
        n_tokens, device = 3, "cpu"

        def scores(self, states, sites, hidden=None):
            raise AssertionError("asked")

    schedule = make_schedule(3, 1)
    for how, message in (
        ({"states": [[0, 1]]}, "states have 2 sites"), ({"states": [[0, 1, 3]]}, "states must hold tokens"),
        ({"first": 4}, "first must be"), ({"steps": 4}, "steps must be"), ({"temperature": 0}, "temperature"),
        ({"frozen": [True] * 3}, "free site"), ({"seed": -1}, "seed must be"), ({"chains": [0, 0]}, "one chain number"),
    ):  # fmt: skip
        arguments = {"states": [[0, 1, 2]]} | how
        with pytest.raises(ValueError, match=message):
            noise(Unasked(), arguments.pop("states"), schedule, **arguments)
    with pytest.raises(ValueError, match="top_p must lie"):
        denoise(FrozenInTime(Unasked()), [[0, 1, 2]], schedule, top_p=0.0)
