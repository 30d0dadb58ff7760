"""The words of the project, as types: alignments, arms, scenarios, offsets and the rest."""

from enum import StrEnum


class Alignment(StrEnum):
    """What is done to the hit window of the connector."""

    SHIPPED = "shipped"
    """Whatever the code under test does."""
    ALIGNED = "aligned"
    """Rounded down to a multiple of the chunk (vLLM PR 51100)."""
    UNALIGNED = "unaligned"
    """Not rounded: wrong output at exact boundaries (vLLM issue 51094)."""


class Arm(StrEnum):
    """One way to serve the same prompt."""

    COLD = "cold"
    GPU_HIT = "gpu_hit"
    RELOAD_SHIPPED = "reload/shipped"
    RELOAD_ALIGNED = "reload/aligned"
    RELOAD_UNALIGNED = "reload/unaligned"
    RELOAD_ALIGNED_AGAIN = "reload/aligned-again"
    """The A/A arm: it does what `reload/aligned` does, so any difference is noise."""


RELOAD_ARMS: dict[Arm, Alignment] = {
    Arm.RELOAD_SHIPPED: Alignment.SHIPPED,
    Arm.RELOAD_ALIGNED: Alignment.ALIGNED,
    Arm.RELOAD_UNALIGNED: Alignment.UNALIGNED,
    Arm.RELOAD_ALIGNED_AGAIN: Alignment.ALIGNED,
}
REPORTED_ARMS = tuple(arm for arm in Arm if arm is not Arm.RELOAD_ALIGNED_AGAIN)
"""The arms that say something of the code under test; the A/A arm says it of the instrument."""


class Scenario(StrEnum):
    """What was served before the prompt."""

    REPEAT = "repeat"
    """The very prompt."""
    EXTENDED = "extended"
    """A longer prompt of which this one is a prefix."""


class Offset(StrEnum):
    """How far a prompt ends from a multiple of the chunk."""

    ONE_BELOW = "-1"
    EXACT = "0"
    ONE_ABOVE = "+1"
    HALF_ABOVE = "+half"

    def tokens(self, chunk: int) -> int:
        """The offset in tokens for a chunk of `chunk` tokens."""
        return {"-1": -1, "0": 0, "+1": 1, "+half": chunk // 2}[self.value]


class Ended(StrEnum):
    """What ended the sampling of a cell."""

    NARROW = "narrow enough"
    TIME = "time used up"
    COUNT = "as many as asked"


class CacheMode(StrEnum):
    """vLLM's `mamba_cache_mode` under which prefix caching works."""

    ALL = "all"
    ALIGN = "align"
