"""What an arm consumes: its request repeated for whole windows of the energy meters.

The output is one token long, as only the way to the first one differs between arms. What repeats a
request belongs to the window: emptying the caches before a reload, and waiting for the stores after
a cold request. Both alignments of a reload have the same of it.
"""

from collections.abc import Sequence

import numpy as np

from harness import protocol
from harness.cells import Cell
from harness.engine import Engine
from harness.errors import MeterError
from harness.power import windows
from harness.power.meters import Meters
from harness.power.windows import Load
from harness.protocol import Draw
from harness.record import Window
from harness.vocabulary import RELOAD_ARMS, REPORTED_ARMS, Arm

_INDEX = 1 << 21
"""Of the sample whose prompt is repeated: one of its own."""
STORES_MORE = "Each repeat of this arm stores more in host memory, so its repeats are not alike."


def measure(
    engine: Engine,
    meters: Meters,
    cell: Cell,
    seed: int,
    seconds: float,
    arms: Sequence[Arm] = REPORTED_ARMS,
) -> tuple[list[Window], dict[Arm, str]]:
    """The windows of a cell, and why an arm has none; nothing at all without a meter.

    Args:
        engine: a running one.
        meters: of this machine.
        cell: which one.
        seed: of the prompt and the order.
        seconds: for all windows together, if the meters allow so short ones.
        arms: which ones.
    """
    if not meters.counters:
        return [], {}
    drawn = protocol.draw(engine, cell, seed, _INDEX)
    loads: dict[Arm, Load] = {}
    reasons: dict[Arm, str] = {}
    for arm in arms:
        load = _load(engine, cell, drawn, arm)
        if _stores_more(engine, arm, load):
            reasons[arm] = STORES_MORE
        else:
            loads[arm] = load
    order = np.random.default_rng([seed, *cell.key.encode(), *b"energy"])
    each = windows.length(meters, seconds, len(arms) + 1)
    windows.cool_down(meters.states, meters.started)
    taken: list[Window] = []
    try:
        taken.extend(windows.alternate(meters, loads, each, order))
    except MeterError as error:
        reasons |= {arm: str(error) for arm in loads}
        taken = []
    return taken, reasons


def _load(engine: Engine, cell: Cell, drawn: Draw, arm: Arm) -> Load:
    def cold() -> None:
        engine.evict(host=True)
        engine.serve(drawn.prompt, tokens=1)
        engine.settle()

    def hit() -> None:
        engine.serve(drawn.prompt, tokens=1)

    def reload() -> None:
        engine.evict()
        with engine.alignment(RELOAD_ARMS[arm]):
            engine.serve(drawn.prompt, tokens=1)

    def earlier() -> None:
        protocol.serve_earlier(engine, cell, drawn)
        engine.settle()

    def cached() -> None:
        protocol.serve_before(engine, cell, drawn)
        hit()

    if arm is Arm.COLD:
        return Load(lambda: None, cold)
    return Load(cached, hit) if arm is Arm.GPU_HIT else Load(earlier, reload)


def _stores_more(engine: Engine, arm: Arm, load: Load) -> bool:
    """Whether a repeat of the arm does not find what the one before it had found."""
    if arm is Arm.COLD:
        return False
    load.prepare()
    stored = engine.stored_bytes()
    load.once()
    engine.settle()
    return engine.stored_bytes() != stored
