"""The engine room and the axes, each on a real engine."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import sweep_table

from harness import engine, protocol, vllm_names
from harness.cells import Cell
from harness.engine import Engine
from harness.errors import FixcostError
from harness.profiles import PROFILES
from harness.protocol import VoidSampleError
from harness.vocabulary import Alignment, Offset, Scenario

TINY = PROFILES["cpu-tiny"]
BOUNDARY = Cell(Scenario.REPEAT, 2, Offset.EXACT)


@pytest.fixture(scope="module")
def running() -> Iterator[Engine]:
    with engine.start(TINY) as started:
        yield started


def test_what_is_read_back(running: Engine) -> None:
    assert running.chunk == 128
    assert running.vocabulary == 512
    assert running.context == 2048
    assert running.shipped_alignment == 128
    assert sorted(group.recurrent for group in running.groups) == [False, True, True]
    # Two layers a group. A Mamba page: 3 inputs of 384 channels and 8 heads of 32 x 32, float32;
    # an attention page: keys and values of 2 heads of 32 for 128 tokens, float32.
    assert {group.recurrent: group.page_bytes for group in running.groups} == {
        True: 4 * (3 * 384 + 8 * 32 * 32),
        False: 4 * (2 * 2 * 32 * 128),
    }


def test_log_probabilities_are_those_that_vllm_reports(
    running: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tap on the logits against the official, slow way, which several ranks must take."""
    import torch

    for length in (127, 300):
        prompt = np.random.default_rng(length).integers(3, 512, length).tolist()
        running.evict(host=True)
        served = running.serve(prompt)
        running.evict(host=True)
        monkeypatch.setattr(running, "_tapped", False)
        with torch.compiler.set_stance("force_eager"):  # else vLLM's ranking wants a C++ compiler
            official = running.serve(prompt)
        monkeypatch.setattr(running, "_tapped", True)
        assert official.tokens == served.tokens
        assert official.logprobs.shape == (512,)
        np.testing.assert_allclose(served.logprobs, official.logprobs, atol=1e-5)
        assert served.tokens[0] == int(np.argmax(official.logprobs))


def test_host_memory_of_a_cpu_is_not_pinned(running: Engine) -> None:
    assert running.pinned is None


def test_engine_that_fails_is_one_sentence(
    running: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    monkeypatch.setattr(running._llm, "generate", fail)
    with pytest.raises(FixcostError, match="The engine failed: The GPU has too little free mem"):
        running.serve([3, 4, 5])


def test_stores_that_do_not_land_make_a_sample_void(
    running: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "stored_bytes", lambda: 0)
    with pytest.raises(VoidSampleError, match="nothing of the earlier request was stored"):
        protocol.take(running, BOUNDARY, 1, 0)


def test_reload_that_is_none_makes_a_sample_void(
    running: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    evict = running.evict

    def keep(*, host: bool = False) -> None:
        if host:
            evict(host=True)

    monkeypatch.setattr(running, "evict", keep)  # so that reload arms find the device cache full
    with pytest.raises(VoidSampleError, match="tokens cached and moved 0 bytes from host memory"):
        protocol.take(running, BOUNDARY, 1, 0)


def test_same_draw_is_the_same_and_others_differ(running: Engine) -> None:
    first = protocol.draw(running, BOUNDARY, 1, 0)
    assert first == protocol.draw(running, BOUNDARY, 1, 0)
    assert len(first.prompt) == 256
    assert first.longer[:256] == first.prompt and len(first.longer) > 256
    others = [
        protocol.draw(running, BOUNDARY, 2, 0),
        protocol.draw(running, BOUNDARY, 1, 1),
        protocol.draw(running, replace(BOUNDARY, scenario=Scenario.EXTENDED), 1, 0),
    ]
    assert all(other.prompt != first.prompt for other in others)


@pytest.mark.parametrize("offset", list(Offset))
def test_device_hit_does_not_spoil_what_it_reads(running: Engine, offset: Offset) -> None:
    """A hit that is served again and again stays right, whichever path its remainder takes."""
    cell = replace(BOUNDARY, offset=offset)
    drawn = protocol.draw(running, cell, 3, 0)
    cold = protocol.serve_before(running, cell, drawn)
    for _ in range(3):
        hit = protocol.compare(running.serve(drawn.prompt), cold, len(drawn.prompt))
        assert hit.cached_tokens > 0
        assert hit.wrong_tokens == 0
        assert hit.logprob_drift < sweep_table.EQUAL_BELOW


def test_eviction_empties_the_device_and_keeps_the_host(running: Engine) -> None:
    drawn = protocol.draw(running, BOUNDARY, 4, 0)
    protocol.serve_before(running, BOUNDARY, drawn)
    assert running.serve(drawn.prompt).reload_bytes == 0
    running.evict()
    from_host = running.serve(drawn.prompt)
    assert (from_host.cached_tokens, from_host.reload_bytes > 0) == (128, True)
    running.evict(host=True)
    assert running.serve(drawn.prompt).cached_tokens == 0


def test_alignment_is_put_back_even_after_an_error(running: Engine) -> None:
    with pytest.raises(RuntimeError), running.alignment(Alignment.UNALIGNED):
        assert vllm_names.alignment_size(running._connector) is None
        raise RuntimeError
    assert vllm_names.alignment_size(running._connector) == 128


def test_nothing_is_in_flight_after_settling(running: Engine) -> None:
    drawn = protocol.draw(running, BOUNDARY, 5, 0)
    running.evict(host=True)
    running.serve(drawn.prompt)
    running.settle()
    before = running.stored_bytes()
    running.settle()
    assert running.stored_bytes() == before
    assert not vllm_names.transfers_in_flight(running._connector)


def test_engine_leaves_no_thread_and_no_process() -> None:
    script = """
import json, multiprocessing, threading
from harness import engine
from harness.profiles import PROFILES
from harness.protocol import VoidSampleError
before = {thread.name for thread in threading.enumerate()}
with engine.start(PROFILES["cpu-tiny"]) as running:
    running.serve(list(range(3, 20)))
after = [t.name for t in threading.enumerate() if t.name not in before]
print(json.dumps([after, len(multiprocessing.active_children())]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=600
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [[], 0]


def test_cache_mode_all_gives_the_tokens_of_no_cache_at_all(running: Engine) -> None:
    """End to end: our kernels and offloading against vLLM's own without any caching."""
    lengths = [1, 2, 127, 128, 129, 200, 255, 256, 257, 400]
    prompts = [np.random.default_rng(n).integers(3, 512, n).tolist() for n in lengths]
    script = """
import json, os, sys
from harness import profiles
from harness.profiles import PROFILES
from harness.protocol import VoidSampleError
os.environ.update(profiles.engine_environment(PROFILES["cpu-tiny"]))
from vllm import LLM, SamplingParams, TokensPrompt
arguments = profiles.engine_arguments(PROFILES["cpu-tiny"])
del arguments["kv_transfer_config"]
arguments |= {"mamba_cache_mode": "none", "enable_prefix_caching": False}
llm = LLM(**arguments)
greedy = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True, detokenize=False)
for prompt in json.load(sys.stdin):
    (output,) = llm.generate([TokensPrompt(prompt_token_ids=prompt)], greedy, use_tqdm=False)
    print("TOKENS", json.dumps(list(output.outputs[0].token_ids)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(prompts),
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("TOKENS")]
    expected = [tuple(json.loads(line.removeprefix("TOKENS "))) for line in lines]
    assert len(expected) == len(prompts)
    for prompt, tokens in zip(prompts, expected, strict=True):
        running.evict(host=True)
        assert running.serve(prompt, tokens=12).tokens == tokens
        assert running.serve(prompt, tokens=12).tokens == tokens
        running.evict()
        assert running.serve(prompt, tokens=12).tokens == tokens
