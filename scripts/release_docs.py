"""Bring the table and the picture of docs/releases.md up to the committed results.

Run it after the reference was renewed: python scripts/release_docs.py two-core-cpu
"""

import sys

from harness import places, release_history, release_tables
from harness.files import write_atomically
from harness.site import plotting
from harness.vocabulary import CacheMode, Scenario

PAGE = places.ROOT / "docs" / "releases.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"


def main(machine: str) -> None:
    """Write both for the results of one machine."""
    lines = release_history.of_machine(places.ASV_CONF, machine)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    text = f"{before}{BEGIN}{_table(lines)}{END}{after}"
    write_atomically(PAGE, text.encode())
    plotting.write_release_picture(lines, "tokens", PAGE.with_name("releases-tokens.svg"))


def _table(lines: list[release_history.Line]) -> str:
    """A row for each release; of each mode and scenario, shipped and unaligned."""
    columns = [(mode, scenario) for mode in CacheMode for scenario in Scenario]
    heads = [
        f"{mode}, {scenario}: {arm}"
        for mode, scenario in columns
        for arm in ("shipped", "unaligned")
    ]
    rows = [["release", *heads], ["---"] * (1 + len(heads))]
    for release in dict.fromkeys(line.release for line in lines):
        found = {(line.mode, line.scenario): line for line in lines if line.release == release}
        words = [word for column in columns for word in release_tables.words(found[column])[:2]]
        rows.append([release, *words])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    main(sys.argv[1])
