"""What a log-probability is divided by for its length n, the end included; every formula grows or falls steadily."""

from collections.abc import Callable

from regard.decoding.config import Beam

PENALTIES: dict[str, Callable[[int, float], float]] = {
    "power": lambda n, alpha: float(n**alpha),
    "gnmt": lambda n, alpha: float(((5 + n) / 6) ** alpha),  # Wu 2016, eq. 14
}


def penalty(length: int, config: Beam) -> float:
    return PENALTIES[config.penalty](length, config.length_penalty)
