"""What the help of every command ends with: lines that can be typed, with your own files in place of these."""

from __future__ import annotations

from typer.models import CommandInfo

EXAMPLES: dict[str, tuple[str, ...]] = {
    "demo": ("foveate demo", "foveate demo --out somewhere --seed 1"),
    "data list": ("foveate data list", "foveate data list --json"),
    "data check": ("foveate data check photos.csv", "foveate data check photos/ --json --strict"),
    "data prepare": ("foveate data prepare dominoes", "foveate data prepare waterbirds --root ~/downloads"),
    "data export": ("foveate data export critters:size=96,strength=0.9 critters/",),
    "data compose": ("foveate data compose --foregrounds pets.csv --backgrounds scenes.csv --out pets-on-scenes",),
    "bench run": ("foveate bench run study.yaml --workers 2", "foveate bench run study.yaml --retry-failed"),
    "bench status": ("foveate bench status study.yaml",),
    "bench table": ("foveate bench table study.yaml", "foveate bench table records.csv --format latex --out table.tex"),
    "bench add": ("foveate bench add study.yaml records.csv --export all.csv",),
    "bench plot": ("foveate bench plot study.yaml --kind bars --out bars.svg",),
    "bench figures": ("foveate bench figures study.yaml --out figures/",),
    "bench page": ("foveate bench page study.yaml --records records/ --out results.md",),
    "bench features": ("foveate bench features photos.csv --backbone micro-vit --out features/",),
    "bench speed": ("foveate bench speed",),
    "bench grid": (
        "foveate bench grid critters --epochs 2 --only look=attention",
        "foveate bench grid photos.csv --json",
    ),
    "reproduce": ("foveate reproduce --list", "foveate reproduce a2/T13 --dry"),
    "fit": (
        "foveate fit photos.csv --val-share 0.2 --out erm",
        "foveate fit photos.csv --system A2 --out a2",
        "foveate fit photos.csv --system DAR --base erm --out dar",
    ),
    "eval": ("foveate eval erm photos.csv", "foveate eval erm dar photos.csv --json"),
    "predict": (
        "foveate predict erm new-photos/",
        "foveate predict erm one.jpg two.jpg",
        "foveate predict erm photos.csv --out answers.csv",
    ),
    "look": ("foveate look cat.jpg", "foveate look erm photos/ --out looks/"),
    "audit": (
        "foveate audit erm photos.csv",
        "foveate audit model.onnx photos/ --classes cat,dog",
        "foveate audit erm photos.csv --fail-under worst_group=0.8",
    ),
    "cure": (
        "foveate cure erm photos.csv --out cured",
        "foveate cure model.onnx photos/ --classes cat,dog --minutes 10",
        "foveate cure mobilenetv2_100@weights.safetensors photos.csv --real-drop 5",
    ),
    "intervene": ("foveate intervene ifam photos.csv --drop 3", "foveate intervene ifam photos.csv --auto greedy"),
    "verify": ("foveate verify ifam photos.csv",),
    "app": ("foveate app erm photos.csv", "foveate app erm dar photos.csv --browser"),
    "export": ("foveate export erm exported/ --data photos.csv",),
    "card": ("foveate card erm photos.csv --out MODEL_CARD.md",),
    "systems": ("foveate systems", "foveate systems --json"),
    "list": ("foveate list", "foveate list pools"),
    "assets": ("foveate assets", "foveate assets mobilenet-v2"),
    "doctor": ("foveate doctor", "foveate doctor --json"),
    "cache show": ("foveate cache", "foveate cache show --json"),
    "cache prune": ("foveate cache prune --older-than 7", "foveate cache prune --older-than 0 --assets --yes"),
}  # fmt: skip
"""By command: examples, the plainest first."""


def epilog_of(verb: str) -> str | None:
    """The examples of ``verb`` as the last lines of its help; None where there are none."""
    lines = EXAMPLES.get(verb, ())
    # a blank line keeps the parser's help from joining two lines
    return "\n\n".join([f"Example{'s' * (len(lines) > 1)}:", *lines]) if lines else None


def add_examples(commands: list[CommandInfo], group: str = "") -> None:
    """Give each of a group's commands the examples it has."""
    for command in commands:
        name = command.name or getattr(command.callback, "__name__", "")
        command.epilog = command.epilog or epilog_of(f"{group} {name}".strip())
