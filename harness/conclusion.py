"""What a run says, in plain words: is the output right, what does the fix cost, and where."""

from collections.abc import Collection, Mapping, Sequence

from harness import estimate, numbers, verdict
from harness.cells import Cell
from harness.comparison import Comparison
from harness.record import Record
from harness.verdict import Verdict
from harness.vocabulary import Arm
from harness.wording import listed, times

Ratios = Mapping[Cell, Sequence[float]]


def of_comparison(comparison: Comparison) -> str:
    """The paragraph under `fixcost compare`: outputs first, then the cost, then the control."""
    rows = comparison.rows
    cells = [row.cell for row in rows]
    cost = _cost({row.cell: row.fix_costs for row in rows})
    left_out = _left_out(comparison.one_sided)
    if any(Verdict.CANNOT_TELL in (row.base.verdict, row.fix.verdict) for row in rows):
        unsure = _cannot_tell(f"{comparison.base} and {comparison.fix}")
        return " ".join(filter(None, (unsure, cost, left_out)))
    base_wrong = [row.cell for row in rows if row.base.verdict is Verdict.WRONG]
    fix_wrong = [row.cell for row in rows if row.fix.verdict is Verdict.WRONG]
    missed = [row.cell for row in rows if not (row.base.control_caught and row.fix.control_caught)]
    return " ".join(
        part
        for part in (
            _outputs(comparison.base, base_wrong, cells),
            _outputs(comparison.fix, fix_wrong, cells),
            cost,
            _control(missed, cells),
            left_out,
        )
        if part
    )


def of_record(record: Record) -> str:
    """The paragraph under `fixcost report`, about one sweep."""
    origin = record.header.provenance
    name = f"vLLM {origin.vllm}" + (f" at commit {origin.commit[:8]}" if origin.commit else "")
    cells = list(record.cells)
    if verdict.can_tell(origin.dtype, origin.state_dtype):
        wrong = _wrong_cells(record, Arm.RELOAD_SHIPPED)
        caught = _wrong_cells(record, Arm.RELOAD_UNALIGNED)
        missed = [c for c in cells if c.is_exact_boundary and c not in caught]
        about_output = _outputs(name, wrong, cells)
        about_control = _control(missed, cells)
    else:
        about_output = _cannot_tell(name)
        about_control = ""
    cost = _cost({cell: numbers.fix_costs(result) for cell, result in record.cells.items()})
    return " ".join(filter(None, (about_output, cost, about_control)))


def _wrong_cells(record: Record, arm: Arm) -> list[Cell]:
    origin = record.header.provenance
    return [
        cell
        for cell, result in record.cells.items()
        if verdict.judge(result, arm, origin) is Verdict.WRONG
    ]


def _left_out(cells: Collection[Cell]) -> str:
    if not cells:
        return ""
    named = listed([cell.label for cell in cells])
    return f"NOT MEASURED on both, and left out above: {named}."


def _cannot_tell(name: str) -> str:
    return (
        f"Whether outputs of {name} are right cannot be told: below float32 rounding alone "
        f"changes them as much as a corruption."
    )


def _outputs(name: str, wrong: Collection[Cell], cells: Collection[Cell]) -> str:
    if not wrong:
        return f"Outputs of {name} are right in all {len(cells)} cells."
    boundaries = [cell for cell in cells if cell.is_exact_boundary]
    if set(wrong) == set(boundaries):
        others = len(cells) - len(wrong)
        return f"Outputs of {name} are WRONG at every exact boundary ({_chunks(boundaries)})" + (
            f" and right in the other {others} cells." if others else "."
        )
    named = listed([cell.label for cell in wrong])
    return f"Outputs of {name} are WRONG in {len(wrong)} of {len(cells)} cells: {named}."


def _cost(ratios: Ratios) -> str:
    at = {cell: drawn for cell, drawn in ratios.items() if cell.is_exact_boundary}
    elsewhere = [drawn for cell, drawn in ratios.items() if not cell.is_exact_boundary]
    sentences = []
    if at:
        by_chunks = {
            k: estimate.pooled(drawn for cell, drawn in at.items() if cell.chunks == k)
            for k in sorted({cell.chunks for cell in at})
        }
        each = listed([f"{times(cost)} at {k} chunks" for k, cost in by_chunks.items()])
        sentences.append(
            f"At exact boundaries the fix costs, in time to the first token against the wrong "
            f"answer, {each}."
        )
    if elsewhere:
        cost = estimate.pooled(elsewhere)
        seen = "no change is seen" if cost.low <= 1 <= cost.high else "the ratio is"
        sentences.append(f"Elsewhere {seen}: {times(cost)}.")
    return " ".join(sentences)


def _control(missed: Collection[Cell], cells: Collection[Cell]) -> str:
    if missed:
        named = listed([cell.label for cell in missed])
        return f"The known corruption went UNSEEN in {named}: this run could not see the bug there."
    if not any(cell.is_exact_boundary for cell in cells):
        return "No exact boundary was measured, so this run could not see the bug."
    return "The known corruption was caught at every exact boundary, so this run could see the bug."


def _chunks(cells: Collection[Cell]) -> str:
    return listed([str(k) for k in sorted({cell.chunks for cell in cells})]) + " chunks"
