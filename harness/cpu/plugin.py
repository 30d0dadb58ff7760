"""The vLLM plugin that lets the CPU build run cache mode `all` and offload to host memory.

Entry point group `vllm.general_plugins`; on any other platform it does nothing.
"""

from harness import vllm_names
from harness.cpu import packing


def register() -> None:
    """Put our kernels and the packing guard in place of vLLM's; a second call changes nothing.

    Raises:
        FixcostError: this vLLM lacks one of the names that are replaced.
    """
    if not vllm_names.runs_on_cpu():
        return
    from harness.cpu import mamba1
    from harness.cpu.checkpoint import store_prefill_checkpoint
    from harness.cpu.conv import causal_conv1d_fn, causal_conv1d_update
    from harness.cpu.scan import mamba_chunk_scan_combined_varlen
    from harness.cpu.update import selective_state_update

    vllm_names.replace_kernels(
        vllm_names.MAMBA2_MIXER,
        causal_conv1d_fn,
        causal_conv1d_update,
        mamba_chunk_scan_combined_varlen,
        selective_state_update,
    )
    if vllm_names.keeps_checkpoints():
        vllm_names.replace_kernels(vllm_names.MAMBA2_MIXER, store_prefill_checkpoint)
    vllm_names.replace_kernels(
        vllm_names.MAMBA1_MIXER,
        causal_conv1d_fn,
        causal_conv1d_update,
        mamba1.selective_scan_fn,
        mamba1.selective_state_update,
    )
    packing.guard()
