"""The steps to take, in words, each with the command to copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foveate.report.advice import Step


@dataclass(frozen=True)
class Advice:
    """A step in words: what, ``when`` it fits, and the ``command`` for it."""

    step: Step
    title: str
    when: str
    command: str


_WORDS: dict[Step, tuple[str, str, str]] = {
    Step.MEND: (
        "First mend {silent}: it says NaN",
        "Some images get NaN or infinite logits in place of an answer. Look at the weights (a training run that "
        "diverged, half precision that overflows) and at how its images are prepared; the images are named in the "
        "findings.",
        "foveate audit MODEL DATA --json",
    ),
    Step.KEEP: (
        "Keep it, and audit again when the data change",
        "No shortcut was found. New cameras or places bring new ones; a limit makes the audit a test.",
        "foveate audit MODEL DATA --fail-under worst_class=0.8",
    ),
    Step.TRAIN_FURTHER: (
        "Train it further, or check the labels",
        "It hardly beats guessing: it has learned little, or reads something that tells nothing in these images. Are "
        "the class names in the order of its outputs, and the images prepared as in training?",
        "foveate audit MODEL DATA --classes FIRST,SECOND --out audit.html",
    ),
    Step.MORE_IMAGES: (
        "Audit more images",
        "Too few images to tell. A few hundred for each class are enough for most tests.",
        "foveate audit MODEL MORE_DATA --out audit.html",
    ),
    Step.MAKE_TESTABLE: (
        "Make it testable",
        "Nothing could be compared. Write what you suspect (the background, the camera, the hospital …) into a column "
        "'attribute', or give a model file that can be asked about edited images; from about a hundred images on the "
        "experiments speak as well.",
        "foveate audit MODEL DATA_WITH_ATTRIBUTES --out audit.html",
    ),
    Step.CURE: (
        "Cure it",
        "Tries the remedies that fit, on a balanced set that it makes from what was found, and hands back the best model "
        "with its report. It needs neither attributes nor images of your own choosing.",
        "foveate cure MODEL DATA --out cured",
    ),
    Step.MAKE_GROUPS: (
        "Make groups from what was found",
        "No attributes were given; the audit can write the class each image's shortcut speaks for, so that group "
        "metrics and group-aware systems (DAR, DFR, GroupDRO) can be used.",
        "foveate audit MODEL DATA --groups-out groups.csv",
    ),
    Step.DAR: (
        "DAR: keep the network, learn where to look",
        "You have the trained network (a foveate model) and a few images in which class and shortcut do not go "
        "together. The quickest mend; the network itself stays as it is.",
        "foveate fit DATA --system DAR --base MODEL --out mended",
    ),
    Step.A2: (
        "A²: crop to what matters before looking",
        "You have no group labels and the shortcut lies beside the object.",
        "foveate fit DATA --system A2 --out mended",
    ),
    Step.IFAM: (
        "iFAM: a model that can prove where it looked",
        "The model must be auditable: what its mask leaves out cannot reach the answer at all.",
        "foveate fit DATA --system IFAM --out mended && foveate verify mended DATA",
    ),
    Step.A2_ZERO_SHOT: (
        "A²-ZS: class names instead of training",
        "You have a CLIP model and no training images.",
        "foveate fit DATA --system A2ZeroShot --out mended",
    ),
    Step.AUDIT_AGAIN: (
        "Then audit again, both models side by side",
        "Fixing one shortcut often feeds another; the same tests look for that.",
        "foveate audit MODEL mended DATA --out audit.html",
    ),
}  # fmt: skip


def advice(step: Step, attributes: bool, silent: Sequence[str] = ()) -> Advice:
    """A step in words; without ``attributes``, DAR starts from the groups file that the step before it writes.

    ``silent`` are the models that left images without an answer.

    >>> advice(Step.KEEP, attributes=True).title
    'Keep it, and audit again when the data change'
    """
    title, when, command = _WORDS[step]
    if step is Step.DAR and not attributes:
        command = command.replace("DATA", "groups.csv")
    return Advice(step, title.format(silent=", ".join(silent)), when, command)
