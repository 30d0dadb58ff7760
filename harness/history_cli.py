"""The command line of the history: `fixcost history`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from harness import places
from harness.formats import Format, FormatOption

app = typer.Typer(
    help="The same cells on real vLLM releases, and on builds of your own.", no_args_is_help=True
)


@app.command()
def add(
    wanted: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[VERSION|PATH]...",
            help="A release (0.31.0), a wheel file, or a folder or environment with a vLLM; by "
            "default every known release that is not measured yet.",
        ),
    ] = None,
) -> None:
    """Fetch releases, measure them in both cache modes with asv, and show what came out.

    What was stopped goes on with the releases that are not measured yet.
    """
    from harness import history

    history.add(places.ASV_CONF, places.BENCH_LOG, wanted or [])
    show(Format.TABLE)


@app.command("list")
def list_releases(form: FormatOption = Format.TABLE) -> None:
    """List all releases: measured here, not yet, or why not at all."""
    from harness import history, report

    states = history.states(places.ASV_CONF)
    if form is Format.JSON:
        print(report.as_json(states))
        return
    table = Table("release", "date", "measured", "wheel", "", box=None)
    for one in states:
        measured = "no" if one.impossible else "yes" if one.measured else "not yet"
        wheel = "" if one.impossible else "unpacked" if one.unpacked else "not here"
        style = "dim" if one.impossible else ""
        table.add_row(Text(one.name), one.released, measured, wheel, one.impossible, style=style)
    report.console().print(table)


@app.command()
def show(form: FormatOption = Format.TABLE) -> None:
    """Show what each release does at exact boundaries, in every mode and scenario."""
    from harness import release_history, release_tables, report

    found = release_history.of_all(places.ASV_CONF)
    if form is Format.JSON:
        print(report.as_json(found))
        return
    console = report.console()
    for machine, lines in found.items():
        for table in release_tables.of(machine, lines):
            console.print(table)
    console.print(release_tables.LEGEND if found else "No release is measured: `make history`.")


@app.command()
def plot(
    out: Annotated[Path, typer.Argument(help="A folder for the pictures.")] = Path("pictures"),
) -> None:
    """Write the pictures of the releases as SVG and PNG."""
    from harness.site import plotting

    for path in plotting.write_releases(places.ASV_CONF, out):
        print(path)
