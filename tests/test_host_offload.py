"""The host offload worker moves the right pages and counts their bytes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.v1.kv_offload.base import (
    CanonicalKVCacheRef,
    CanonicalKVCaches,
    CanonicalKVCacheTensor,
    GPULoadStoreSpec,
)
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec

from harness.cpu.offload import HostOffloadingWorker

BLOCKS, CHUNKS, PAGE = 12, 7, 8
# Two groups share the first tensor, with pages of their own sizes; the second has padding too.
GROUPS = [[(0, 8), (1, 5)], [(0, 3)], [(1, 8)]]


def caches(generator: np.random.Generator) -> CanonicalKVCaches:
    tensors = [
        CanonicalKVCacheTensor(
            torch.from_numpy(generator.integers(-99, 99, (BLOCKS, PAGE), dtype=np.int8)), PAGE
        )
        for _ in range(2)
    ]
    refs = [[CanonicalKVCacheRef(index, used) for index, used in group] for group in GROUPS]
    return CanonicalKVCaches(tensors, refs)


@st.composite
def transfers(draw: st.DrawFn) -> tuple[int, list[int], list[int], list[int], list[int]]:
    """Blocks per chunk; blocks and first block index of each group; block ids; chunk ids."""
    per_chunk = draw(st.sampled_from([1, 2, 4]))
    sizes = draw(st.tuples(*[st.integers(0, 4)] * len(GROUPS)))
    firsts = draw(st.tuples(*[st.integers(0, 5)] * len(GROUPS)))
    spanned = sum(
        len({index // per_chunk for index in range(first, first + size)})
        for first, size in zip(firsts, sizes, strict=True)
    )
    blocks = draw(st.permutations(range(BLOCKS)))[: sum(sizes)]
    chunks = draw(st.permutations(range(CHUNKS)))[:spanned]
    if len(chunks) < spanned:
        chunks = list(range(spanned))
    return per_chunk, list(sizes), list(firsts), blocks, chunks


@settings(max_examples=100, deadline=None)
@given(transfer=transfers(), seed=st.integers(0, 999))
def test_pages_go_out_and_come_back(
    transfer: tuple[int, list[int], list[int], list[int], list[int]], seed: int
) -> None:
    per_chunk, sizes, firsts, blocks, chunks = transfer
    kept = caches(np.random.default_rng(seed))
    original = [tensor.tensor.clone() for tensor in kept.tensors]
    worker = HostOffloadingWorker(kept, per_chunk, chunks=max([CHUNKS, *(c + 1 for c in chunks)]))
    on_device = GPULoadStoreSpec(blocks, sizes, firsts)
    in_host = CPULoadStoreSpec(chunks)
    bytes_moved = sum(
        size * sum(used for _, used in group) for size, group in zip(sizes, GROUPS, strict=True)
    )

    assert worker.submit_store(1, on_device, in_host)
    (stored,) = worker.get_finished()
    assert (stored.job_id, stored.success, stored.transfer_size) == (1, True, bytes_moved)
    assert stored.transfer_time > 0
    assert worker.get_finished() == []

    for tensor in kept.tensors:
        tensor.tensor.fill_(111)
    assert worker.submit_load(2, in_host, on_device)
    (loaded,) = worker.get_finished()
    assert (loaded.job_id, loaded.transfer_size) == (2, bytes_moved)

    expected = [torch.full((BLOCKS, PAGE), 111, dtype=torch.int8) for _ in kept.tensors]
    position = 0
    for size, group in zip(sizes, GROUPS, strict=True):
        for block in blocks[position : position + size]:
            for index, used in group:
                expected[index][block, :used] = original[index][block, :used]
        position += size
    for tensor, wanted in zip(kept.tensors, expected, strict=True):
        assert torch.equal(tensor.tensor, wanted)


@pytest.mark.parametrize("skipped", [1, 2, 3])
def test_part_of_a_chunk_comes_from_its_own_place(skipped: int) -> None:
    """A whole chunk of four blocks is stored, and only its end is loaded, elsewhere."""
    kept = caches(np.random.default_rng(5))
    worker = HostOffloadingWorker(kept, 4, CHUNKS)
    whole, part = [3, 1, 7, 5], [8, 9, 10][: 4 - skipped]
    source = kept.tensors[0].tensor.clone()
    worker.submit_store(1, GPULoadStoreSpec(whole, [4, 0, 0], [4, 0, 0]), CPULoadStoreSpec([6]))
    worker.submit_load(
        2, CPULoadStoreSpec([6]), GPULoadStoreSpec(part, [4 - skipped, 0, 0], [4 + skipped, 0, 0])
    )
    assert torch.equal(kept.tensors[0].tensor[part], source[whole[skipped:]])
