"""Where chains start when no text is at hand: random tokens, or text drawn from masks."""

import numpy as np
import numpy.typing as npt

from glauber_lib.checks import check_count, check_seed
from glauber_lib.kernels import run
from glauber_lib.models import ConditionalModel

APART = 2**62  # what is added to the numbers of chains here, so that a start and its chain share no random number


def random_states(model: ConditionalModel, size: int, n: int, *, seed: int = 0) -> np.ndarray:
    """States int64[size, n] of tokens drawn uniformly and independently from those that the model allows.

    ValueError for a `size` or `n` below one, or a seed that is none.
    """
    size, n = check_count(size, "size", least=1), check_count(n, "n", least=1)
    return np.random.default_rng([check_seed(seed), 5]).integers(model.n_tokens, size=(size, n))


def states_from_masks(
    model: ConditionalModel, size: int, n: int, *, temperature: npt.ArrayLike = 1.0, seed: int = 0
) -> np.ndarray:
    """States drawn from nothing but masks: site by site in random order, each given those that are drawn already.

    Parameters
    ----------
    model : ConditionalModel
        One that can hide sites.
    size : int
        Number B of states.
    n : int
        Their length.
    temperature : float or array_like, float[B]
    seed : int
        With the number of the state it determines it.

    Returns
    -------
    ndarray, int64[B, n]

    Raises
    ------
    ValueError
        For a `size` or `n` below one, a temperature or seed that is none, or a model that cannot hide sites.
    """
    size, n = check_count(size, "size", least=1), check_count(n, "n", least=1)
    masks = np.zeros((size, n), np.int64)  # every site is hidden before it is drawn: these tokens are never seen
    chains = APART + np.arange(size)
    return run(model, masks, n_steps=1, temperature=temperature, seed=seed, chains=chains, block=None).final
