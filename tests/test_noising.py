"""Learned reversals on small systems, and the printed target."""

import numpy as np
import pytest
import scipy.optimize

from glauber_lib import evolution, exact
from glauber_lib.models import TabularModel
from glauber_lib.noising import (
    KINDS,
    conditionals_of,
    crossing,
    divergence,
    draw_paths,
    generate,
    learn,
    learning_curve,
    learning_curves,
    make_arm,
    near_law,
    triple_law,
)
from glauber_lib.printed import effective_temperature, literal_minimiser, sharpened_model
from glauber_lib.reversals import FrozenInTime, TimedTable, path_counts, timed_tables
from glauber_lib.schedules import Schedule, make_schedule

LAW = triple_law(3, 3, seed=1)
ENERGY = near_law(LAW, 0.5, seed=2)


def test_an_energy_is_nearer_the_smaller_its_errors():
    lost = [divergence(LAW, near_law(LAW, epsilon)) for epsilon in (0.0, 0.3, 1.0)]
    assert lost[0] < 1e-12 < lost[1] < lost[2]
    assert len(triple_law(4, 4)) == 256 and (triple_law(4, 4) > 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_with_the_exact_reversal_an_arm_returns_its_data_but_for_the_prior(kind):
    schedule = make_schedule(3, 2 if kind != "absorbing" else 1, seed=3)
    arm = make_arm(kind, LAW, ENERGY, 3, schedule)
    n_tokens = arm.noise.shape[2]
    kernels = [evolution.kernel_of(table, 3, schedule.site(t)) for t, table in enumerate(arm.noise, start=1)]
    laws = evolution.evolve(arm.data, kernels)
    best = evolution.exact_reversal(laws, schedule, n_tokens)
    np.testing.assert_allclose(generate(laws[-1], best.tables, schedule), arm.data, atol=1e-12)
    by_kernels = evolution.evolve(arm.prior, evolution.denoise_kernels(best, schedule))[-1]
    np.testing.assert_allclose(generate(arm.prior, best.tables, schedule), by_kernels, atol=1e-12)
    mismatch = divergence(laws[-1], arm.prior)
    assert mismatch > 1e-9 if kind == "energy" else abs(mismatch) < 1e-12
    assert arm.data[arm.codes] == pytest.approx(LAW) and arm.data.sum() == pytest.approx(1)


def test_paths_are_drawn_by_the_noise_and_learning_approaches_the_exact_reversal():
    schedule, rng = make_schedule(3, 1, seed=5), np.random.default_rng(0)
    arm = make_arm("energy", LAW, ENERGY, 3, schedule)
    drawn = draw_paths(arm, rng.choice(27, size=100_000, p=LAW), rng)
    kernels = [evolution.kernel_of(table, 3, schedule.site(t)) for t, table in enumerate(arm.noise, start=1)]
    laws = evolution.evolve(LAW, kernels)
    found = np.bincount(drawn.final @ [9, 3, 1], minlength=27) / 100_000
    np.testing.assert_allclose(found, laws[-1], atol=0.006)
    counts = path_counts(drawn, schedule, 3)
    tables, strength = learn(arm, "pretrained", 0.8 * counts, 0.2 * counts)
    best = evolution.exact_reversal(laws, schedule, 3)
    assert divergence(LAW, generate(laws[-1], tables, schedule)) < 1e-3 and strength > 0
    assert np.abs(tables - best.tables)[:, laws[-1] > 0.01].max() < 0.1
    TimedTable(tables, schedule)


@pytest.mark.parametrize("kind", KINDS)
def test_each_noise_may_start_at_its_own_exact_reversal_of_the_energy(kind):
    schedule = make_schedule(3, 2 if kind != "absorbing" else 1, seed=3)
    arm = make_arm(kind, LAW, ENERGY, 3, schedule)
    data = np.zeros(len(arm.data))
    data[arm.codes] = ENERGY
    kernels = [evolution.kernel_of(table, 3, schedule.site(t)) for t, table in enumerate(arm.noise, start=1)]
    laws = evolution.evolve(data, kernels)
    np.testing.assert_allclose(generate(laws[-1], arm.starts["reversed"], schedule), data, atol=1e-12)
    best = evolution.exact_reversal(laws, schedule, arm.noise.shape[2]).tables
    reached = laws[:-1] > 0
    np.testing.assert_allclose(arm.starts["reversed"][reached], best[reached], atol=1e-12)
    off = np.abs(arm.starts["pretrained"] - best)[reached].max()
    assert off < 1e-12 if kind in ("energy", "absorbing") else off > 0.1  # reads what the noise made as if it were text


def test_the_reversal_of_one_round_of_uniform_noise_is_the_energy_with_the_noised_sites_hidden():
    schedule = make_schedule(3, 1, seed=4)
    joint = TabularModel.from_joint(np.log(ENERGY).reshape(3, 3, 3))
    window = timed_tables(FrozenInTime(joint), Schedule(schedule.orders, 3, window=3))
    found = make_arm("uniform", LAW, ENERGY, 3, schedule).starts["reversed"]
    np.testing.assert_allclose(found, window, atol=1e-12)


def test_without_data_the_start_decides_what_is_lost_and_with_many_nothing_is():
    table = learning_curve(LAW, ENERGY, 3, kinds=KINDS, rounds=(1, 2), samples=(20, 5_000), data_sets=3, seed=1)
    assert len(table) == (3 * 2 + 1) * 3 * 2 * 3
    mean = table.groupby(["noise", "start", "rounds", "samples"]).kl.mean()
    assert mean["uniform", "reversed", 1, 20] < mean["uniform", "pretrained", 1, 20] < mean["uniform", "flat", 1, 20]
    assert mean["uniform", "flat", 1, 5_000] < 0.01 and (table.tv <= np.sqrt(table.kl / 2) + 1e-12).all()
    again = learning_curve(LAW, ENERGY, 3, kinds=["energy"], rounds=(1,), samples=(20,), data_sets=1, seed=1)
    same = table[(table.noise == "energy") & (table.rounds == 1) & (table.samples == 20) & (table.data_set == 0)]
    assert again.start.tolist() == same.start.tolist()


def test_the_gain_of_energy_noise_with_few_data_is_that_of_the_start_which_uniform_noise_is_given():
    kinds, ratio = ["uniform", "energy"], {}
    table = learning_curves(12, 0.5, 3, 3, kinds=kinds, samples=(30,), data_sets=2, seed=1)
    log = np.log(table.pivot_table(index="law", columns=["noise", "start"], values="kl"))
    for start in ("pretrained", "reversed"):
        ratio[start] = (log["uniform", start] - log["energy", start]).mean()
    assert ratio["pretrained"] > 0.3 and abs(ratio["reversed"]) < 0.1
    alone = learning_curve(triple_law(3, 3, seed=2), near_law(triple_law(3, 3, seed=2), 0.5, seed=2), 3, kinds=kinds,
                           samples=(30,), data_sets=2, seed=2)  # fmt: skip
    assert table[table.law == 1].kl.tolist() == alone.kl.tolist()


def test_a_gain_ends_where_its_mean_crosses_zero():
    assert crossing([[2.0, 1.0, -1.0], [2.0, 1.0, -1.0]], [10, 100, 10_000]) == pytest.approx(1_000)
    assert crossing([[1.0, 0.5]], [10, 100]) == np.inf and crossing([[-1.0, 2.0]], [10, 100]) == 10


# The printed target --------------------------------------------------------------------------------------------------


def literal_loss(model, frozen, reading):
    """The printed loss of one site, summed over the present token x and all others y, as Appendix A is read."""
    total = 0.0
    for x in range(len(frozen)):
        for y in set(range(len(frozen))) - {x}:
            below = frozen[x] if reading == "A" else frozen[y]
            total += frozen[x] * (model[y] - below * frozen[y] / frozen[x] * np.log(model[y] / below))
    return total


@pytest.mark.parametrize("reading", ["A", "B"])
def test_the_minimiser_of_the_printed_loss_does_not_know_the_data(reading):
    frozen = np.random.default_rng(0).dirichlet(np.ones(4))
    softmax = lambda z: np.exp(z) / np.exp(z).sum()  # noqa: E731
    by_steps = lambda z: [  # noqa: E731  # the gradient, by a complex step, without cancellation
        literal_loss(softmax(z + 1e-30j * row), frozen, reading).imag / 1e-30 for row in np.eye(4)
    ]
    found = scipy.optimize.root(by_steps, np.zeros(4), tol=1e-14, method="lm")
    np.testing.assert_allclose(softmax(found.x), literal_minimiser(frozen, reading), atol=1e-8)


def test_reading_b_is_the_kernel_at_half_its_temperature():
    for size, close in ((4, 0.05), (50, 0.02), (1_000, 0.005)):
        frozen = np.random.default_rng(1).dirichlet(np.ones(size))
        sharp = literal_minimiser(frozen, "B")
        assert exact.compare_laws(sharp, frozen**2 / (frozen**2).sum())["TV"] < close
        if size == 1_000:
            assert effective_temperature(frozen, sharp) == pytest.approx(0.5, abs=0.02)
    for power in (0.5, 1.0, 3.0):
        assert effective_temperature(frozen, frozen**power / (frozen**power).sum()) == pytest.approx(1 / power, 1e-4)


def test_each_renewal_sharpens_again():
    model = TabularModel.from_joint(np.log(ENERGY).reshape(3, 3, 3))
    conditionals = conditionals_of(ENERGY, 3, 3)
    np.testing.assert_allclose(exact.conditional_laws(sharpened_model(model, 3, 0), 3), conditionals, atol=1e-12)
    entropies = []
    for times in range(3):
        laws = exact.conditional_laws(sharpened_model(model, 3, times), 3)
        entropies.append(-(laws * np.log(laws)).sum(2).mean())
    assert entropies[0] > entropies[1] > entropies[2]
    row = exact.conditional_laws(sharpened_model(model, 3, 1), 3)[1, 5]
    np.testing.assert_allclose(row, literal_minimiser(conditionals[1, 5], "B"), atol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_arm("other", LAW, ENERGY, 3, make_schedule(3, 1)), "kind must be one of"),
        (lambda: make_arm("energy", LAW, ENERGY, 2, make_schedule(2, 1)), "no positive laws of 2 sites"),
        (lambda: make_arm("energy", LAW, ENERGY, 3, make_schedule(2, 1)), "the schedule is for 2 sites"),
        (lambda: learning_curve(LAW, ENERGY, 3, kinds="energy"), "kinds must name"),
        (lambda: learning_curve(LAW, ENERGY, 3, samples=[3]), "samples must be"),
        (lambda: literal_minimiser([0.5, 0.5], "C"), "reading"), (lambda: literal_minimiser([1.0], "A"), "two tokens"),
        (lambda: effective_temperature([0.5, 0.5], [0.4, 0.6]), "not flat"),
        (lambda: triple_law(20, 20), "small system"),
        (lambda: crossing([[1.0]], [1, 2]), "gains must be"), (lambda: near_law(LAW, -1.0), "a scale"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
