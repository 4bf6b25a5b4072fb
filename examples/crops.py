"""A² cuts crops where a small ViT looks, and reads nothing else."""

from examples.shared import animals, batch, looker, unusual


def draw(small: bool = False):
    data = animals(small)
    images = batch(data, unusual(data, each=3))
    a2 = looker(small)
    names = [a2.class_names_[k] for k in a2.predict(images)]
    return a2.look(images).plot(images, [f"says {name}" for name in names])
