"""One real vLLM engine in this process, and what a sample needs of it."""

import gc
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from harness import engine_errors, hardware, profiles, vllm_names
from harness.errors import FixcostError
from harness.profiles import Profile
from harness.vocabulary import Alignment

SETTLE_SECONDS = 60.0
"""How long stores may take to drain before the engine counts as stuck."""
NOT_INSTALLED = (
    "vLLM is not installed in this environment: run `make setup`, or see the README for the "
    "installation on a GPU."
)


@dataclass(frozen=True)
class Serving:
    """What one request gave and what it took."""

    tokens: tuple[int, ...]
    """The greedy output."""
    logprobs: NDArray[np.float32]
    """Log-probabilities of the first output token, shape (vocabulary,)."""
    cached_tokens: int
    """Prompt tokens that were not computed again."""
    ttft: float
    """Seconds from arrival to the first token."""
    reload_bytes: int
    """Of all ranks together."""
    reload_time: float
    """Seconds that the transfers from host memory took."""
    host_time: float
    """Seconds from the call to its return, all output tokens included."""
    device_time: float | None
    """The same between two CUDA events; None without a GPU."""


class Engine:
    """A running vLLM engine. Make one with `start`, which also shuts it down."""

    def __init__(self, llm: Any, profile: Profile) -> None:
        """Read back what the engine really uses.

        Raises:
            FixcostError: this vLLM lacks a name we need, the model is not hybrid, or its groups
                disagree about the chunk.
        """
        self._llm = llm
        self._scheduler = vllm_names.scheduler(llm)
        self._connector = vllm_names.connector_scheduler(llm)
        self._shipped = vllm_names.alignment_size(self._connector)
        self._transferred = vllm_names.count_transfers(self._connector)
        self._output_tokens = profile.output_tokens
        self.groups = vllm_names.cache_groups(self._scheduler)
        if not any(group.recurrent for group in self.groups):
            raise FixcostError(
                f"{profile.model} is not a hybrid model: it has no Mamba layer, so no recurrent "
                f"state can be restored wrongly."
            )
        self.chunk = common_chunk(vllm_names.chunk_sizes(self._connector))
        self.vocabulary: int = llm.model_config.get_vocab_size()
        self.context: int = llm.model_config.max_model_len
        self.pinned = vllm_names.host_memory_is_pinned(llm)
        self._on_gpu = profile.device == "cuda"
        self._logits: deque[Any] = deque()
        self._tapped = profile.tensor_parallel_size == 1
        if self._tapped:
            self._tap_logits()

    @property
    def shipped_alignment(self) -> int | None:
        """The tokens to which the code under test rounds the hit window; None if it does not."""
        return self._shipped

    def serve(self, prompt: Sequence[int], tokens: int | None = None) -> Serving:
        """Serve one prompt greedily and say what came and what it took.

        `tokens` is the length of the output, by default the profile's.
        """
        before = replace(self._transferred)
        events = _cuda_events() if self._on_gpu else []
        gc.disable()  # a collection in the midst of a request would count as its time
        try:
            began = time.perf_counter()
            for event in events[:1]:
                event.record()
            output = self._generate(prompt, tokens or self._output_tokens)
            for event in events[1:]:
                event.record()
                event.synchronize()
            host_time = time.perf_counter() - began
        finally:
            gc.enable()
        after = self._transferred
        return Serving(
            tokens=tuple(output.outputs[0].token_ids),
            logprobs=self._logprobs(output),
            cached_tokens=output.num_cached_tokens,
            ttft=output.metrics.first_token_latency,
            reload_bytes=after.load_bytes - before.load_bytes,
            reload_time=after.load_seconds - before.load_seconds,
            host_time=host_time,
            device_time=events[0].elapsed_time(events[1]) / 1e3 if events else None,
        )

    def stored_bytes(self) -> int:
        """Bytes stored in host memory since the engine was started."""
        return self._transferred.store_bytes

    def settle(self) -> None:
        """Wait until no store or load is in flight.

        Stores are submitted in the engine step after the one that made them, so whatever request
        comes next pays for them. A step without a request takes that upon itself; where copies
        are asynchronous, tiny unrelated requests keep the engine going until they are done.

        Raises:
            FixcostError: transfers are still under way after `SETTLE_SECONDS`.
        """
        deadline = time.monotonic() + SETTLE_SECONDS
        self._llm.llm_engine.step()
        while vllm_names.transfers_in_flight(self._connector):
            if time.monotonic() > deadline:
                raise FixcostError(
                    f"Stores to host memory did not finish within {SETTLE_SECONDS:.0f} s: "
                    f"the engine is stuck."
                )
            self._generate([0], 1)

    def evict(self, *, host: bool = False) -> None:
        """Empty the device cache, and the host's too if asked, once nothing is in flight.

        Raises:
            FixcostError: blocks are still held after `SETTLE_SECONDS`.
        """
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            self.settle()
            emptied = self._llm.reset_prefix_cache(reset_connector=host)
            if emptied and vllm_names.blocks_in_use(self._scheduler) == 0:
                return
            if time.monotonic() > deadline:
                raise FixcostError(
                    f"The device cache was not empty after {SETTLE_SECONDS:.0f} s: "
                    f"a request still holds blocks."
                )

    @contextmanager
    def alignment(self, alignment: Alignment) -> Iterator[None]:
        """Serve under this alignment inside the block, under the shipped one after it."""
        size = {
            Alignment.SHIPPED: self._shipped,
            Alignment.ALIGNED: self.chunk,
            Alignment.UNALIGNED: None,
        }[alignment]
        vllm_names.set_alignment_size(self._connector, size)
        try:
            yield
        finally:
            vllm_names.set_alignment_size(self._connector, self._shipped)

    def _generate(self, prompt: Sequence[int], tokens: int) -> Any:
        from vllm import SamplingParams, TokensPrompt

        greedy = SamplingParams(
            max_tokens=tokens,
            temperature=0.0,
            ignore_eos=True,
            detokenize=False,
            logprobs=None if self._tapped else -1,
        )
        request = TokensPrompt(prompt_token_ids=list(prompt))
        # A prefill may take several steps, each with logits of its own: the first output token
        # comes from the last of them, which is as many steps from the end as there are tokens.
        self._logits = deque(maxlen=tokens)
        try:
            return self._llm.generate([request], greedy, use_tqdm=False)[0]
        except Exception as error:  # from vLLM, torch or the driver, in the midst of a run
            raise engine_errors.explained(error, "The engine failed") from error

    def _logprobs(self, output: Any) -> NDArray[np.float32]:
        if self._tapped:
            found: NDArray[np.float32] = self._logits[0].log_softmax(dim=-1).cpu().numpy()
            return found
        # The model is in other processes. vLLM's own way slows every arm by the same.
        first = output.outputs[0].logprobs[0]
        return np.array([first[token].logprob for token in range(self.vocabulary)], np.float32)

    def _tap_logits(self) -> None:
        """Keep the logits of every request, so that drift costs a timed request next to nothing.

        Asking vLLM for the log-probabilities of the whole vocabulary would slow the first token
        by the time it takes to make one Python object a word.
        """
        model = vllm_names.model(self._llm)
        compute = model.compute_logits

        def tapped(*args: Any, **kwargs: Any) -> Any:
            logits = compute(*args, **kwargs)
            if logits is not None:
                self._logits.append(logits[-1].float().clone())
            return logits

        model.compute_logits = tapped


def common_chunk(chunks: Sequence[int]) -> int:
    """The one chunk of all KV cache groups, in tokens.

    Raises:
        FixcostError: the groups disagree, so that no single alignment is right for all.
    """
    if len(set(chunks)) != 1:
        raise FixcostError(
            f"The KV cache groups of this model have chunks of {sorted(set(chunks))} tokens; "
            f"an alignment needs one chunk for all."
        )
    return chunks[0]


def check_memory(profile: Profile) -> None:
    """Refuse a profile for which the host has too little free memory.

    Raises:
        FixcostError: says how much is needed and how much is free.
    """
    needed = profile.host_bytes + (profile.device_bytes or 0)
    if needed > hardware.free_memory():
        raise FixcostError(
            f"Profile {profile.name} needs {needed >> 20} MiB of host memory and "
            f"{hardware.free_memory() >> 20} MiB are free."
        )


@contextmanager
def start(profile: Profile) -> Iterator[Engine]:
    """Start the profile's engine; leave no process and no thread behind.

    Raises:
        FixcostError: vLLM is missing or the wrong one, the device is missing, the host has too
            little memory, or the model cannot be served as the suite needs it.
    """
    profiles.check_device(profile)
    if vllm_names.installed_version() is None:
        raise FixcostError(NOT_INSTALLED)
    check_memory(profile)
    os.environ.update(profiles.engine_environment(profile))
    tqdm.monitor_interval = 0  # else a thread of its own stays behind
    threads_before = set(threading.enumerate())
    allowed = hardware.cores()
    os.sched_setaffinity(0, hardware.idle_cores())  # inherited by the threads that compute
    llm = _start_llm(profile)
    try:
        running = Engine(llm, profile)
        gc.freeze()  # else every collection walks all that was imported, in the midst of a request
        yield running
    finally:
        gc.unfreeze()
        os.sched_setaffinity(0, allowed)
        vllm_names.shut_down(llm)
        del llm
        gc.collect()
        _join_new_threads(threads_before)


def _start_llm(profile: Profile) -> Any:
    arguments = profiles.engine_arguments(profile)
    try:
        from vllm import LLM

        return LLM(**arguments)
    except FixcostError:
        raise
    except Exception as error:  # from vLLM, from the checkpoint, or from the code under test
        doing = (
            f"vLLM {vllm_names.installed_version()} cannot serve {arguments['model']} in "
            f"mamba_cache_mode {profile.cache_mode}"
        )
        raise engine_errors.explained(error, doing) from error


def _join_new_threads(before: set[threading.Thread]) -> None:
    for thread in set(threading.enumerate()) - before:
        if thread is not threading.current_thread():
            thread.join(timeout=5.0)


def _cuda_events() -> list[Any]:
    import torch

    return [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
