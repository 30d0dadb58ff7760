"""fixcost: what a correctness fix in vLLM's KV offloading costs, where, and is the output right."""

__version__ = "0.1.0"
