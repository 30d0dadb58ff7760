"""What must come out of a sweep, cell by cell: worked out from vLLM's rules, not from our code.

With chunk c and a prompt of n tokens of which `k` whole chunks are in host memory, the last
prompt token is always computed again, so at most n - 1 tokens are a hit. Aligned, the hit is
rounded down to c. Unaligned, an exact boundary gives n - 1: wrong output.
"""

from harness.record import ArmResult, CellResult, Group, Record
from harness.vocabulary import Arm, Offset

EQUAL_BELOW, WRONG_ABOVE = 1e-5, 1e-3


def cached_aligned(offset: Offset, chunks: int, chunk: int) -> int:
    below = offset in (Offset.ONE_BELOW, Offset.EXACT)
    return (chunks - 1 if below else chunks) * chunk


def cached_unaligned(offset: Offset, chunks: int, chunk: int) -> int:
    if offset is Offset.EXACT and chunks > 1:
        return chunks * chunk - 1
    return cached_aligned(offset, chunks, chunk)


def reload_bytes(groups: list[Group], cached: int) -> int:
    """Attention moves every block of the hit, a recurrent state only the last one."""
    if cached == 0:
        return 0
    moved = 0
    for group in groups:
        blocks = 1 if group.recurrent else -(-cached // group.tokens_per_block)
        moved += blocks * group.layers * group.page_bytes
    return moved


def check(record: Record, *, shipped: Arm) -> None:
    """Assert the whole table; `shipped` is the arm that the code under test must behave like."""
    for cell, result in record.cells.items():
        chunk = record.header.chunk
        aligned = cached_aligned(cell.offset, cell.chunks, chunk)
        unaligned = cached_unaligned(cell.offset, cell.chunks, chunk)
        is_boundary = cell.offset is Offset.EXACT and cell.chunks > 1
        expected = {
            Arm.RELOAD_ALIGNED: (aligned, False),
            Arm.RELOAD_UNALIGNED: (unaligned, is_boundary),
        }
        expected[Arm.RELOAD_SHIPPED] = expected[shipped]
        assert result.samples, cell.label
        for sample in result.samples:
            for arm, (cached, wrong) in expected.items():
                _check_arm(result, record, sample.arms[arm], cached, wrong)
            assert sample.arms[Arm.COLD].cached_tokens == 0
            assert sample.arms[Arm.COLD].reload_bytes == 0
            assert sample.arms[Arm.GPU_HIT].reload_bytes == 0
            assert sample.arms[Arm.GPU_HIT].logprob_drift < EQUAL_BELOW
            assert sample.arms[Arm.GPU_HIT].wrong_tokens == 0


def _check_arm(
    result: CellResult, record: Record, arm: ArmResult, cached: int, wrong: bool
) -> None:
    label = result.cell.label
    assert arm.cached_tokens == cached, label
    assert arm.recomputed_tokens == result.prompt_length - cached, label
    assert arm.reload_bytes == reload_bytes(record.header.groups, cached), label
    assert (arm.reload_time > 0) == (cached > 0), label
    assert arm.ttft > 0, label
    if wrong:
        assert arm.logprob_drift > WRONG_ABOVE, label
    else:
        assert arm.logprob_drift < EQUAL_BELOW, label
        assert arm.wrong_tokens == 0, label
