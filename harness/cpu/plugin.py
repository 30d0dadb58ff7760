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
    from harness.cpu import conv, scan

    mixer = vllm_names.mamba2_mixer()
    for kernel in (conv.causal_conv1d_fn, conv.causal_conv1d_update):
        vllm_names.replace_kernel(mixer, kernel)
    vllm_names.replace_kernel(mixer, scan.mamba_chunk_scan_combined_varlen)
    packing.guard()
