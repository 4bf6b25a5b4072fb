"""``foveate bench run | add | status | table | plot | figures | page | features | grid`` and ``foveate reproduce``."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from foveate.cli.inputs import IMPORT as _IMPORT
from foveate.cli.inputs import ROOT, open_data
from foveate.cli.screen import console, echo, echo_json
from foveate.errors import FoveateError
from foveate.files import check_writable, read_text, write_text
from foveate.parameters import MAX_SEED

if TYPE_CHECKING:
    from foveate.bench.records import Record
    from foveate.bench.run import Job

bench_app = typer.Typer(help="Studies: sweeps that survive a kill, tables, plots.", no_args_is_help=True)

_SPEC = typer.Argument(help="A spec file (YAML); see docs/bench.md.")
_RUNS = typer.Option(Path("runs"), help="Folder of models, logs, features and records.db.")
_STORAGE = typer.Option(None, help="SQLite file or postgresql://… URL; by default RUNS/records.db.")


def _job(spec: Path, runs: Path, storage: str | None, imports: list[str] | None, **more: Any) -> Job:
    from foveate.bench.run import Job

    try:
        text = read_text(spec)
    except (OSError, UnicodeDecodeError) as error:
        raise FoveateError(f"{spec}: cannot read the spec: {getattr(error, 'strerror', error)}.") from error
    return Job(text, str(spec), str(runs), storage or str(runs / "records.db"), imports=tuple(imports or ()), **more)


def _check_export(export: Path | None) -> None:
    if export is not None and check_writable(export).is_dir():
        raise FoveateError(f"--export takes the name of a CSV file; {export} is a folder.")


@bench_app.command("run")
def run_command(
    spec: Path = _SPEC,
    workers: int | None = typer.Option(None, min=0, help="Processes; by default one a core. 0: in this process."),
    threads: int = typer.Option(1, min=1, help="Threads of each worker."),
    ray: str | None = typer.Option(None, help="Address of a Ray cluster ('auto', 'host:port') to run the trials on."),
    method: list[str] | None = typer.Option(None, "--method", "-m", help="Run these methods only."),
    dataset: list[str] | None = typer.Option(None, "--dataset", "-d", help="Run on these datasets only."),
    retry_failed: bool = typer.Option(False, "--retry-failed", help="Run failed trials again."),
    log_to: list[str] | None = typer.Option(None, help="Also log to mlflow or tensorboard."),
    export: Path | None = typer.Option(None, help="CSV file for all records of the spec, written at the end."),
    as_json: bool = typer.Option(False, "--json", help="Print the table for programs."),
    runs: Path = _RUNS,
    storage: str | None = _STORAGE,
    imports: list[str] | None = _IMPORT,
) -> None:
    """Run a spec, or go on with it: finished trials are not run again."""
    from foveate.bench.logging_to import LOGGERS
    from foveate.bench.records import write_csv
    from foveate.bench.run import run
    from foveate.bench.table import table

    if unknown := [kind for kind in log_to or () if kind not in LOGGERS]:
        raise FoveateError(f"cannot log to '{unknown[0]}'; known: {', '.join(LOGGERS)}.")
    _check_export(export)  # before hours of work, not after
    command = shlex.join(["foveate", *sys.argv[1:]])
    job = _job(
        spec, runs, storage, imports, command=command, threads=threads, log_to=tuple(log_to or ()),
        methods=tuple(method or ()), datasets=tuple(dataset or ()),
    )  # fmt: skip
    if retry_failed:
        echo(f"{job.sweep().retry_failed()} failed trials are run again", err=as_json)
    records = run(job, workers, ray, say=lambda line: echo(line, err=as_json))
    if export is not None:
        whole = replace(job, methods=(), datasets=())  # also what earlier runs of other parts made
        echo(f"wrote {write_csv(export, whole.sweep().current())}", err=as_json)
    failed = [r for r in records if r.state == "failed"]
    if any(r.state == "done" for r in records):
        echo(table(records, "json" if as_json else "markdown", order=list(job.spec().methods)))
    elif as_json:
        echo_json([])
    if failed:
        echo(f"{len(failed)} trials failed; foveate bench status {spec} says which.", err=True)
    missing = job.sweep().standing().missing()
    for line in missing:
        echo(f"not there: {line}", err=True)
    if failed or missing:
        raise typer.Exit(1)


@bench_app.command("add")
def add_command(
    spec: Path = _SPEC,
    records: list[Path] = typer.Argument(help="CSV files that --export wrote, here or on another machine."),
    export: Path | None = typer.Option(None, help="CSV file for all records of the spec, with those added."),
    as_json: bool = typer.Option(False, "--json", help="Print the counts for programs."),
    runs: Path = _RUNS,
    storage: str | None = _STORAGE,
    imports: list[str] | None = _IMPORT,
) -> None:
    """Take records of other machines into the database of a study; what they hold is not run again."""
    from foveate.bench.records import read_csv, write_csv

    _check_export(export)
    found = [record for path in records for record in read_csv(path)]  # all are readable before one is added
    sweep = _job(spec, runs, storage, imports).sweep()
    counts = asdict(sweep.add(found))
    if as_json:
        echo_json(counts)
    else:
        echo(", ".join(f"{n} {what.replace('_', ' ')}" for what, n in counts.items()))
    if export is not None:
        echo(f"wrote {write_csv(export, sweep.current())}", err=as_json)


@bench_app.command("status")
def status_command(
    spec: Path = _SPEC,
    as_json: bool = typer.Option(False, "--json", help="Print the counts and failures for programs."),
    runs: Path = _RUNS,
    storage: str | None = _STORAGE,
    imports: list[str] | None = _IMPORT,
) -> None:
    """How far a run is: done, running, failed, time left."""
    from foveate.bench.status import status

    found = status(_job(spec, runs, storage, imports).sweep())
    if as_json:
        echo_json(found.to_dict())
    else:
        echo(str(found))


@bench_app.command("table")
def table_command(
    source: str = typer.Argument(help="A spec, a CSV file or folder of records, or a records database."),
    style: str = typer.Option("markdown", "--format", "-f", help="markdown, latex, csv or json."),
    as_json: bool = typer.Option(False, "--json", help="The same as --format json."),
    metrics: list[str] | None = typer.Option(None, "--metric", "-m", help="Columns; by default the usual ones."),
    out: Path | None = typer.Option(None, "--out", "-o", help="File to write; without it, the screen."),
    runs: Path = _RUNS,
    storage: str | None = _STORAGE,
    imports: list[str] | None = _IMPORT,
) -> None:
    """Mean ± std over seeds, best in bold, labels used."""
    from foveate.bench.table import table

    styles = {"markdown": "markdown", "md": "markdown", "latex": "latex", "tex": "latex", "csv": "csv", "json": "json"}
    style = "json" if as_json else style
    if style not in styles:
        raise FoveateError(f"unknown format '{style}'; known: markdown, latex, csv, json.")
    records, order = _records(source, runs, storage, imports)
    text = table(records, styles[style], metrics, order)  # type: ignore[arg-type]
    if out is None:
        echo(text)
    else:
        echo(f"wrote {write_text(out, text + chr(10))}")


def _records(
    source: str, runs: Path, storage: str | None, imports: list[str] | None
) -> tuple[list[Record], list[str] | None]:
    """Records of a spec (only those of the spec as it is now) or of a file, and the order of the methods."""
    from foveate.bench.records import read_records

    if source.endswith((".yaml", ".yml")):
        job = _job(Path(source), runs, storage, imports)
        return job.sweep().current(), list(job.spec().methods)
    return read_records(source), None


@bench_app.command("plot")
def plot_command(
    source: str = typer.Argument(help="A spec, a CSV file or folder of records, or a records database."),
    kind: str = typer.Option("bars", help="bars, scaling, layers or matrix."),
    metric: str = typer.Option("worst_group", help="What is drawn."),
    x: str | None = typer.Option(None, help="Setting on the x axis (scaling, layers); rows of a matrix."),
    y: str | None = typer.Option(None, help="Setting in the columns of a matrix."),
    out: Path = typer.Option(Path("plot.png"), "--out", "-o", help="PNG, SVG or PDF file."),
    runs: Path = _RUNS,
    storage: str | None = _STORAGE,
    imports: list[str] | None = _IMPORT,
) -> None:
    """The papers' figures from records: ablation bars, scaling and per-layer curves, the cross-model matrix."""
    from foveate.bench.plot import plot

    records, order = _records(source, runs, storage, imports)
    echo(f"wrote {plot(records, kind, metric, out, x=x, y=y, order=order)}")


@bench_app.command("figures")
def figures_command(
    spec: Path = _SPEC,
    dataset: str | None = typer.Option(None, help="Label of a dataset of the spec; by default the first."),
    seed: int | None = typer.Option(
        None, min=0, max=MAX_SEED, help="Whose models are drawn; by default the first seed."
    ),
    methods: list[str] | None = typer.Option(
        None, "--method", help="Models to draw; by default base, DFR, DAR and 'DAR on spurious', where there are any."
    ),
    out: Path = typer.Option(Path("docs/figures"), "--out", "-o", help="Folder for NAME-DATASET-*.png."),
    runs: Path = _RUNS,
    storage: str | None = _STORAGE,
    imports: list[str] | None = _IMPORT,
) -> None:
    """Pictures of a study's saved models: CEP histograms, Grad-CAM, query maps, bars of DAR's variants."""
    from foveate.bench.figures import Drawer
    from foveate.bench.trial import Bench

    sweep = _job(spec, runs, storage, imports).sweep()
    drawer = Drawer(Bench(sweep.spec, runs), sweep.current(), dataset, seed, lambda line: echo(line, err=True))
    for path in drawer.save(out, methods):
        echo(f"wrote {path}")


@bench_app.command("page")
def page_command(
    specs: list[Path] = typer.Argument(help="Spec files, or folders of them."),
    records: Path = typer.Option(Path("benchmarks/records"), help="Folder of the records, NAME.csv for each spec."),
    notes: Path | None = typer.Option(
        None, help="A Markdown file to put at the end; by default notes.md beside the records, where there is one."
    ),
    out: Path = typer.Option(Path("docs/results.md"), "--out", "-o", help="Pictures are looked for in figures/ here."),
    imports: list[str] | None = _IMPORT,
) -> None:
    """A page of studies from spec files and exported records: tables, commands, pictures; no database needed."""
    from foveate.bench.page import results_page
    from foveate.bench.run import import_modules

    import_modules(imports or ())
    echo(f"wrote {write_text(out, results_page(specs, records, out, notes))}")


@bench_app.command("features")
def features_command(
    data: str = typer.Argument(help="A dataset: name:option=value, CSV file or folder."),
    backbone: str = typer.Option(..., help="A frozen model by name, for instance micro-vit or vit-s-focus."),
    layer: str = typer.Option("pooled", help="pooled, maps, or a module of the backbone."),
    split: list[str] | None = typer.Option(None, help="Splits of the data; by default all."),
    size: int | None = typer.Option(None, min=1, help="Side of the images the backbone sees; by default its own."),
    batch_size: int = typer.Option(64, min=1, help="Images at a time."),
    on_bad: str = typer.Option("raise", help="What to do about unreadable images: raise or skip."),
    ray: str | None = typer.Option(None, help="Address of a Ray cluster ('auto', 'host:port') to extract on."),
    rows: int = typer.Option(1024, min=1, help="Images of a part that one task of the cluster extracts."),
    store: Path | None = typer.Option(None, help="Folder of the feature store; on a cluster one that all nodes see."),
    out: Path | None = typer.Option(None, "--out", "-o", help="Folder that gets SPLIT.npz: features, labels, …"),
    root: Path | None = ROOT,
) -> None:
    """Extract features of a frozen backbone, once, here or on a Ray cluster; the numbers are the same."""
    import contextlib

    from foveate.bench.ray_cluster import RaySpread
    from foveate.extract import FrozenModel
    from foveate.extract.features import save_npz
    from foveate.extract.store import FeatureStore

    benchmark = open_data(data, root)
    model = FrozenModel.open(backbone, size)
    with contextlib.nullcontext() if ray is None else RaySpread(ray, rows) as cluster:
        kept = FeatureStore(store, spread=cluster)
        for name in split or list(benchmark.splits):
            chosen = benchmark[name]
            found = kept.read(
                model.backbone, chosen, model.view, layer=layer, batch_size=batch_size, on_bad=on_bad  # type: ignore[arg-type]
            )  # fmt: skip
            echo(f"{name}: {found} in {kept.root / found.key}")
            if out is not None:
                echo(f"wrote {save_npz(out / f'{name}.npz', found, chosen)}")


@bench_app.command("grid")
def grid_command(
    data: str = typer.Argument("critters", help="A dataset: name:option=value, CSV file or folder."),
    backbone: list[str] | None = typer.Option(None, help="Backbones to extract with; by default one CNN and one ViT."),
    epochs: int = typer.Option(5, help="Of the base models, for backbones without pretrained weights."),
    seed: list[int] | None = typer.Option(None, min=0, max=MAX_SEED, help="Seeds; by default 0."),
    metric: str = typer.Option("worst_group", help="What the heat map shows."),
    out: Path = typer.Option(Path("grid.png"), "--out", "-o", help="Heat map; records go beside it as CSV."),
    only: list[str] | None = typer.Option(None, help="Keep combinations with this part, for instance look=attention."),
    as_json: bool = typer.Option(False, "--json", help="Print every combination and the best rows for programs."),
    runs: Path = _RUNS,
    root: Path | None = typer.Option(None, help="Folder with the dataset's files."),
) -> None:
    """Every combination of LOOK, RESTRICT, EXTRACT, POOL and DECIDE on a dataset, as a heat map."""
    from foveate.bench.grid import run_grid
    from foveate.engine import check_metric
    from foveate.report.figures import figure_kind

    check_metric(metric)  # before hours of work, not after
    if metric == "loss":
        raise FoveateError("the heat map shows a figure of the test set, such as worst_group or average.")
    figure_kind(check_writable(out))
    check_writable(runs)
    command = shlex.join(["foveate", *sys.argv[1:]])
    found = run_grid(
        data, backbones=backbone, epochs=epochs, seeds=seed or [0], only=only or [], runs=runs, root=root,
        command=command, say=lambda line: echo(line, err=as_json),
    )  # fmt: skip
    if as_json:
        echo_json(found.to_dict(metric))
    else:
        for line in found.summary(metric):
            console.print(line, markup=False, highlight=False)
    echo(f"wrote {found.save(out, metric)} and {out.with_suffix('.csv')}", err=as_json)


@bench_app.command("speed")
def speed_command(
    only: list[str] | None = typer.Option(None, help="Take these measurements only; --list names them."),
    listed: bool = typer.Option(False, "--list", help="Name the measurements, with their minutes, and take none."),
    again: bool = typer.Option(False, "--again", help="Also take those again that are there for this commit."),
    record: Path = typer.Option(Path("benchmarks/results/speed.json"), help="JSON file of the figures."),
    out: Path = typer.Option(Path("docs/speed.md"), "--out", "-o", help="Page that is written from them."),
) -> None:
    """Every speed of this project as a ratio against something else, in one table; needs a clone of the project."""
    import foveate

    root = Path(foveate.__file__).parents[2]
    if not (root / "benchmarks" / "speed").is_dir():
        raise FoveateError(
            "what measures the speed is not in the installed package: clone the project and call this from there, "
            "after `make setup`."
        )
    sys.path.insert(0, str(root))
    from benchmarks.speed.run import MEASURES, run

    if listed:
        for name, measure in MEASURES.items():
            echo(f"{name}: about {measure.seconds / 60:.1f} minutes")
        return
    for path in (record, out):
        if check_writable(path).is_dir():
            raise FoveateError(f"expected the name of a file; {path} is a folder.")
    run(record, out, only or (), again, echo)
    echo(f"wrote {record} and {out}")


def reproduce(
    what: str | None = typer.Argument(None, help="A published table: paper/table, for instance a2/T13."),
    as_json: bool = typer.Option(False, "--json", help="Print the list, or the comparison, for programs."),
    every: bool = typer.Option(False, "--list", help="List the published tables and what can be run here."),
    dry: bool = typer.Option(False, "--dry", help="Say what can be run and run nothing."),
    root: Path | None = typer.Option(None, help="Folder with the datasets' files."),
    records: Path | None = typer.Option(None, help="CSV file that the figures are added to."),
    page: Path | None = typer.Option(None, help="Write the reproduction page from --records, and nothing else."),
) -> None:
    """Published figures beside ours: what was published, what this machine can run, and the difference."""
    from foveate.bench.ledger import Ledger
    from foveate.bench.reproduce import Reproduction, reproduction_page

    ledger = Ledger.published()
    if page is not None:
        echo(f"wrote {write_text(page, reproduction_page(ledger, records))}")
        return
    if every or what is None:
        if as_json:
            echo_json([asdict(table) for table in ledger.standings(root)])
        else:
            echo(ledger.listing(root))
        return
    run = Reproduction(ledger, what, root, command=shlex.join(["foveate", *sys.argv[1:]]))
    report = run.report(dry)
    if as_json:
        echo_json(run.to_list())
    else:
        echo(report)
    if records is not None and not dry:
        echo(f"wrote {run.keep(records)}", err=as_json)
