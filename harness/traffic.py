"""What traffic notices of the alignment: how many requests end at an exact boundary, at what cost.

Lengths alone say what happens if every prompt is found in host memory. A trace in the form of
Mooncake's (https://github.com/kvcache-ai/Mooncake, FAST25 traces) also says what was served before:
`hash_ids` names each block of 512 tokens of a prompt together with all that comes before it, so
equal leading ids are a shared prefix. It is replayed in the order of the file against host memory
that never fills.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness import cost_model, window
from harness.cost_model import CostModel
from harness.errors import FixcostError
from harness.estimate import CONFIDENCE, Estimate

HASH_BLOCK = 512
"""Tokens of one id of a Mooncake trace."""
LENGTH_NAMES = (
    "prompt_length",
    "prompt_tokens",
    "input_length",
    "input_tokens",
    "ContextTokens",
    "Request tokens",
)
"""Columns in which public traces keep the length of a prompt (Mooncake, Azure, BurstGPT)."""
LONGEST = 1 << 31
TAIL = 0.99


@dataclass(frozen=True)
class Request:
    """One request of the traffic."""

    prompt_length: int
    stored: int
    """Leading tokens that earlier requests have left in host memory, at most."""


@dataclass(frozen=True)
class Expectation:
    """What the traffic notices at one chunk size."""

    chunk: int
    requests: int
    exact: int
    """Requests that end at an exact boundary and are all in host memory."""
    by_length: int
    """Requests that end at an exact boundary, stored or not."""
    share: float
    """Of `exact` in all requests."""
    mean_tokens: float
    """Tokens computed again because of the alignment, per request."""
    tail_tokens: float
    """The same, at the 99th percentile of the requests."""
    mean_seconds: Estimate | None
    """Seconds that this adds to the time to the first token; None without a cost model."""
    tail_seconds: Estimate | None
    beyond: bool
    """Whether some of these prompts lie beyond the range that the model was measured in."""


def expect(requests: Sequence[Request], chunk: int, model: CostModel | None = None) -> Expectation:
    """Work out what a chunk of `chunk` tokens means for these requests (at least one)."""
    at_boundary = [window.is_exact_boundary(r.prompt_length, chunk) for r in requests]
    hits = Counter(
        request.prompt_length
        for boundary, request in zip(at_boundary, requests, strict=True)
        if boundary and request.stored >= request.prompt_length
    )
    exact = hits.total()
    counts = np.array([len(requests) - exact, *hits.values()])
    tokens = np.array([0, *(chunk - 1 for _ in hits)])
    added = None
    if model is not None:
        each = [cost_model.added_seconds(model, length, chunk) for length in hits]
        added = np.array([np.zeros(len(model.draws) + 1), *each])
    return Expectation(
        chunk=chunk,
        requests=len(requests),
        exact=exact,
        by_length=sum(at_boundary),
        share=exact / len(requests),
        mean_tokens=float(counts @ tokens) / len(requests),
        tail_tokens=float(_tail(tokens, counts)),
        mean_seconds=None if added is None else _interval(counts @ added / len(requests)),
        tail_seconds=None if added is None else _interval(_tail(added, counts)),
        beyond=model is not None and any(cost_model.beyond(model, n, chunk) for n in hits),
    )


def read(path: Path) -> list[Request]:
    """Read a file of prompt lengths: one a line, CSV with a header, JSONL, or a Mooncake trace.

    Raises:
        FixcostError: there is no length in it, or a line that cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise FixcostError(f"{path} is not a text file.") from None
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise FixcostError(f"{path} holds no prompt length.")
    first = lines[0][1].strip()
    if first.startswith("{"):
        requests = list(_replay(_json_lines(path, lines)))
    elif first.isdecimal():
        requests = [_whole(_length(path, number, line.strip())) for number, line in lines]
    else:
        requests = list(map(_whole, _csv_column(path, lines)))
    if not requests:
        raise FixcostError(f"{path} holds no prompt length.")
    return requests


def _whole(prompt_length: int) -> Request:
    return Request(prompt_length, stored=prompt_length)


def _replay(served: Iterable[tuple[int, list[int] | None]]) -> Iterator[Request]:
    """Find what of each prompt was served before; without ids, all of it."""
    seen: set[int] = set()
    for prompt_length, ids in served:
        if ids is None:
            yield _whole(prompt_length)
            continue
        known = next((place for place, block in enumerate(ids) if block not in seen), len(ids))
        seen.update(ids)
        yield Request(prompt_length, stored=min(known * HASH_BLOCK, prompt_length))


def _json_lines(
    path: Path, lines: Iterable[tuple[int, str]]
) -> Iterator[tuple[int, list[int] | None]]:
    for number, line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            raise _bad(path, number, "is not JSON") from None
        name = _length_name(entry) if isinstance(entry, dict) else None
        if name is None:
            raise _bad(path, number, f"has none of {', '.join(LENGTH_NAMES)}")
        prompt_length = _length(path, number, entry[name])
        ids = entry.get("hash_ids")
        if ids is not None:
            _check_ids(path, number, ids, prompt_length)
        yield prompt_length, ids


def _check_ids(path: Path, number: int, ids: object, prompt_length: int) -> None:
    if not isinstance(ids, list) or not all(type(one) is int for one in ids):
        raise _bad(path, number, "has hash_ids that are no list of whole numbers")
    if len(ids) != -(-prompt_length // HASH_BLOCK):
        raise _bad(
            path,
            number,
            f"has {len(ids)} hash_ids for {prompt_length} tokens, which should be one for each "
            f"{HASH_BLOCK} of them",
        )


def _csv_column(path: Path, lines: Sequence[tuple[int, str]]) -> Iterator[int]:
    rows = csv.reader((line for _, line in lines), strict=True)
    header = [name.strip() for name in next(rows)]
    name = _length_name(header)
    if name is None:
        raise _bad(path, lines[0][0], f"is no number and names none of {', '.join(LENGTH_NAMES)}")
    place = header.index(name)
    while row := _next_row(path, lines, rows):
        number = lines[rows.line_num - 1][0]
        if place >= len(row):
            raise _bad(path, number, f"has no column {name}")
        yield _length(path, number, row[place].strip())


def _next_row(path: Path, lines: Sequence[tuple[int, str]], rows: Any) -> list[str] | None:
    try:
        return next(rows, None)
    except csv.Error as error:
        raise _bad(path, lines[rows.line_num - 1][0], f"is not CSV ({error})") from None


def _length_name(names: Iterable[str]) -> str | None:
    return next((name for name in LENGTH_NAMES if name in names), None)


def _length(path: Path, number: int, value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    if type(value) is not int or not 0 < value < LONGEST:
        raise _bad(path, number, f"has no prompt length of 1 token or more: {str(value)[:40]!r}")
    return value


def _bad(path: Path, number: int, reason: str) -> FixcostError:
    return FixcostError(f"{path}, line {number}, {reason}.")


def _tail(values: NDArray[Any], counts: NDArray[Any]) -> NDArray[Any]:
    """The 99th percentile over requests, of `counts` of which each value along axis 0 is true."""
    weights = np.broadcast_to(counts.reshape(-1, *[1] * (values.ndim - 1)), values.shape)
    tail = np.quantile(values, TAIL, axis=0, weights=weights, method="inverted_cdf")
    return np.asarray(tail)


def _interval(values: NDArray[np.float64]) -> Estimate:
    """Of the best guess, which comes first, and its resampled fellows."""
    low, high = np.quantile(values[1:], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(float(values[0]), float(low), float(high), len(values) - 1)
