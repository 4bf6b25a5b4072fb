"""Speed of a leave-one-out over the parts of an iFAM model, as a ratio measured in one run.

``anew_over_rehearsed``: asking the model anew without each of 8 parts, against :class:`foveate.intervene.Rehearsal`,
which asks stage 1 once and stage 2 where the mask has changed. The packaged micro ViT at 128 px, 200 critters; the
greedy search of up to 36 questions is measured as well. Both give the same scores.

Run: ``python -m benchmarks rehearsal_speed``
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import foveate as fv
from foveate.assemble.parts_network import Intervention
from foveate.assess import report_of
from foveate.intervene import Rehearsal, leave_one_out

PARTS = 8


def timed(score: Callable[[], Callable[[set[int]], float]], greedy: bool) -> tuple[float, dict[int, float]]:
    """Seconds of a search, whatever it has to prepare included, and its scores of single parts."""
    start = time.perf_counter()
    found = leave_one_out(score(), PARTS, greedy)
    return time.perf_counter() - start, found.scores


def run(images: int = 200, train: int = 64) -> dict[str, float]:
    """Both searches, both ways."""
    data = fv.data.critters(train=train, target=0, val=images, test=0)
    system = fv.IFAM(
        "micro-vit", parts=PARTS, image_size=128, epochs=1, lr=1e-4, tune="none", mask="boolean", start="tokens",
        progress=False,
    ).fit(data.train)  # fmt: skip

    def anew() -> Callable[[set[int]], float]:
        return lambda gone: fv.evaluate(system.with_parts_removed(gone), data.val).average

    def rehearsed() -> Callable[[set[int]], float]:
        rehearsal = Rehearsal(system, data.val)
        return lambda gone: report_of(system, data.val, rehearsal.predict(Intervention(tuple(sorted(gone))))).average

    found: dict[str, float] = {}
    for name, greedy in (("leave-one-out", False), ("greedy", True)):
        (slow, expected), (quick, scores) = timed(anew, greedy), timed(rehearsed, greedy)
        found[f"{name}: anew_over_rehearsed"] = slow / quick
        found[f"{name}: seconds rehearsed"] = quick
        found[f"{name}: largest difference of a score"] = max(abs(scores[k] - expected[k]) for k in scores)
    return found


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
