"""asv benchmarks and, in `test_*.py`, their pytest-benchmark form."""
