"""Scans from two hospitals: one stamps a mark into the corner and sees more of the sick. The model reads the mark."""

import numpy as np

import foveate as fv
from foveate import notebook


def scans(n: int, agreement: float, seed: int, name: str):
    """Grey images ``[n, 64, 64, 3]`` of a chest-like shape; the sick have a bright spot, hospital B a white mark."""
    rng = np.random.default_rng(seed)
    sick = np.arange(n) % 2
    marked = np.where(rng.random(n) < agreement, sick, 1 - sick)
    y, x = np.mgrid[:64, :64]
    lungs = sum(60 * np.exp(-(((x - middle) / 11) ** 2 + ((y - 34) / 18) ** 2)) for middle in (20, 44))
    images = 90 - lungs[None] + rng.normal(0, 9, (n, 64, 64))
    for i in range(n):
        cx, cy = rng.choice([20, 44]) + rng.integers(-4, 5), rng.integers(24, 46)
        if sick[i]:
            images[i] += 38 * np.exp(-(((x - cx) / 4) ** 2 + ((y - cy) / 4) ** 2))
        if marked[i]:
            images[i, 4:10, 4:14] = 235
    grey = np.clip(images, 0, 255).astype(np.uint8)
    pixels = fv.data.ArrayImages(np.repeat(grey[..., None], 3, axis=3))
    sites = ["hospital A", "hospital B"]
    return fv.data.GroupedDataset(
        pixels, sick, ["healthy", "sick"], attributes=marked, attribute_names=sites, name=name
    )


def draw(small: bool = False):
    n = 80 if small else 600
    train, test = scans(n, 0.95, 0, "training scans"), scans(64 if small else 240, 0.5, 1, "new scans")
    how = {"model_args": {"layers": [1, 1, 1], "stem_stride": 2}, "lr": 2e-3, "batch_size": 32, "augment": False}
    model = fv.ERM("micro_resnet", epochs=1 if small else 6, progress=False, **how).fit(train)
    found = fv.audit({"model": model}, test, attribute="hospital", examples=0, objects="centre")
    figure = notebook.figure(7, 2.4)
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 2.2))
    for ax, group, title in ((left, 1, "healthy, hospital B"), (middle, 2, "sick, hospital A")):
        ax.imshow(test[int(np.flatnonzero(test.groups == group)[0])].image[0], cmap="gray", vmin=0, vmax=255)
        ax.set_axis_off()
        ax.set_title(title, fontsize=9)
    fv.evaluate(model, test).plot(right)
    figure.suptitle(found.findings.models[0].verdict.plain, fontsize=9)
    return figure
