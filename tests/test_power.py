"""Energy meters: NVIDIA's real bindings on a library that stands in for the driver, and RAPL."""

import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pynvml
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import nvml
from harness.errors import MeterError
from harness.power import meters, rapl, windows
from harness.power.counter import Counter
from harness.power.meters import Meters
from harness.power.windows import Load
from harness.vocabulary import Arm
from tests.standin import Driver, Powercap

NOT_SUPPORTED, NO_PERMISSION, GPU_IS_LOST, UNKNOWN, NOT_FOUND = 3, 4, 15, 999, 13


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    loaded = Driver(tmp_path_factory.mktemp("driver"))
    yield loaded
    loaded.close()


@pytest.fixture
def driver(library: Driver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Driver]:
    """One sound GPU and no RAPL."""
    monkeypatch.setattr(rapl, "ROOT", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    library.reset(1)
    yield library
    library.reset(0)


def counter_of(driver: Driver, index: int = 0) -> Counter:
    """A counter on the stand-in's own time."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    read = partial(nvml.energy, f"GPU {index}", handle)
    return Counter(
        f"GPU {index}",
        read,
        joules=nvml.JOULES,
        span=nvml.SPAN,
        clock=driver.clock,
        pause=lambda seconds: driver.advance(max(seconds, 1e-3)),
    )


@pytest.mark.usefixtures("driver")
def test_real_bindings_run_on_the_stand_in() -> None:
    assert pynvml.__file__ and "tests" not in pynvml.__file__
    assert nvml.names() == ("Stand-in H100",)
    assert nvml.absence() == ""


@given(
    power=st.lists(st.floats(5.0, 700.0), min_size=3, max_size=30),
    request_seconds=st.floats(0.004, 0.3),
    period=st.floats(0.02, 0.2),
    jitter=st.floats(0.0, 0.4),
    offset=st.sampled_from([0, 7, (1 << 64) - 30_000]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=150, deadline=None)
def test_energy_is_what_was_spent_within_the_stated_error(
    library: Driver,
    power: list[float],
    request_seconds: float,
    period: float,
    jitter: float,
    offset: int,
    seed: int,
) -> None:
    library.reset(1)
    pynvml.nvmlInit()
    gpu = library.gpus[0]
    gpu.period, gpu.jitter, gpu.offset, gpu.seed = period, jitter * period, offset, seed
    gpu.shown = offset
    drawn = np.random.default_rng(seed)
    begun: list[float] = []
    ended: list[float] = []

    def go_on(seconds: float) -> None:
        begun.append(gpu.spent)
        gpu.watts = drawn.choice(power)
        library.advance(max(seconds, 1e-3))
        ended.append(gpu.spent)

    found = Meters((counter_of(library),))
    load = Load(prepare=begun.clear, once=lambda: go_on(request_seconds))
    each = windows.length(found, seconds=0.0, loads=2)
    taken = []
    for window in windows.alternate(
        found, {Arm.COLD: load}, each, drawn, clock=library.clock, pause=go_on
    ):
        (energy,) = window.energy.values()
        if window.arm is Arm.COLD:
            really = ended[window.requests - 1] - begun[0]
            assert abs(energy.joules - really) <= energy.error
            assert window.seconds >= windows.LEAST_STEPS * found.period
        taken.append(window.arm)
        ended.clear()
    assert sorted(taken, key=str) == [None] * windows.TURNS + [Arm.COLD] * windows.TURNS


def test_period_is_found_out(driver: Driver) -> None:
    driver.gpus[0].jitter = 0.02
    assert counter_of(driver).period == pytest.approx(0.1, rel=0.2)


def test_wrapped_counter_goes_on(driver: Driver) -> None:
    gpu = driver.gpus[0]
    gpu.offset = (1 << 64) - 150_000  # 150 J below the end
    driver.advance(0.1)
    counter = counter_of(driver)
    before, shown = counter.energy(), gpu.shown
    driver.advance(1.0)
    assert gpu.shown < shown
    assert counter.energy() - before == pytest.approx(100.0, rel=0.01)


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (NOT_SUPPORTED, "has no energy counter (NVIDIA's have one from Volta on)"),
        (NOT_FOUND, "The energy of GPU 0 cannot be read"),
        (NO_PERMISSION, "This user may not read the energy of GPU 0: ask the administrator"),
        (GPU_IS_LOST, "GPU 0 has fallen off the bus: `dmesg` shows why"),
    ],
)
def test_gpu_without_a_meter_says_why(driver: Driver, status: int, says: str) -> None:
    driver.gpus[0].energy_status, driver.gpus[0].calls_left = status, 0
    found = meters.find(gpus=1)
    assert found.counters == () and says in found.reason
    assert found.gpus[0].name == "Stand-in H100"


def test_counter_that_stands_still_is_no_meter(driver: Driver) -> None:
    driver.gpus[0].period = 0.0
    with pytest.raises(MeterError, match="did not move within 2 s"):
        counter_of(driver)


def test_counter_that_was_reset_is_noticed(driver: Driver) -> None:
    counter = counter_of(driver)
    driver.gpus[0].shown = 0
    with pytest.raises(MeterError, match="was reset in the midst of a run"):
        counter.energy()


@pytest.mark.parametrize("status", [GPU_IS_LOST, UNKNOWN])
def test_gpu_lost_in_the_midst_ends_the_windows(driver: Driver, status: int) -> None:
    found = Meters((counter_of(driver),))
    driver.gpus[0].energy_status, driver.gpus[0].calls_left = status, 200
    load = Load(prepare=lambda: None, once=lambda: driver.advance(0.05))
    order = np.random.default_rng(0)
    taken = []
    with pytest.raises(MeterError, match="GPU 0"):
        taken.extend(
            windows.alternate(found, {Arm.COLD: load}, 2.0, order, driver.clock, driver.advance)
        )
    assert 0 < len(taken) < 2 * windows.TURNS


def test_gpu_in_use_is_the_one_that_is_visible(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.reset(2)
    for visible, expected in {
        "1": ["GPU 1"],
        "1,0": ["GPU 1", "GPU 0"],
        "GPU-2": ["GPU 1"],
        "": [],
    }.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert [name for name, _ in nvml.used(2)] == expected, visible
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert [name for name, _ in nvml.used(1)] == ["GPU 0"]


def test_state_and_description_of_a_gpu(driver: Driver) -> None:
    gpu = driver.gpus[0]
    gpu.watts, gpu.temperature, gpu.width, gpu.processes, gpu.mig = 321.5, 71, 8, 2, 1
    gpu.reasons = 0x4 | 0x40  # software power cap, hardware thermal slowdown
    gpu.replays, gpu.ecc_errors = 3, 1
    ((_, handle),) = nvml.used(1)
    said = nvml.describe(handle)
    assert (said.link_width, said.most_link_width, said.link_generation) == (8, 16, 5)
    assert said.sliced and said.ecc and said.others == 2
    now = nvml.state(handle)
    assert (now.watts, now.temperature, now.clock, now.memory_clock) == (321.5, 71, 1980, 2619)
    assert now.throttled == ("power cap", "heat (hardware)")
    assert (now.replays, now.ecc_errors, now.link_generation) == (3, 1, 4)


def test_hot_gpu_cools_down_but_not_for_ever(driver: Driver) -> None:
    ((_, handle),) = nvml.used(1)
    started = [nvml.state(handle)]
    driver.gpus[0].temperature = 60

    def cool(seconds: float) -> None:
        driver.advance(seconds)
        driver.gpus[0].temperature -= 3

    windows.cool_down(lambda: [nvml.state(handle)], started, driver.clock, cool)
    assert driver.gpus[0].temperature == 45
    driver.gpus[0].temperature, began = 90, driver.clock()
    windows.cool_down(lambda: [nvml.state(handle)], started, driver.clock, driver.advance)
    assert driver.clock() - began == pytest.approx(windows.COOLDOWN_SECONDS)


def test_no_meter_at_all_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rapl, "ROOT", tmp_path)
    found = meters.find(gpus=0)
    assert found.counters == () and found.period == 0.0 and found.states() == []
    assert found.reason == "The processor's energy (RAPL) is not shown by this kernel."
    assert "driver" in meters.find(gpus=1).reason


def test_package_and_memory_are_metered_and_nothing_twice(tmp_path: Path) -> None:
    tree = Powercap(tmp_path / "powercap")
    assert rapl.zones(tree.root) == [tree.package, tree.dram]
    assert [rapl.name(zone) for zone in rapl.zones(tree.root)] == ["package-0", "package-0 dram"]


def test_rapl_wraps_at_its_maximum(tmp_path: Path) -> None:
    tree = Powercap(tmp_path / "powercap", span=1_000_000)
    now, spent = 0.0, 900_000

    def go_on(seconds: float) -> None:
        nonlocal now, spent
        now += max(seconds, 1e-3)
        spent += 10_000
        tree.show(tree.package, spent)

    go_on(0.0)
    counter = Counter(
        "package-0",
        rapl.reader(tree.package),
        joules=rapl.JOULES,
        span=rapl.span(tree.package),
        clock=lambda: now,
        pause=go_on,
    )
    before, began = counter.energy(), spent
    for _ in range(150):
        go_on(0.0)
        counter.energy()
    assert spent - began == 1_500_000
    assert counter.energy() - before == pytest.approx(1.5 - 1e-6, abs=3e-6)


def test_energy_that_only_root_may_read_says_what_to_do(tmp_path: Path) -> None:
    tree = Powercap(tmp_path / "powercap")
    for zone in (tree.package, tree.dram):
        (zone / "energy_uj").chmod(0o400)
    opened = [tmp_path, *tmp_path.parents][:4] if os.geteuid() == 0 else []
    modes = [(folder, folder.stat().st_mode) for folder in opened]
    for folder in opened:
        folder.chmod(folder.stat().st_mode | 0o055)
    try:
        if os.geteuid() == 0:
            os.seteuid(65534)
        else:
            (tree.package / "energy_uj").chmod(0o000)
        with pytest.raises(MeterError, match=r"Only root may read .* package-0: run as root, or"):
            rapl.reader(tree.package)()
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        for folder, mode in modes:
            folder.chmod(mode)


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Powercap]:
    """A powercap tree that takes 20 W for the package and 5 W for the memory, all the time."""
    tree = Powercap(tmp_path / "powercap")
    monkeypatch.setattr(rapl, "ROOT", tree.root)
    stop = threading.Event()

    def run() -> None:
        steps = 0
        while not stop.wait(0.002):
            steps += 1
            tree.show(tree.package, steps * 40_000)
            tree.show(tree.dram, steps * 10_000)

    thread = threading.Thread(target=run)
    thread.start()
    yield tree
    stop.set()
    thread.join()


@pytest.mark.usefixtures("live")
def test_meters_of_a_processor() -> None:
    found = meters.find(gpus=0)
    assert [one.name for one in found.described] == ["package-0", "package-0 dram"]
    assert 0.001 < found.period < 0.1 and found.reason == ""
