"""Tables and sentences for the cost model and for traffic, and the same as JSON."""

from collections.abc import Sequence
from statistics import median

from rich import box
from rich.table import Table

from harness.cost_model import CostModel, Prediction
from harness.estimate import Estimate
from harness.report import as_json
from harness.traffic import Expectation
from harness.vocabulary import Alignment
from harness.wording import interval, percent

_BOTH = (Alignment.UNALIGNED, Alignment.ALIGNED)


def model_as_json(model: CostModel, predictions: Sequence[Prediction]) -> str:
    """The model, its check on cells left out, and the predictions."""
    return as_json(
        {
            "base": model.base,
            "per_token": model.per_token,
            "per_byte": model.per_byte,
            "chunk": model.chunk,
            "tokens_measured": model.tokens_measured,
            "bytes_measured": model.bytes_measured,
            "lengths_measured": model.lengths_measured,
            "held_out": model.held_out,
            "predictions": predictions,
        }
    )


def model_sentences(model: CostModel) -> str:
    """What a token and a byte cost, and how well that tells cells that it was not fitted to."""
    boundaries = [one for one in model.held_out if one.cell.is_exact_boundary]
    misses = [abs(one.predicted.value / one.measured - 1) for one in boundaries]
    within = sum(one.predicted.includes(one.measured) for one in model.held_out)
    return (
        f"Time to the first token is {_scaled(model.base, 1e3, 'ms')}, and "
        f"{_scaled(model.per_token, 1e6, 'us')} for each recomputed token, and "
        f"{_scaled(model.per_byte, 1e3 * (1 << 20), 'ms')} for each MiB reloaded. "
        f"With each cell left out in turn, the fix cost at exact boundaries is missed by "
        f"{percent(median(misses))} in the median and {percent(max(misses))} at most; "
        f"{within} of {len(model.held_out)} cells lie in the interval predicted for them."
    )


def prediction_table(predictions: Sequence[Prediction]) -> Table:
    """One row a prompt length and chunk."""
    table = _table("Predicted, all of the prompt being in host memory")
    table.add_column("prompt\ntokens", justify="right")
    table.add_column("chunk\ntokens", justify="right")
    for figure in ("recomputed\ntokens", "reloaded\nKiB", "TTFT\nms"):
        table.add_column(f"{figure}\nunaligned", justify="right")
        table.add_column("\n\naligned", justify="right")
    table.add_column("fix\ncost", justify="right")
    table.add_column("95 %\ninterval")
    table.add_column("beyond what\nwas measured")
    for one in predictions:
        table.add_row(
            str(one.prompt_length),
            str(one.chunk),
            *(str(one.recomputed_tokens[a]) for a in _BOTH),
            *(f"{one.reload_bytes[a] / 1024:.0f}" for a in _BOTH),
            *(f"{one.ttft[a] * 1e3:.1f}" for a in _BOTH),
            f"{one.fix_cost.value:.2f}x",
            interval(one.fix_cost) if one.fix_cost.low else "too few cells",
            one.beyond,
        )
    return table


def traffic_table(expected: Sequence[Expectation]) -> Table:
    """One row a chunk size."""
    table = _table(f"{expected[0].requests} requests")
    table.add_column("chunk\ntokens", justify="right")
    table.add_column("at an exact\nboundary", justify="right")
    table.add_column("and stored\nbefore", justify="right")
    table.add_column("share of\nrequests", justify="right")
    table.add_column("tokens more\nmean", justify="right")
    table.add_column("\n99th pct", justify="right")
    if expected[0].mean_seconds is not None:
        table.add_column("ms more\nmean", justify="right", no_wrap=True)
        table.add_column("\n99th pct", justify="right", no_wrap=True)
        table.add_column("beyond what\nwas measured")
    for one in expected:
        row = [
            str(one.chunk),
            str(one.by_length),
            str(one.exact),
            f"{one.share:.3%}",
            f"{one.mean_tokens:.2f}",
            f"{one.tail_tokens:.0f}",
        ]
        if one.mean_seconds is not None and one.tail_seconds is not None:
            row += [_ms(one.mean_seconds), _ms(one.tail_seconds), "yes" if one.beyond else "no"]
        table.add_row(*row)
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0)


def _ms(seconds: Estimate) -> str:
    if seconds.low == seconds.high:
        return f"{seconds.value * 1e3:.3g}"
    return f"{seconds.value * 1e3:.3g} ({seconds.low * 1e3:.3g} to {seconds.high * 1e3:.3g})"


def _scaled(figure: Estimate, factor: float, unit: str) -> str:
    value, low, high = (bound * factor for bound in (figure.value, figure.low, figure.high))
    return f"{value:.3g} {unit} ({low:.3g} to {high:.3g})"
