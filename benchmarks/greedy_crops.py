"""Greedy crops for 256 maps at 224 px: ours against upsampling and a per-image NumPy integral image.

Both give the same boxes, which is checked. Printed: CPU seconds of each (a busy machine does not change them
much; median of several rounds, taken in turn) and the median ratio within a round, for one crop of 64 px and for the
paper's 64 and 32 px.

    python benchmarks/greedy_crops.py
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from foveate.restrict import greedy_crops

MAPS, CELLS, PIXELS, ROUNDS = 256, 16, 224, 5
TARGET = 8.0


def by_integral_image(maps: Tensor, sizes: list[int], pixels: int) -> NDArray[np.int64]:
    """The plain way: upsample, then one float64 integral image per map, box sums, arg-max, block, repeat."""
    large = F.interpolate(maps[:, None], (pixels, pixels), mode="bilinear", align_corners=False)[:, 0].numpy()
    boxes = np.full((len(maps), len(sizes), 3), -1, np.int64)
    for i, image in enumerate(large):
        total = np.zeros((pixels + 1, pixels + 1))
        np.cumsum(np.cumsum(image, 0, dtype=np.float64), 1, out=total[1:, 1:])
        for k, s in enumerate(sizes):
            sums = total[s:, s:] - total[:-s, s:] - total[s:, :-s] + total[:-s, :-s]
            for x, y, t in boxes[i, :k]:
                if t > 0:
                    sums[max(y - s + 1, 0) : y + t, max(x - s + 1, 0) : x + t] = -np.inf
            y, x = divmod(int(sums.argmax()), sums.shape[1])
            if np.isfinite(sums[y, x]):
                boxes[i, k] = x, y, s
    return boxes


def attention_like(seed: int = 0) -> Tensor:
    """Maps such as attention gives: a few soft blobs on a noisy floor, float32 ``[256, 16, 16]``."""
    rng = np.random.default_rng(seed)
    at = np.arange(CELLS)
    centre = rng.uniform(2, CELLS - 2, (MAPS, 3, 2))
    spread = rng.uniform(0.8, 3.0, (MAPS, 3, 1))
    line = [np.exp(-((at - centre[..., i, None]) ** 2) / (2 * spread**2)) for i in (0, 1)]
    blobs = np.einsum("bky,bkx->byx", line[0], line[1])
    maps = blobs + 0.2 * rng.exponential(size=(MAPS, CELLS, CELLS))
    return torch.from_numpy((maps / maps.sum((1, 2), keepdims=True)).astype(np.float32))


def run() -> dict[str, float]:
    """Both ways on one thread, in one run: seconds, ratio and share of equal boxes, by sizes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    maps = attention_like()
    result: dict[str, float] = {}
    for sizes in ([64], [64, 32]):
        ours, plain = [], []
        for _ in range(ROUNDS):
            began = time.process_time()
            a = greedy_crops(maps, sizes, PIXELS)
            ours.append(time.process_time() - began)
            began = time.process_time()
            b = by_integral_image(maps, sizes, PIXELS)
            plain.append(time.process_time() - began)
        name = "+".join(map(str, sizes))
        fast, slow = statistics.median(ours), statistics.median(plain)
        result[f"seconds {name}"], result[f"plain seconds {name}"] = fast, slow
        result[f"ratio {name}"] = statistics.median(p / o for p, o in zip(plain, ours, strict=True))
        result[f"same boxes {name}"] = float((a.numpy() == b).all(-1).mean())
        print(
            f"greedy_crops {name} px, {MAPS} maps: {1e3 * fast:.1f} ms against {1e3 * slow:.1f} ms, "
            f"{result[f'ratio {name}']:.1f}x (target {TARGET:g}x), "
            f"{100 * result[f'same boxes {name}']:.2f} % of boxes the same"
        )
    torch.set_num_threads(threads)
    return result


if __name__ == "__main__":
    run()
