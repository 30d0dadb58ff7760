"""Energy end to end: a real engine, a processor that seems to take 25 W all the time."""

import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from benchmarks import common, reload
from harness import (
    conclusion,
    energy,
    energy_tables,
    estimate,
    gpu_trust,
    points,
    record,
    report,
    sweep,
    trust,
)
from harness.asv_names import Stored
from harness.cells import Cell
from harness.comparison import Comparison, Row, Side
from harness.energy import Figure
from harness.estimate import Estimate
from harness.power import rapl, windows
from harness.profiles import PROFILES
from harness.record import Energy, Gpu, GpuState, Record, Window
from harness.site import history, pictures
from harness.verdict import Verdict
from harness.vocabulary import REPORTED_ARMS, Arm, Offset, Scenario
from tests.standin import Powercap

WATTS = 25.0
BOUNDARY = Cell(Scenario.REPEAT, 8, Offset.EXACT)
ABOVE = Cell(Scenario.REPEAT, 2, Offset.ONE_ABOVE)
LOST = Cell(Scenario.EXTENDED, 2, Offset.EXACT)


@dataclass(frozen=True)
class Metered:
    """A sweep whose meter vanishes before its last cell."""

    record: Record
    place: Path


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metered]:
    folder = tmp_path_factory.mktemp("metered")
    tree, place = Powercap(folder / "powercap"), folder / "swept"
    stop = threading.Event()

    def spend() -> None:
        began = time.monotonic()
        while not stop.wait(0.002):
            seconds = time.monotonic() - began
            if (folder / "swept.partial" / "cells" / f"{ABOVE.key}.json").exists():
                shutil.rmtree(tree.root)
                return
            tree.show(tree.package, round(0.8 * WATTS * seconds * 1e6))
            tree.show(tree.dram, round(0.2 * WATTS * seconds * 1e6))

    spending = threading.Thread(target=spend)
    spending.start()
    profile = replace(PROFILES["cpu-tiny"], samples=3, cell_seconds=0.0, energy_seconds=4.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rapl, "ROOT", tree.root)
        try:
            yield Metered(sweep.run(profile, [BOUNDARY, ABOVE, LOST], place, seed=5), place)
        finally:
            stop.set()
            spending.join()


def test_every_arm_has_its_windows_in_turn(metered: Metered) -> None:
    header = metered.record.header
    assert [meter.name for meter in header.meters] == ["package-0", "package-0 dram"]
    assert header.no_energy == ""
    for cell in (BOUNDARY, ABOVE):
        taken = metered.record.cells[cell].windows
        for turn in range(windows.TURNS):
            arms = [window.arm for window in taken if window.turn == turn]
            assert sorted(arms, key=str) == sorted([None, *REPORTED_ARMS], key=str)
        assert all(window.requests >= 2 for window in taken if window.arm)
        assert metered.record.cells[cell].no_energy == {}


def test_power_is_what_the_processor_took(metered: Metered) -> None:
    for cell in (BOUNDARY, ABOVE):
        for arm in REPORTED_ARMS:
            result = metered.record.cells[cell]
            figure = energy.mean(energy.power(result, arm))
            # The thread that spends is late by a moment, which is no fault of the meter.
            assert abs(figure.value - WATTS) <= figure.error + 0.1 * WATTS
            assert not energy.mean(energy.above_idle(result, arm)).value > 0.2 * abs(
                energy.mean(energy.per_request(result, arm)).value
            )


def test_recomputing_a_chunk_takes_energy(metered: Metered) -> None:
    at = estimate.ratio(energy.fix_costs(metered.record.cells[BOUNDARY]))
    elsewhere = estimate.ratio(energy.fix_costs(metered.record.cells[ABOVE]))
    assert at.count == elsewhere.count == windows.TURNS
    assert at.value > 1.2 > elsewhere.value


def test_meter_that_vanishes_costs_the_energy_alone(metered: Metered) -> None:
    result = metered.record.cells[LOST]
    assert len(result.samples) == 3 and result.windows == []
    assert set(result.no_energy) == set(REPORTED_ARMS)
    assert all("package-0 cannot be read" in said for said in result.no_energy.values())
    assert metered.record.header.finished


def test_benchmarks_of_energy(metered: Metered) -> None:
    benchmark = reload.Energy()
    benchmark.setup(metered.place, "reload/aligned", "repeat", "0", 8)
    answer = benchmark.track_energy(metered.place)
    assert isinstance(answer, dict)
    samples = answer["samples"]
    assert isinstance(samples, list) and len(samples) == windows.TURNS and min(samples) > 0
    benchmark.setup(metered.place, "reload/unaligned", "repeat", "0", 8)
    for track in (
        benchmark.track_energy,
        benchmark.track_power,
        benchmark.track_energy_above_idle,
    ):
        with pytest.raises(common.WrongOutputError):
            track(metered.place)
    cost = reload.EnergyFixCost()
    cost.setup(metered.place, "repeat", "0", 8)
    ratios = cost.track_energy_fix_cost()
    assert isinstance(ratios, dict) and len(ratios["samples"]) == windows.TURNS  # type: ignore[arg-type]
    assert 0 < cost.track_error() < 0.2
    with pytest.raises(NotImplementedError, match=r"Energy is n/a: .*cannot be read"):
        cost.setup(metered.place, "extended", "0", 2)


def test_record_with_energy_survives_the_disk(metered: Metered) -> None:
    assert record.read(metered.place) == metered.record


def test_energy_in_words_and_tables(metered: Metered) -> None:
    said = conclusion.of_record(metered.record)
    assert "In energy per request the fix costs" in said
    assert "each energy is right to within" in said
    (table,) = energy_tables.of_record(metered.record)
    console = report.console()
    with console.capture() as captured:
        console.print(table)
    lines = [line.strip() for line in captured.get().splitlines()]
    (row,) = [line for line in lines if line.startswith("repeat, 8 chunks 0")]
    assert "±" in row and "wrong" in row
    (lost,) = [line for line in lines if line.startswith("extended, 2 chunks 0")]
    assert lost.count("n/a") >= 4
    assert max(map(len, lines)) <= 120


def test_run_without_a_meter_says_why(shipped_record: Record) -> None:
    if not shipped_record.header.meters:
        reason = shipped_record.header.no_energy
        assert reason and f"Energy is n/a: {reason}" in conclusion.of_record(shipped_record)
        assert energy_tables.of_record(shipped_record) == []
        assert not any(result.windows for result in shipped_record.cells.values())


def window(arm: Arm | None, joules: float, error: float, seconds: float = 2.0) -> Window:
    requests = 0 if arm is None else 10
    return Window(arm, 0, requests, seconds, {"GPU 0": Energy(joules, error)}, [])


def test_idle_is_taken_off_and_errors_add_up(metered: Metered) -> None:
    taken = [window(Arm.COLD, 300.0, 6.0), window(None, 100.0, 2.0, seconds=1.0)]
    result = replace(metered.record.cells[BOUNDARY], windows=taken)
    assert energy.per_request(result, Arm.COLD) == [Figure(30.0, 0.6)]
    assert energy.power(result, Arm.COLD) == [Figure(150.0, 3.0)]
    (above,) = energy.above_idle(result, Arm.COLD)
    assert (above.value, above.error) == pytest.approx((10.0, 1.0))


def test_below_resolution_is_no_number(metered: Metered) -> None:
    taken = [
        *(window(arm, 101.0, 2.0) for arm in (Arm.RELOAD_ALIGNED, Arm.RELOAD_UNALIGNED)),
        window(None, 100.0, 2.0),
    ]
    result = replace(metered.record.cells[ABOVE], windows=taken)
    (above,) = energy.above_idle(result, Arm.RELOAD_ALIGNED)
    assert not above.is_resolved and energy_tables.with_error(above) == "below"
    assert energy_tables.with_error(Figure(0.1234, 0.004)) == "0.123 ± 0.004"
    weak = [window(arm, 1.0, 2.0) for arm in (Arm.RELOAD_ALIGNED, Arm.RELOAD_UNALIGNED)]
    assert energy.fix_costs(replace(result, windows=weak)) == []
    assert energy.fix_costs(result) == [1.0]


def stored_energy() -> dict[str, dict[tuple[object, ...], Stored]]:
    """One cell with energy, as asv keeps it."""
    arms = {arm: (joules, joules * 1.02, joules * 0.98) for arm, joules in JOULES.items()}
    key = points.parameters(BOUNDARY)
    kept = {points.parameters(BOUNDARY, arm): Stored(j[0], j) for arm, j in arms.items()}
    right = {place: Stored(0.0, (0.0,)) for place in kept}
    return {
        points.RELOAD + "wrong_output": right,
        **{points.ENERGY + metric: kept for metric in energy.METRICS},
        points.ENERGY_FIX_COST: {key: Stored(1.5, (1.5, 1.52, 1.48))},
        points.ENERGY_ERROR: {key: Stored(0.04, ())},
    }


JOULES = {Arm.RELOAD_SHIPPED: 3.0, Arm.RELOAD_ALIGNED: 3.0, Arm.COLD: 9.0}


def test_energy_in_the_comparison_of_commits() -> None:
    shipped = points.energy_of(stored_energy(), Arm.RELOAD_SHIPPED, BOUNDARY)
    assert {name: one.value for name, one in shipped.items()} == dict.fromkeys(energy.METRICS, 3.0)
    side = Side(Verdict.EQUAL, None, 127, 280_576, True, shipped)
    row = Row(
        cell=BOUNDARY,
        base=replace(side, verdict=Verdict.WRONG, energy={}),
        fix=side,
        fix_cost=Estimate(2.0, 1.9, 2.1, 8),
        fix_costs=(2.0,) * 12,
        noise=(0.99, 1.01) * 6,
        detectable=0.05,
        between=None,
        energy_fix_costs=points.energy_fix_costs_of(stored_energy(), BOUNDARY),
        energy_error=points.energy_error_of(stored_energy(), BOUNDARY),
    )
    compared = Comparison("main", "fix", [row], [], [], None)
    assert (
        "In energy per request the fix costs 1.50x (1.42 to 1.59) at exact boundaries, 95 % "
        "intervals over paired windows; each energy is right to within 4 %."
    ) in conclusion.of_comparison(compared)
    assert energy_tables.in_short(compared) == "1.50x (1.42 to 1.59)"
    (table,) = energy_tables.of_comparison(compared)
    cells = [list(column.cells) for column in table.columns]
    assert cells[1:3] == [["wrong"], ["3"]] and cells[-2] == ["1.50x"]
    without = replace(compared, rows=[replace(row, energy_fix_costs=(), energy_error=None)])
    without = replace(without, no_energy="Only root may read the energy of package-0.")
    said = "Energy is n/a: Only root may read the energy of package-0."
    assert said in conclusion.of_comparison(without)
    assert energy_tables.in_short(without) == "n/a"


def test_energy_on_the_dashboard() -> None:
    drawn = pictures.as_svg(pictures.energy(points.of(stored_energy()), Scenario.REPEAT), "energy")
    for arm in ("cold", "reload-shipped", "reload-aligned"):
        assert f'id="energy-repeat-{arm}"' in drawn
    assert 'id="energy-repeat-gpu_hit"' not in drawn
    (series,) = [one for one in history.series({"fix": stored_energy()}) if one.key == "energy"]
    assert series.values[0] is not None and series.values[0].value == pytest.approx(1.5, rel=0.01)


GPU = Gpu("Stand-in H100", 5, 16, 16, ecc=True, sliced=False, others=0)
STATE = GpuState(50.0, 1980, 2619, 300.0, (), 5, replays=2, ecc_errors=1)


def of_gpu(shipped: Record, gpu: Gpu, *states: GpuState) -> Record:
    """The shipped record as if it had been taken on a GPU that was seen so."""
    header = replace(shipped.header, gpus=[gpu])
    kept = list(shipped.cells.items())[: len(states)]
    cells = {c: replace(r, gpus=[s]) for (c, r), s in zip(kept, states, strict=True)}
    return replace(shipped, header=header, cells=cells)


def test_sound_gpu_is_not_spoken_of(shipped_record: Record) -> None:
    found = of_gpu(shipped_record, GPU, STATE, STATE)
    assert list(gpu_trust.advice(found)) == list(gpu_trust.faults(found)) == []


def test_memory_errors_during_the_run_are_a_fault(shipped_record: Record) -> None:
    found = of_gpu(shipped_record, GPU, STATE, replace(STATE, ecc_errors=3))
    assert any("had 2 memory errors that ECC could not correct" in x for x in trust.faults(found))


@pytest.mark.parametrize(
    ("gpu", "state", "says"),
    [
        (replace(GPU, others=1), STATE, "GPU 0 was shared with another program"),
        (replace(GPU, sliced=True), STATE, "GPU 0 is divided into MIG slices"),
        (replace(GPU, link_width=8), STATE, "GPU 0 is linked by 8 of 16 lanes of PCIe"),
        (
            GPU,
            replace(STATE, throttled=("power cap",)),
            "held down at 50% of the moments looked at (power cap)",
        ),
        (GPU, replace(STATE, replays=9), "PCIe had to send 7 packets to or from GPU 0 again"),
    ],
)
def test_what_disturbs_a_gpu_is_said(
    shipped_record: Record, gpu: Gpu, state: GpuState, says: str
) -> None:
    assert any(says in said for said in trust.advice(of_gpu(shipped_record, gpu, STATE, state)))
