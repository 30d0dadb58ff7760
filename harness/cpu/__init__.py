"""What the CPU build of vLLM lacks for cache mode `all`, supplied as a vLLM plugin."""
