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
    effective_temperature,
    generate,
    learn,
    learning_curve,
    literal_minimiser,
    make_arm,
    near_law,
    sharpened_model,
    triple_law,
)
from glauber_lib.reversals import TimedTable, path_counts
from glauber_lib.schedules import make_schedule

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


def test_the_pretrained_start_helps_where_data_are_few_and_nothing_is_lost_with_many():
    table = learning_curve(LAW, ENERGY, 3, kinds=KINDS, rounds=(1, 2), samples=(20, 5_000), data_sets=3, seed=1)
    assert len(table) == (3 * 2 + 1) * 2 * 2 * 3
    mean = table.groupby(["noise", "start", "rounds", "samples"]).kl.mean()
    assert mean["energy", "pretrained", 1, 20] < mean["uniform", "pretrained", 1, 20] < mean["uniform", "flat", 1, 20]
    assert mean["uniform", "flat", 1, 5_000] < 0.01 and (table.tv <= np.sqrt(table.kl / 2) + 1e-12).all()
    again = learning_curve(LAW, ENERGY, 3, kinds=["energy"], rounds=(1,), samples=(20,), data_sets=1, seed=1)
    same = table[(table.noise == "energy") & (table.rounds == 1) & (table.samples == 20) & (table.data_set == 0)]
    assert again.start.tolist() == same.start.tolist()


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
    softmax = lambda z: np.exp(z - z.max()) / np.exp(z - z.max()).sum()  # noqa: E731
    found = scipy.optimize.minimize(
        lambda z: literal_loss(softmax(z), frozen, reading), np.zeros(4), method="BFGS", options={"gtol": 1e-10}
    )
    np.testing.assert_allclose(softmax(found.x), literal_minimiser(frozen, reading), atol=1e-6)
    if reading == "A":
        np.testing.assert_allclose(literal_minimiser(frozen, "A"), frozen, atol=1e-8)


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
