"""asv benchmarks and, in `pytest/`, their pytest-benchmark form."""
