"""Every verb with its options and their kinds, and how it is called when nothing is wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.fuzz.harness import CHECKED, MAYBE


@dataclass(frozen=True)
class Verb:
    """How a verb is called when nothing is wrong, and the kinds of its options.

    Attributes:
        words: the verb and arguments that are good.
        options: kind of every option, by its name.
        arguments: kind of every position in ``words`` that is an argument.
        allowed: codes besides those of a mistake.
        runs: False where a good call would take minutes (or serve for ever): then only what must be refused is tried.
    """

    words: tuple[str, ...]
    options: dict[str, str]
    arguments: dict[int, str] = field(default_factory=dict)
    allowed: frozenset[int] = MAYBE
    runs: bool = True


_READ = {"--root": "root", "--on-bad": "bad", "--split": "split"}
_ELSEWHERE = {
    "--classes": "text",
    "--size": "size",
    "--mean": "triple",
    "--std": "positive_triple",
    "--weights": "file",
    "--layer": "text",
}
_BENCH = {"--runs": "place", "--storage": "storage", "--import": "module"}
_FIT = (
    "--backbone",
    "micro_resnet",
    "--epochs",
    "1",
    "--set",
    "progress=False",
    "--set",
    "model_args={{'width': 8, 'layers': [1, 1, 1], 'stem_stride': 2}}",
)
_SPEC = ("{w}/spec.yaml", "--runs", "{d}/runs")
VERBS: dict[str, Verb] = {
    "demo": Verb(("demo", "-o", "{d}/demo"), {"--out": "place", "--seed": "seed", "--strength": "share"}, runs=False),
    "data list": Verb(("data", "list"), {"--root": "root_any"}),
    "data check": Verb(
        ("data", "check", "{w}/data"),
        {"--root": "root", "--tiny": "whole", "--objects": "objects"},
        {2: "data"},
        allowed=CHECKED,
    ),
    "data prepare": Verb(("data", "prepare", "critters"), {"--root": "root_any"}, {2: "name"}),
    "data export": Verb(
        ("data", "export", "critters:size=32,train=8,target=8,val=8,test=8", "{d}/out"),
        {"--root": "root_any"},
        {2: "data", 3: "folder"},
    ),
    "data compose": Verb(
        (
            "data",
            "compose",
            "--foregrounds",
            "{w}/data/benchmark.csv",
            "--backgrounds",
            "{w}/data/benchmark.csv",
            "--out",
            "{d}/out",
            "--size",
            "16",
            "--train",
            "8",
            "--target",
            "4",
            "--val",
            "4",
            "--test",
            "4",
        ),
        {
            "--foregrounds": "spec",
            "--backgrounds": "spec",
            "--out": "folder",
            "--fg-path": "template",
            "--fg-mask": "template",
            "--fg-label": "column",
            "--bg-path": "template",
            "--bg-label": "column",
            "--size": "count",
            "--strength": "share",
            "--centre-bias": "share",
            "--train": "count",
            "--target": "count",
            "--val": "count",
            "--test": "count",
            "--mask-threshold": "whole",
            "--soft-edge": "number",
            "--image-format": "format",
            "--on-bad": "bad",
            "--seed": "seed",
            "--scale": "pair",
        },
    ),
    "bench run": Verb(
        ("bench", "run", *_SPEC, "--workers", "0"),
        {
            **_BENCH,
            "--workers": "count",
            "--threads": "count",
            "--ray": "ray",
            "--method": "column",
            "--dataset": "column",
            "--log-to": "kind",
            "--export": "file",
        },
        {2: "spec"},
        runs=False,
    ),
    "bench add": Verb(
        ("bench", "add", "{w}/spec.yaml", "{w}/records.csv", *_SPEC[1:]),
        {**_BENCH, "--export": "file"},
        {2: "spec", 3: "records"},
    ),
    "bench status": Verb(("bench", "status", *_SPEC), dict(_BENCH), {2: "spec"}),
    "bench table": Verb(
        ("bench", "table", "{w}/records.csv"),
        {**_BENCH, "--format": "format", "--metric": "metric", "--out": "file"},
        {2: "records"},
    ),
    "bench plot": Verb(
        ("bench", "plot", "{w}/records.csv", "-o", "{d}/plot.png"),
        {"--kind": "kind", "--metric": "metric", "--x": "column", "--y": "text", "--out": "file", **_BENCH},
        {2: "records"},
    ),
    "bench figures": Verb(
        ("bench", "figures", *_SPEC),
        {**_BENCH, "--dataset": "column", "--seed": "seed", "--method": "column", "--out": "folder"},
        {2: "spec"},
        runs=False,
    ),
    "bench page": Verb(
        ("bench", "page", "{w}/spec.yaml", "--records", "{w}", "-o", "{d}/page.md"),
        {"--records": "root_any", "--notes": "notes", "--out": "file", "--import": "module"},
        {2: "spec"},
    ),
    "bench features": Verb(
        ("bench", "features", "{w}/pets", "--backbone", "micro-vit", "--size", "32", "--store", "{d}/store"),
        {
            "--backbone": "backbone",
            "--layer": "column",
            "--split": "split",
            "--size": "count",
            "--batch-size": "count",
            "--on-bad": "bad",
            "--ray": "ray",
            "--rows": "count",
            "--store": "place",
            "--out": "place",
            "--root": "root",
        },
        {2: "data"},
    ),
    "bench speed": Verb(
        ("bench", "speed", "--only", "decoding", "--record", "{d}/speed.json", "-o", "{d}/speed.md"),
        {"--only": "name", "--record": "place", "--out": "place"},
        runs=False,
    ),
    "bench grid": Verb(
        ("bench", "grid", "critters:size=32,train=8,target=8,val=8,test=8", "-o", "{d}/grid.png"),
        {
            "--backbone": "backbone",
            "--epochs": "count",
            "--seed": "seed",
            "--metric": "metric",
            "--out": "file",
            "--only": "column",
            "--runs": "place",
            "--root": "root_any",
        },
        {2: "data"},
        runs=False,
    ),
    "reproduce": Verb(
        ("reproduce", "a2/T13", "--dry"),
        {"--root": "root_any", "--records": "records_any", "--page": "file"},
        {1: "name"},
    ),
    "fit": Verb(
        ("fit", "{w}/data", "-o", "{d}/model", *_FIT),
        {
            "--out": "folder",
            "--system": "system",
            "--backbone": "backbone",
            "--epochs": "epochs",
            "--lr": "rate",
            "--batch-size": "count",
            "--seed": "seed",
            "--select": "metric",
            "--base": "model",
            "--set": "setting",
            "--val-share": "share",
            "--target-size": "count",
            **_ELSEWHERE,
            "--import": "module",
            "--root": "root",
            "--on-bad": "bad",
        },
        {1: "data"},
    ),
    "eval": Verb(
        ("eval", "{w}/erm", "--data", "{w}/data"),
        {"--data": "data", "--metric": "metric", **_ELSEWHERE, **_READ},
        {1: "model"},
    ),
    "predict": Verb(
        ("predict", "{w}/erm", "{w}/data"),
        {"--out": "file", "--data": "data", **_ELSEWHERE, **_READ},
        {1: "model", 2: "data"},
    ),
    "look": Verb(
        ("look", "{w}/erm", "{w}/image.png", "-o", "{d}/look.png"),
        {
            "--model": "model",
            "--out": "file",
            "--crops": "crops",
            "--layer": "layer",
            "--heads": "heads",
            "--size": "size",
            "--columns": "count",
            "--on-bad": "bad",
        },
        {2: "images"},
    ),
    "look vit": Verb(
        ("look", "{w}/image.png", "-m", "micro-vit", "-o", "{d}/look.png"),
        {"--model": "model", "--crops": "crops", "--layer": "layer", "--heads": "heads", "--size": "size"},
        {1: "images"},
    ),
    "audit": Verb(
        ("audit", "{w}/erm", "-d", "{w}/data", "-o", "{d}/audit.html", "--no-discover"),
        {
            "--data": "data",
            "--out": "file",
            "--fail-under": "limit",
            "--attribute": "text",
            "--objects": "objects",
            "--groups-out": "file",
            "--examples": "whole",
            "--minutes": "number",
            **_ELSEWHERE,
            "--seed": "seed",
            **_READ,
        },
        {1: "model"},
        allowed=CHECKED,
    ),
    "cure": Verb(
        ("cure", "{w}/erm", "{w}/data", "-o", "{d}/cured", "--minutes", "0.01"),
        {
            "--data": "data",
            "--out": "folder",
            "--minutes": "rate",
            "--allowed-drop": "number",
            "--real-drop": "number",
            "--objects": "objects",
            **_ELSEWHERE,
            "--seed": "seed",
            "--root": "root",
            "--on-bad": "bad",
        },
        {1: "model", 2: "data"},
        runs=False,
    ),
    "audit onnx": Verb(
        ("audit", "{w}/model.onnx", "-d", "{w}/data", "-o", "{d}/audit.html", "--no-discover"),
        {"--classes": "text", "--size": "size", "--mean": "triple", "--std": "positive_triple", "--seed": "seed"},
    ),
    "intervene": Verb(
        ("intervene", "{w}/ifam", "{w}/data", "--drop", "0"),
        {
            "--drop": "parts",
            "--q": "share",
            "--auto": "auto",
            "--metric": "metric_any",
            "--min-gain": "number",
            "--out": "folder",
            "--data": "data",
            **_READ,
        },
        {1: "model", 2: "data"},
    ),
    "verify": Verb(
        ("verify", "{w}/ifam", "{w}/data", "--images", "2"),
        {
            "--against": "model",
            "--images": "count",
            "--split": "split",
            "--seed": "seed",
            "--root": "root",
            "--data": "data",
        },
        {1: "model", 2: "data"},
        allowed=CHECKED,
    ),
    "app": Verb(
        ("app", "{w}/erm", "{w}/data"),
        {"--host": "host", "--port": "port", "--limit": "count", "--root": "root", "--data": "data", **_ELSEWHERE},
        {1: "model", 2: "data"},
        runs=False,
    ),
    "export": Verb(
        ("export", "{w}/erm", "{d}/out", "--format", "torch-export"),
        {
            "--format": "format",
            "--data": "data",
            "--split": "text",
            "--images": "count",
            "--tolerance": "share_up",
            **_ELSEWHERE,
            "--root": "root_any",
        },
        {1: "model", 2: "folder"},
        runs=False,
    ),
    "card": Verb(
        ("card", "{w}/erm", "{w}/data"), {"--out": "file", "--data": "data", **_READ}, {1: "model", 2: "data"}
    ),
    "systems": Verb(("systems",), {}),
    "list": Verb(("list", "systems"), {}, {1: "things"}),
    "assets": Verb(("assets",), {"--root": "root_any"}),
    "doctor": Verb(("doctor",), {}, runs=False),
    "cache show": Verb(("cache", "show"), {}),
    "cache prune": Verb(("cache", "prune"), {"--older-than": "days"}),
}
