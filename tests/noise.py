"""Paired log ratios as shared two-core machines give them: heavy tails, drift and bursts.

A core like Student's t with 3 degrees, a random walk from request to request, and every 25 requests
or so a slow-down that lasts for two or three of them. The tails are somewhat heavier than those of
960 pairs of identical arms on two such cores: there the 95th percentile lay at 2.1 to 3.3 times the
deviation (the median one, scaled to the normal distribution) and the 99th at 3.2 to 5.6 times; here
they lie at 3.4 and 8.4.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import stats

DRIFT, BURST = 0.1, 4.0
BURST_EVERY, BURST_ENDS = 1 / 25, 0.4


def log_ratios(generator: np.random.Generator, count: int, spread: float) -> NDArray[np.float64]:
    """`count` pairs of identical requests, the order random; `spread` is about their deviation."""
    requests = 2 * count
    noise = stats.t(3).rvs(size=requests, random_state=generator) * spread / 2
    noise += np.cumsum(generator.normal(size=requests)) * spread * DRIFT
    begin = 0
    while (begin := begin + generator.geometric(BURST_EVERY)) < requests:
        end = begin + generator.geometric(BURST_ENDS)
        noise[begin:end] += generator.exponential(BURST * spread)
        begin = end
    first, second = generator.permuted(noise.reshape(count, 2), axis=1).T
    return np.asarray(first - second)
