"""How many critters a second one core draws.

Run with ``OMP_NUM_THREADS=1 python benchmarks/critters_speed.py [--size 64] [--images 400]``. Prints images a
second for drawing (image and mask) and for outlines alone (box and keypoints, what building a benchmark costs),
as the best of several rounds, in processor time, so that other work on the machine counts less.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from foveate.data.drawing.habitats import HABITATS
from foveate.data.drawing.scene import Scene, outline, render
from foveate.data.drawing.species import SPECIES


def best_rate(work: Callable[[Scene], object], scenes: list[Scene], rounds: int) -> float:
    """Scenes a second in the fastest of ``rounds`` passes."""
    fastest = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        for scene in scenes:
            work(scene)
        fastest = min(fastest, time.process_time() - start)
    return len(scenes) / fastest


def run(size: int = 64, images: int = 192, rounds: int = 5) -> dict[str, float]:
    """Images a second at ``size`` pixels, over all species and habitats."""
    kinds = len(SPECIES)
    scenes = [Scene(0, 0, i, size, species=i % kinds, habitat=(i // kinds) % len(HABITATS)) for i in range(images)]
    for scene in scenes[:10]:
        render(scene)
    rates = {"draw": best_rate(render, scenes, rounds), "outline": best_rate(outline, scenes, rounds)}
    for name, rate in rates.items():
        print(f"{name:<8} {rate:7.0f} images/s at {size} px")
    return rates


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=64, help="side of the images in pixels")
    parser.add_argument("--images", type=int, default=192, help="images a round, over all species and habitats")
    parser.add_argument("--rounds", type=int, default=5)
    run(**vars(parser.parse_args()))
