"""Offloading to host memory on a machine whose "device" is the host itself.

vLLM's own `CPUOffloadingSpec` refuses the CPU platform. This one keeps its scheduler's side and
brings a worker that copies pages from host to host, at once: when a transfer is submitted it is
done.
"""

import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harness import vllm_names

_CPUOffloadingSpec, _OffloadingWorker, _TransferResult = vllm_names.offloading_classes()


class HostOffloadingWorker(_OffloadingWorker):  # type: ignore[misc, valid-type]
    """Copies blocks between the device cache and as many chunks in host memory."""

    def __init__(self, kv_caches: Any, blocks_per_chunk: int, chunks: int) -> None:
        """Allocate host memory for `chunks` chunks of every tensor of the device cache.

        Args:
            kv_caches: vLLM's `CanonicalKVCaches`: tensors of shape (blocks, page bytes), and for
                each cache group the tensors and the bytes a page that its layers use.
            blocks_per_chunk: device blocks in one offloaded chunk.
            chunks: how many chunks host memory holds.
        """
        self._blocks_per_chunk = blocks_per_chunk
        self._layers = kv_caches.group_data_refs
        self._device: list[Tensor] = [kept.tensor for kept in kv_caches.tensors]
        self._host = [
            torch.empty((chunks * blocks_per_chunk, tensor.shape[1]), dtype=tensor.dtype)
            for tensor in self._device
        ]
        self._finished: list[Any] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        """Copy blocks of the device cache to host memory."""
        return self._copy(job_id, src_spec, dst_spec, self._device, self._host)

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        """Copy blocks from host memory to the device cache."""
        return self._copy(job_id, dst_spec, src_spec, self._host, self._device)

    def get_finished(self) -> list[Any]:
        """The transfers that finished since the last call, with their bytes and seconds."""
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids: set[int]) -> None:
        """Nothing is ever under way."""

    def _copy(
        self, job_id: int, blocks: Any, chunks: Any, source: list[Tensor], target: list[Tensor]
    ) -> bool:
        started = time.perf_counter()
        moved = 0
        first_block = first_chunk = 0
        for group, (count, index) in enumerate(
            zip(blocks.group_sizes, blocks.block_indices, strict=True)
        ):
            # The first block of a group may lie in the middle of its chunk.
            skipped = index % self._blocks_per_chunk
            spanned = -(-(skipped + count) // self._blocks_per_chunk) if count else 0
            on_device = blocks.block_ids[first_block : first_block + count]
            in_host = self._host_blocks(chunks.block_ids[first_chunk : first_chunk + spanned])
            places = on_device, in_host[skipped : skipped + count]
            into, out_of = places if target is self._device else places[::-1]
            moved += self._copy_group(group, into, out_of, source, target)
            first_block, first_chunk = first_block + count, first_chunk + spanned
        seconds = time.perf_counter() - started
        self._finished.append(_TransferResult(job_id, True, moved, seconds))
        return True

    def _host_blocks(self, chunks: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of host memory that hold the blocks of these chunks."""
        return (
            chunks[:, None] * self._blocks_per_chunk + np.arange(self._blocks_per_chunk)
        ).ravel()

    def _copy_group(
        self,
        group: int,
        into: NDArray[np.int64],
        out_of: NDArray[np.int64],
        source: list[Tensor],
        target: list[Tensor],
    ) -> int:
        """Copy the pages of a group's layers, without their padding; returns the bytes."""
        into_rows, out_of_rows = torch.from_numpy(into), torch.from_numpy(out_of)
        moved = 0
        for layer in self._layers[group]:
            used = layer.page_size_bytes
            tensor = layer.tensor_idx
            target[tensor][into_rows, :used] = source[tensor][out_of_rows, :used]
            moved += used * len(into)
        return moved


class HostOffloadingSpec(_CPUOffloadingSpec):  # type: ignore[misc, valid-type]
    """vLLM's `CPUOffloadingSpec` with a worker for the CPU platform."""

    _worker: Any

    def get_worker(self, kv_caches: Any) -> Any:
        """The worker of this process, made on the first call."""
        if self._worker is None:
            chunks = vllm_names.host_chunks(self)
            self._worker = HostOffloadingWorker(kv_caches, self.blocks_per_chunk, chunks)
        return self._worker
