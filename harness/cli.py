"""The command line: `fixcost`."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness import history_cli, places, profiles
from harness.errors import PREFIX, FixcostError
from harness.formats import AnswerFormat, Format, FormatOption
from harness.vocabulary import CacheMode

if TYPE_CHECKING:
    from harness.comparison import Comparison
    from harness.profiles import Profile
    from harness.subject import Subject

INTERRUPTED = 130

app = typer.Typer(
    name="fixcost",
    help="What a correctness fix in vLLM's KV offloading costs, where, and whether the output "
    "is still right.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
subject_app = typer.Typer(
    help="Choose the git repository whose commits are measured.", no_args_is_help=True
)
app.add_typer(subject_app, name="subject")
app.add_typer(history_cli.app, name="history")

ProfileOption = Annotated[
    str | None,
    typer.Option(
        help=f"What to run: {', '.join(profiles.PROFILES)}. By default what the machine has.",
        envvar=profiles.PROFILE_VARIABLE,
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        help="A folder with a hybrid checkpoint, in place of the profile's model.",
        envvar=profiles.MODEL_VARIABLE,
    ),
]


@app.command()
def bench(
    more_starts: Annotated[
        int,
        typer.Option(
            min=0, help="Add so many starts of either branch, in turn, to what is stored."
        ),
    ] = 0,
) -> None:
    """Measure both branches of the subject with asv and say what the fix costs.

    Two commits are two starts of an engine, and starts differ. To tell whether one commit is slower
    than the other under the same alignment, add starts.
    """
    from harness import bench as main_job

    compared = main_job.run(places.ASV_CONF, places.BENCH_LOG, more_starts)
    _show_comparison(compared)


@app.command()
def compare(
    base: Annotated[
        str | None, typer.Argument(help="Branch, tag or commit without the fix.")
    ] = None,
    fix: Annotated[str | None, typer.Argument(help="Branch, tag or commit with it.")] = None,
    form: Annotated[
        AnswerFormat, typer.Option("--format", help="For people, programs or a pull request.")
    ] = AnswerFormat.TABLE,
    budget: Annotated[
        str | None,
        typer.Option(help="How much longer the first token may take in any cell: ttft=1.5."),
    ] = None,
    cache_mode: Annotated[
        CacheMode, typer.Option(help="The Mamba cache mode in which both were measured.")
    ] = CacheMode.ALL,
) -> None:
    """Say what changed between two measured commits, by default the subject's two branches.

    Exit codes: 0 fine; 1 output newly wrong, a cell that fails only now, or beyond the budget;
    2 wrong usage or damaged data; 3 nothing was measured on both.
    """
    from harness import answer, report, subject

    limit = answer.parse_budget(budget)
    chosen = subject.current(places.ASV_CONF)
    names = (base or chosen.base, fix or chosen.fix)
    found = answer.collect(places.ASV_CONF, *names, limit, cache_mode)
    if form is AnswerFormat.MARKDOWN:
        print(answer.markdown(found))
    elif form is AnswerFormat.JSON:
        print(answer.as_json(found))
    else:
        console = report.console()
        console.print(answer.lead(found))
        if found.outcomes:
            console.print(answer.table(found))
        if found.comparison is not None:
            _show_comparison(found.comparison)
    if found.exit_code:
        raise typer.Exit(found.exit_code)


@app.command()
def dashboard(
    build_only: Annotated[
        bool, typer.Option("--build-only", help="Write the site and do not serve it.")
    ] = False,
) -> None:
    """Publish all stored results as a site and serve it at a loopback address."""
    from harness.site import serving

    site = serving.build(places.ASV_CONF)
    print(f"The dashboard is in {site}.")
    if not build_only:
        serving.serve(site)


@app.command()
def plot(
    out: Annotated[Path, typer.Argument(help="A folder for the pictures.")] = Path("pictures"),
) -> None:
    """Write the dashboard's pictures of this machine's results as SVG and PNG."""
    from harness.site import plotting

    for path in plotting.write(places.ASV_CONF, out):
        print(path)


@app.command()
def sweep(
    profile: ProfileOption = None,
    model: ModelOption = None,
    chunks: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Prompt length in chunks; give it several times."),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="So many samples in each cell, whatever comes out.")
    ] = None,
    half_width: Annotated[
        float | None,
        typer.Option(min=0.001, help="Go on until the fix cost is known to within this share."),
    ] = None,
    cell_seconds: Annotated[
        float | None, typer.Option(min=0, help="But no longer than so many seconds a cell.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="From which all prompts follow.")] = 0,
    axis: Annotated[
        str | None,
        typer.Option(
            help="One sweep for each value of: architecture, blocks-per-chunk, cache-mode, dtype."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the record goes; by default below sweeps.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Measure every cell on the installed vLLM, without asv, and keep every sample.

    A sweep that was stopped goes on where it was when it is started again.
    """
    from harness import axes, cells, vllm_names
    from harness import sweep as sweeping

    chosen = profiles.choose(profile, model, samples)
    chosen = replace(
        chosen,
        chunks=tuple(chunks or (axes.CHUNKS if axis else chosen.chunks)),
        half_width=half_width or chosen.half_width,
        cell_seconds=chosen.cell_seconds if cell_seconds is None else cell_seconds,
    )
    place = out or sweeping.place_of(chosen, f"v{vllm_names.installed_version()}")
    if axis:
        below = out or place.with_name(f"{place.name}-{axis}")
        _sweep_axis(axis, chosen, below.absolute(), seed, form)
        return
    sweeping.run(chosen, cells.grid(chosen.chunks), place.absolute(), seed=seed)
    _show_record(place, form)


def _sweep_axis(axis: str, profile: "Profile", place: Path, seed: int, form: Format) -> None:
    from harness import axes, report

    points = list(axes.run(axis, profile, place, seed))
    if form is Format.JSON:
        print(report.as_json(points))
    else:
        report.console().print(report.axis_table(axis, points))
    if any(point.error for point in points):
        raise typer.Exit(2)


@app.command()
def report(
    place: Annotated[Path, typer.Argument(help="A folder that `fixcost sweep` wrote.")],
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the record of a sweep."""
    _show_record(place, form)


@app.command()
def predict(
    place: Annotated[Path, typer.Argument(help="A folder that `fixcost sweep` wrote.")],
    length: Annotated[
        list[int] | None,
        typer.Option(min=1, help="A prompt length in tokens; give it several times."),
    ] = None,
    chunk: Annotated[
        list[int] | None,
        typer.Option(min=1, help="A chunk in tokens, by default the record's; several times too."),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Explain the cost of a sweep by tokens and bytes, and predict it for other prompts."""
    from harness import cost_model, explained, record, report

    model = cost_model.fit(record.read(place))
    found = [
        cost_model.predict(model, one, size)
        for size in chunk or [model.chunk]
        for one in length or []
    ]
    if form is Format.JSON:
        print(explained.model_as_json(model, found))
        return
    if found:
        report.console().print(explained.prediction_table(found))
    report.console().print(explained.model_sentences(model))


@app.command()
def expect(
    lengths: Annotated[
        Path,
        typer.Argument(
            help="Prompt lengths of your traffic: one a line, CSV, JSONL, or a Mooncake trace."
        ),
    ],
    chunk: Annotated[
        list[int] | None, typer.Option(min=1, help="A chunk in tokens; give it several times.")
    ] = None,
    place: Annotated[
        Path | None,
        typer.Option("--record", help="A folder that `fixcost sweep` wrote: adds seconds."),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Say what share of your requests ends at an exact boundary, and what that adds."""
    from harness import cost_model, explained, record, report, traffic

    model = cost_model.fit(record.read(place)) if place else None
    if not chunk and model is None:
        raise FixcostError("Name a chunk size in tokens (--chunk), or a record that has one.")
    requests = traffic.read(lengths)
    sizes = chunk or ([model.chunk] if model else [])
    found = [traffic.expect(requests, size, model) for size in dict.fromkeys(sizes)]
    if form is Format.JSON:
        print(report.as_json(found))
    else:
        report.console().print(explained.traffic_table(found))


@app.command()
def doctor(profile: ProfileOption = None, model: ModelOption = None) -> None:
    """Check what this machine can and cannot do; ends by starting the engine."""
    from harness import doctor as examination
    from harness.doctor import Outcome

    styles = {Outcome.OK: "green", Outcome.ADVICE: "yellow", Outcome.MISSING: "bold red"}
    table = Table.grid(padding=(0, 2))
    missing = False
    with Console(stderr=True).status("Looking ..."):
        for finding in examination.examine(profiles.choose(profile, model)):
            style = styles[finding.outcome]
            table.add_row(Text(finding.outcome, style=style), finding.subject, finding.sentence)
            missing |= finding.outcome is Outcome.MISSING
    Console(highlight=False).print(table)
    if missing:
        raise typer.Exit(2)


@subject_app.command("create")
def subject_create() -> None:
    """Make the embedded subject out of the installed vLLM, and choose it.

    Branch main is that release with the fix of PR 51100 taken out; fix-branch is one commit
    later, with it.
    """
    from harness import subject

    _show_subject(subject.restore(places.ASV_CONF))


@subject_app.command("use")
def subject_use(
    path: Annotated[Path, typer.Argument(help="Your clone of vLLM.")],
    base: Annotated[str, typer.Option(help="The branch without the fix.")] = "main",
    fix: Annotated[
        str | None, typer.Option(help="The branch with it; by default the one checked out.")
    ] = None,
    wheel_commit: Annotated[
        str | None,
        typer.Option(help="What the installed wheel was built from, if not its release's tag."),
    ] = None,
) -> None:
    """Measure your own clone of vLLM instead."""
    from harness import subject

    chosen = subject.use(path, base, fix, wheel_commit=wheel_commit, conf_path=places.ASV_CONF)
    _show_subject(chosen)


@subject_app.command("show")
def subject_show() -> None:
    """Say what is measured."""
    from harness import subject

    _show_subject(subject.current(places.ASV_CONF))


def _show_subject(chosen: "Subject") -> None:
    print(f"{chosen.repository}: {chosen.base} against {chosen.fix} (wheel: {chosen.wheel_ref})")


def _show_comparison(compared: "Comparison") -> None:
    from harness import conclusion, energy_tables, report

    console = report.console()
    for table in (*report.comparison_tables(compared), *energy_tables.of_comparison(compared)):
        console.print(table)
    console.print(conclusion.of_comparison(compared))


def _show_record(place: Path, form: Format) -> None:
    from harness import conclusion, energy_tables, record, report, verdict

    found = record.read(place)
    if form is Format.JSON:
        print(report.record_as_json(found))
    else:
        console = report.console()
        for table in (*report.record_tables(found), *energy_tables.of_record(found)):
            console.print(table)
        console.print(conclusion.of_record(found))
    verdict.check_control(found)


def main() -> None:
    """Run the command line; an error for the user is one sentence and exit code 2."""
    try:
        app()
    except FixcostError as error:
        print(f"{PREFIX}{error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"{PREFIX}{error.strerror or error}: {error.filename}.", file=sys.stderr)
        sys.exit(2)
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:  # typer has caught the interrupt, and says nothing
            print(f"{PREFIX}interrupted; start it again and it goes on.", file=sys.stderr)
        raise
