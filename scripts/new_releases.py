"""Print the releases that the package index has a CPU wheel of and fixcost does not know yet.

python scripts/new_releases.py
"""

import re
import subprocess
import sys

from harness import release_table
from harness.releases import DISTRIBUTION

AVAILABLE = re.compile(r"^Available versions: (.*)$", re.MULTILINE)


def main() -> None:
    """Print one version a line, the oldest first; nothing if all are known."""
    table = release_table.read()
    oldest = _parts(table.releases[0].version)
    listing = [sys.executable, "-m", "pip", "index", "versions", DISTRIBUTION]
    said = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    found = AVAILABLE.search(said)
    if found is None:
        sys.exit(f"pip does not list the versions of {DISTRIBUTION}: {said.strip()}")
    for version in sorted(found[1].split(", "), key=_parts):
        known = table.find(version) is not None or version in table.impossible
        if _parts(version) > oldest and not known:
            print(version)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


if __name__ == "__main__":
    main()
