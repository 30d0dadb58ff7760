"""What traffic notices, against lengths and traces of which the answer is known."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from harness import traffic
from harness.cli import app
from harness.cost_model import CostModel
from harness.errors import FixcostError
from harness.estimate import Estimate
from harness.record import Group
from harness.traffic import Request

PER_TOKEN, PER_BYTE = 50e-6, 1e-9
MODEL = CostModel(
    base=Estimate(0.004, 0.003, 0.005, 3),
    per_token=Estimate(PER_TOKEN, 40e-6, 60e-6, 3),
    per_byte=Estimate(PER_BYTE, 0.0, 2e-9, 3),
    held_out=[],
    chunk=128,
    groups=[Group(recurrent=False, layers=1, tokens_per_block=128, page_bytes=1000)],
    tokens_measured=(1, 128),
    bytes_measured=(1000, 8000),
    lengths_measured=(255, 1088),
    draws=[(0.004, 40e-6, PER_BYTE), (0.004, PER_TOKEN, PER_BYTE), (0.004, 60e-6, PER_BYTE)],
    without=[],
)


def written(folder: Path, lines: Iterable[object], name: str = "lengths") -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def lengths(path: Path) -> list[int]:
    return [request.prompt_length for request in traffic.read(path)]


@given(chunk=st.integers(2, 300), rounds=st.integers(1, 4), first=st.integers(2, 9))
def test_uniform_lengths_hit_a_boundary_once_in_a_chunk(
    chunk: int, rounds: int, first: int
) -> None:
    begin = first * chunk
    requests = [Request(n, n) for n in range(begin, begin + rounds * chunk)]
    found = traffic.expect(requests, chunk)
    assert found.share == pytest.approx(1 / chunk)
    assert found.mean_tokens == pytest.approx((chunk - 1) / chunk)


def test_a_prompt_of_one_chunk_is_no_boundary() -> None:
    assert traffic.expect([Request(128, 128), Request(256, 256)], 128).exact == 1


def test_tokens_and_seconds_that_the_alignment_adds() -> None:
    """98 requests notice nothing, 2 compute 127 tokens more and move one block less."""
    found = traffic.expect([Request(300, 300)] * 98 + [Request(256, 256)] * 2, 128, MODEL)
    assert (found.exact, found.share) == (2, 0.02)
    assert found.mean_tokens == pytest.approx(2.54)
    assert found.tail_tokens == 127
    added = 127 * PER_TOKEN - 1000 * PER_BYTE
    assert found.mean_seconds is not None and found.tail_seconds is not None
    assert found.mean_seconds.value == pytest.approx(0.02 * added)
    assert found.tail_seconds.value == pytest.approx(added)
    assert found.tail_seconds.low < 127 * 41e-6 < added < 127 * 59e-6 < found.tail_seconds.high
    assert not found.beyond


def test_boundaries_beyond_the_measured_range_are_said() -> None:
    assert traffic.expect([Request(1280, 1280)], 128, MODEL).beyond
    assert not traffic.expect([Request(1281, 1281)], 128, MODEL).beyond


def test_forms_of_a_file(tmp_path: Path) -> None:
    assert lengths(written(tmp_path, [12, "", 7])) == [12, 7]
    azure = ["TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:15:46,374,44", "x,396,109"]
    assert lengths(written(tmp_path, azure)) == [374, 396]
    burst = ['Timestamp,"Request tokens",Total', '5,"472",490']
    assert lengths(written(tmp_path, burst)) == [472]
    rows = [json.dumps({"prompt_tokens": n, "user": "a"}) for n in (5, 6)]
    assert lengths(written(tmp_path, rows)) == [5, 6]


def trace(*served: tuple[int, list[int]]) -> list[str]:
    return [
        json.dumps({"timestamp": 0, "input_length": n, "output_length": 1, "hash_ids": ids})
        for n, ids in served
    ]


def test_trace_is_replayed_against_what_was_served_before(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        trace(
            (1024, [1, 2]),  # nothing stored
            (1024, [1, 2]),  # all stored, at a boundary
            (1536, [1, 2, 3]),  # two of three blocks stored
            (700, [1, 4]),  # one block stored
            (700, [1, 4]),  # all stored, no boundary
            (1024, [9, 2]),  # another prefix: an id later on does not count
        ),
    )
    requests = traffic.read(path)
    assert [request.stored for request in requests] == [0, 1024, 1024, 512, 700, 0]
    found = traffic.expect(requests, 512)
    assert (found.by_length, found.exact, found.requests) == (4, 1, 6)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "holds no prompt length"),
        (["length", "5"], r"line 1, is no number and names none of prompt_length, "),
        (["12", "x"], r"line 2, has no prompt length of 1 token or more: 'x'"),
        (["12", "0"], "line 2, has no prompt length"),
        (["12", "-3"], "line 2, has no prompt length"),
        (["12", "9" * 30], "line 2, has no prompt length"),
        (["input_length,a", "1,2", "", "x,3"], "line 4, has no prompt length"),
        (["a,input_length", "1"], "line 2, has no column input_length"),
        (["a,input_length", '"1,2'], "line 2, is not CSV"),
        (["input_length"], "holds no prompt length"),
        (['{"input_length": 3}', "{"], "line 2, is not JSON"),
        (['{"input_length": true}'], "line 1, has no prompt length"),
        (['{"input_length": 2.5}'], "line 1, has no prompt length"),
        (['{"length": 3}'], "line 1, has none of"),
        (['{"input_length": 600, "hash_ids": [1]}'], "1 hash_ids for 600 tokens"),
        (['{"input_length": 6, "hash_ids": "a"}'], "no list of whole numbers"),
    ],
)
def test_bad_files_are_one_sentence_with_the_line(
    tmp_path: Path, lines: list[str], said: str
) -> None:
    with pytest.raises(FixcostError, match=said):
        traffic.read(written(tmp_path, lines))


def test_binary_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lengths"
    path.write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(FixcostError, match="is not a text file"):
        traffic.read(path)


def test_command_on_uniform_lengths(tmp_path: Path) -> None:
    path = written(tmp_path, range(2000, 4000))
    command = ["expect", str(path), "--chunk", "100", "--chunk", "200"]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0
    assert "2000 requests" in shown.stdout
    assert "1.000%" in shown.stdout and "0.500%" in shown.stdout
    found = json.loads(CliRunner().invoke(app, [*command, "--format", "json"]).stdout)
    assert [(one["chunk"], one["exact"]) for one in found] == [(100, 20), (200, 10)]
    assert found[0]["mean_seconds"] is None


def test_chunk_must_be_named(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, ["expect", str(written(tmp_path, [5]))])
    assert isinstance(outcome.exception, FixcostError)
    assert "Name a chunk size" in str(outcome.exception)
