"""What a run says, in plain words: is the output right, what does the fix cost, and where."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from harness import energy_tables, estimate, numbers, trust, verdict
from harness.cells import Cell
from harness.comparison import Comparison
from harness.estimate import Estimate
from harness.record import Oracle, Record
from harness.starts import Change
from harness.verdict import Verdict
from harness.vocabulary import Arm, Scenario
from harness.wording import bound, change, interval, listed, percent, times

Ratios = Mapping[Cell, Sequence[float]]


def of_comparison(comparison: Comparison) -> str:
    """The paragraph under `fixcost compare`: outputs first, then the cost, then the control."""
    rows = comparison.rows
    cells = [row.cell for row in rows]
    cost = _cost({row.cell: row.fix_costs for row in rows})
    noise = _noise(estimate.pooled(row.noise for row in rows), [row.detectable for row in rows])
    left_out = _left_out(comparison.one_sided)
    faulty = mark_of(comparison.faulty)
    between = _between(comparison)
    energy = energy_tables.said_of_comparison(comparison)
    if any(Verdict.CANNOT_TELL in (row.base.verdict, row.fix.verdict) for row in rows):
        unsure = _cannot_tell(f"{comparison.base} and {comparison.fix}")
        return " ".join(filter(None, (faulty, unsure, cost, noise, between, energy, left_out)))
    base_wrong = [row.cell for row in rows if row.base.verdict is Verdict.WRONG]
    fix_wrong = [row.cell for row in rows if row.fix.verdict is Verdict.WRONG]
    missed = [row.cell for row in rows if not (row.base.control_caught and row.fix.control_caught)]
    return " ".join(
        part
        for part in (
            faulty,
            _outputs(comparison.base, base_wrong, cells),
            _outputs(comparison.fix, fix_wrong, cells),
            cost,
            noise,
            between,
            _control(missed, cells, comparison.blind),
            energy,
            left_out,
        )
        if part
    )


def of_record(record: Record) -> str:
    """The paragraph under `fixcost report`, about one sweep."""
    origin = record.header.provenance
    name = f"vLLM {origin.vllm}" + (f" at commit {origin.commit[:8]}" if origin.commit else "")
    cells = list(record.cells)
    oracle = verdict.oracle_of(record)
    if not oracle.blind:
        wrong = _wrong_cells(record, Arm.RELOAD_SHIPPED)
        caught = _wrong_cells(record, Arm.RELOAD_UNALIGNED)
        missed = [c for c in cells if c.is_exact_boundary and c not in caught]
        about_output = " ".join((_outputs(name, wrong, cells), *_unexpected(record)))
        about_control = f"{_control(missed, cells, oracle.blind_scenarios)} {_margins(oracle)}"
    else:
        about_output = _cannot_tell(name, oracle.blind)
        about_control = ""
    cost = _cost({cell: numbers.fix_costs(result) for cell, result in record.cells.items()})
    marked = _marked(trust.faults(record))
    energy = f"{_host_memory(record)} {energy_tables.said_of_record(record)}".strip()
    parts = (marked, about_output, cost, _instrument(record), about_control, energy)
    return " ".join((*filter(None, parts), *trust.advice(record)))


def _unexpected(record: Record) -> Iterator[str]:
    """A sentence for each arm that is wrong where no alignment can make it so."""
    for arm in Arm:
        if arm not in (Arm.COLD, Arm.RELOAD_SHIPPED):
            wrong = _wrong_cells(record, arm)
            if arm is Arm.RELOAD_UNALIGNED:
                wrong = [cell for cell in wrong if not cell.is_exact_boundary]
            if wrong:
                named = listed([cell.label for cell in wrong])
                yield f"Arm {arm} is WRONG as well, in {len(wrong)} cells: {named}."


def _marked(faults: Collection[str]) -> str:
    return " ".join(("DO NOT TRUST THIS RUN:", *faults)) if faults else ""


def mark_of(names: list[str]) -> str:
    """What leads every text about a comparison in which the run of one of `names` has faults."""
    if not names:
        return ""
    return (
        f"DO NOT TRUST THIS COMPARISON: the run of {listed(names)} has faults; `fixcost report` "
        f"on its record says which."
    )


def _between(comparison: Comparison) -> str:
    seen = comparison.between
    if seen is None:
        return ""
    if seen.change is Change.TOO_FEW:
        return (
            f"Whether {comparison.fix} is slower than {comparison.base} under the same alignment "
            f"cannot be told below {percent(seen.detectable)}: one start of each is too few "
            f"(`fixcost bench --more-starts 5` adds some)."
        )
    found = (
        f"no change is seen, and none is larger than {bound(seen.ratio)}"
        if seen.change is Change.NONE_SEEN
        else f"{comparison.fix} is {seen.change.upper()} by {times(seen.ratio)}"
    )
    return (
        f"Under the same alignment {found} ({seen.ratio.count} pairs of starts; a change "
        f"of {percent(seen.detectable)} would have been seen)."
    )


def _instrument(record: Record) -> str:
    seen = trust.instrument(record.cells.values())
    limits = [estimate.detectable(numbers.noise(result)) for result in record.cells.values()]
    sentence = (
        f"{_noise(seen.noise, limits)} Whichever of the two came later took {times(seen.order)}."
    )
    if seen.bursts:
        sentence += f" {seen.bursts} of {seen.samples} samples were taken during a disturbance."
    return sentence


def _host_memory(record: Record) -> str:
    """How fast reloads were, against what this machine can do; "" without a GPU."""
    header = record.header
    if header.bandwidth is None:
        return ""
    moved = [
        (sample.arms[Arm.RELOAD_ALIGNED].reload_bytes, sample.arms[Arm.RELOAD_ALIGNED].reload_time)
        for result in record.cells.values()
        for sample in result.samples
    ]
    rate = sum(size for size, _ in moved) / max(sum(seconds for _, seconds in moved), 1e-9)
    links = [
        f"PCIe generation {gpu.link_generation}, {gpu.link_width} lanes"
        for gpu in header.gpus
        if gpu.link_generation and gpu.link_width
    ]
    ranks = header.provenance.ranks
    return (
        f"Host memory was {'PAGEABLE' if header.pinned is False else 'pinned'}: reloads reached "
        f"{rate / 1e9:.1f} GB/s{f', all {ranks} ranks together' if ranks > 1 else ''}, a large "
        f"copy {header.bandwidth.pinned / 1e9:.1f} GB/s from pinned and "
        f"{header.bandwidth.pageable / 1e9:.1f} GB/s from pageable memory"
        + (f" ({links[0]})." if links else ".")
    )


def _noise(seen: Estimate, limits: Collection[float]) -> str:
    low, high = percent(min(limits)), percent(max(limits))
    return (
        f"Two identical arms differed by {times(seen)}; a change of {low} to {high}, by the cell, "
        f"would have been seen."
    )


def _margins(oracle: Oracle) -> str:
    return (
        f"Correct output drifted by at most {oracle.noise:.1g} nats, the weakest corruption by "
        f"{oracle.weakest:.1g}; what drifts beyond {oracle.threshold:.1g} counts as wrong."
    )


def _wrong_cells(record: Record, arm: Arm) -> list[Cell]:
    oracle = verdict.oracle_of(record)
    return [
        cell
        for cell, result in record.cells.items()
        if verdict.judge(result, arm, oracle) is Verdict.WRONG
    ]


def _left_out(cells: Collection[Cell]) -> str:
    if not cells:
        return ""
    named = listed([cell.label for cell in cells])
    return f"NOT MEASURED on both, and left out above: {named}."


def _cannot_tell(name: str, reason: str = "below float32 rounding can do as much") -> str:
    return f"Whether outputs of {name} are right cannot be told at this precision: {reason}."


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
        each = listed(
            [f"{change(cost)} ({interval(cost)}) at {k}" for k, cost in by_chunks.items()]
        )
        cost = estimate.pooled(at.values())
        sentences.append(
            f"At exact boundaries of {_chunks(list(at))} the fix costs {cost.value:.2f}x in time "
            f"to the first token, against the wrong answer (95 % interval {interval(cost)}, "
            f"{cost.count} pairs): {each}."
        )
    if elsewhere:
        cost = estimate.pooled(elsewhere)
        seen = (
            f"no change is seen, and none is larger than {bound(cost)}"
            if cost.includes(1.0)
            else f"the ratio is {cost.value:.2f}x"
        )
        sentences.append(f"Elsewhere {seen} ({interval(cost)}, {cost.count} pairs).")
    return " ".join(sentences)


def _control(missed: Collection[Cell], cells: Collection[Cell], blind: Collection[Scenario]) -> str:
    boundaries = [cell for cell in cells if cell.is_exact_boundary]
    if not boundaries:
        return "No exact boundary was measured, so this run could not see the bug."
    seeing = [cell for cell in boundaries if cell.scenario not in blind]
    lead = ""
    if blind:
        lead = (
            f"Scenario {listed([one.value for one in blind])} is BLIND here: with what this code "
            f"stores, the unaligned arm restores nothing else than the aligned one. "
        )
    if not seeing:
        return f"{lead}This run could not see the bug."
    if unseen := [cell.label for cell in seeing if cell in missed]:
        return (
            f"{lead}The known corruption went UNSEEN in {listed(unseen)}: this run could not see "
            f"the bug there."
        )
    every = "every other" if blind else "every"
    return (
        f"{lead}The known corruption was caught at {every} exact boundary, so this run could see "
        f"the bug."
    )


def _chunks(cells: Collection[Cell]) -> str:
    return listed([str(k) for k in sorted({cell.chunks for cell in cells})]) + " chunks"
