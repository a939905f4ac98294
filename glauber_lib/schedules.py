"""Which site each step of a noise process updates, and the paths that such steps leave."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from glauber_lib.checks import check_count, check_flags, check_frozen, check_seed, check_whole
from glauber_lib.models import LARGEST


@dataclass(frozen=True, eq=False)
class Schedule:
    """Which site each step updates, and what the reversal hides besides.

    Attributes
    ----------
    orders : ndarray, int64[N, m]
        The orders of the m sites that are updated, one a round.
    n_sites : int
        Sites of a state; those in no order are frozen.
    window : int
        The reversal hides the sites of this step and of the next ones, so many in all.
    shrinks : bool
        Whether the window gets smaller at the end. Otherwise it goes on as if another sweep followed, and the sites in
        it keep old tokens that nobody has read: the law of the whole state is then another.

    Raises
    ------
    ValueError
        Unless every order holds the same distinct sites, and the window fits them.
    """

    orders: np.ndarray
    n_sites: int
    window: int = 1
    shrinks: bool = True

    def __post_init__(self):
        n_sites, orders = check_count(self.n_sites, "n_sites", 1, LARGEST), self.orders
        orders = check_whole(orders, "orders", 0, n_sites - 1)
        if orders.ndim != 2 or not orders.size or (np.sort(orders) != np.sort(orders[0])).any():
            raise ValueError(f"orders must hold the same sites in each round, got shape {orders.shape}")
        if len(np.unique(orders[0])) < orders.shape[1]:
            raise ValueError(f"an order must hold distinct sites, got {orders[0].tolist()}")
        shrinks = bool(check_flags([self.shrinks], "shrinks")[0])
        window = check_count(self.window, "window", 1, orders.shape[1])
        for name, value in (("orders", orders), ("n_sites", n_sites), ("window", window), ("shrinks", shrinks)):
            object.__setattr__(self, name, value)

    @property
    def steps(self) -> int:
        """The last step T."""
        return self.orders.size

    def site(self, t: int) -> int:
        """The site of step t = 1 .. T; ValueError for another t."""
        return int(self.orders.ravel()[check_count(t, "t", 1, self.steps) - 1])

    def hidden(self, t: int) -> np.ndarray:
        """The sites that the reversal of step t does not read, bool[n_sites], its own among them."""
        t = check_count(t, "t", 1, self.steps)
        coming = np.arange(t - 1, t - 1 - self.window, -1)
        own = self.orders.ravel()[coming[coming >= 0] if self.shrinks else coming % self.steps]
        return np.isin(np.arange(self.n_sites), own)


def make_schedule(
    n_sites: int, rounds: int, *, seed: int = 0, window: int = 1, frozen: ArrayLike | None = None
) -> Schedule:
    """A random order of the sites for each round, without those that are frozen.

    Parameters
    ----------
    n_sites, rounds : int
    seed : int
    window : int
        See `Schedule`.
    frozen : array_like, bool[n_sites], optional

    Raises
    ------
    ValueError
        For other numbers, or where every site is frozen.
    """
    n_sites, rounds = check_count(n_sites, "n_sites", 1, LARGEST), check_count(rounds, "rounds", 1, LARGEST)
    if frozen is not None and np.shape(frozen) != (n_sites,):
        raise ValueError(f"frozen must be bool[{n_sites}], got shape {np.shape(frozen)}")
    free = np.flatnonzero(~check_frozen(frozen, np.zeros((1, n_sites), np.int64))[0])
    rng = np.random.default_rng([check_seed(seed), 20])
    return Schedule(np.stack([rng.permutation(free) for _ in range(rounds)]), n_sites, window)


@dataclass(frozen=True, eq=False)
class Paths:
    """What `noise` and `denoise` leave.

    Attributes
    ----------
    initial : ndarray, int64[B, n]
    sites : ndarray, int64[K]
        The site of each step, in the order in which the steps were done.
    tokens : ndarray, int64[K, B]
        The token that each step wrote; of a frozen site the one that was there.
    log_prob : ndarray, float64[K, B]
        Its log-probability under the law that it was drawn from; zero at a frozen site.
    model_calls : int
        Conditionals asked for.
    """

    initial: np.ndarray
    sites: np.ndarray
    tokens: np.ndarray
    log_prob: np.ndarray
    model_calls: int

    def state(self, done: int) -> np.ndarray:
        """States int64[B, n] after so many of the steps; ValueError for more than there are."""
        out = self.initial.copy()
        for k in range(check_count(done, "done", 0, len(self.sites))):
            out[:, self.sites[k]] = self.tokens[k]
        return out

    @property
    def final(self) -> np.ndarray:
        """States int64[B, n] at the end."""
        return self.state(len(self.sites))
