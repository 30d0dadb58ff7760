"""The points of a sweep: which prompt lengths, in which scenario."""

from collections.abc import Iterable
from dataclasses import dataclass

from harness.errors import FixcostError
from harness.vocabulary import Offset, Scenario


@dataclass(frozen=True, order=True)
class Cell:
    """One point of the sweep, in chunk units so that it means the same on every machine."""

    scenario: Scenario
    chunks: int
    offset: Offset

    @property
    def key(self) -> str:
        """A name that is unique within a sweep and fit for a file: "repeat_2_+half"."""
        return f"{self.scenario}_{self.chunks}_{self.offset}"

    @property
    def label(self) -> str:
        """The cell as a person reads it: "repeat, 2 chunks +half"."""
        plural = "chunk" if self.chunks == 1 else "chunks"
        return f"{self.scenario}, {self.chunks} {plural} {self.offset}"

    @property
    def is_exact_boundary(self) -> bool:
        """Whether the bug can be seen here: one chunk is never a hit, so boundaries start at 2."""
        return self.offset is Offset.EXACT and self.chunks >= 2

    def prompt_length(self, chunk: int) -> int:
        """The prompt length in tokens for a chunk of `chunk` tokens."""
        return self.chunks * chunk + self.offset.tokens(chunk)


def grid(chunks: Iterable[int]) -> list[Cell]:
    """All cells over `chunks`, every offset and both scenarios, in a fixed order."""
    lengths = sorted(set(chunks))
    return [
        Cell(scenario, k, offset) for scenario in Scenario for k in lengths for offset in Offset
    ]


def check_fit(cells: Iterable[Cell], chunk: int, context: int, extra: int) -> None:
    """Refuse cells whose prompt and the `extra` tokens beside it exceed the context.

    Args:
        cells: the cells of a sweep.
        chunk: tokens per chunk, as the engine has it.
        context: tokens that the engine takes for prompt and output together.
        extra: tokens needed beside the prompt (output, and the longer prompt of `extended`).

    Raises:
        FixcostError: the longest prompt does not fit.
    """
    longest = max(cell.prompt_length(chunk) for cell in cells)
    if longest + extra > context:
        raise FixcostError(
            f"The longest prompt of this sweep has {longest} tokens (chunk of {chunk}) and needs "
            f"{extra} more, but the context holds {context}: "
            f"ask for fewer chunks or raise the profile's context."
        )
