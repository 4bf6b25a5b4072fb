import torch

from foveate.look import Gaze


def test_upsampling_keeps_patch_centres() -> None:
    maps = torch.zeros(1, 4, 4)
    maps[0, 1, 2] = 1.0
    large = Gaze(maps).upsampled((32, 32))[0]
    row, column = divmod(int(large.argmax()), 32)
    assert 8 <= row < 16
    assert 16 <= column < 24
    assert torch.allclose(Gaze(torch.ones(2, 3, 5)).upsampled((30, 50)), torch.ones(2, 30, 50))


def test_drawing_outlines_crops_and_leaves_missing_ones() -> None:
    images = torch.zeros(1, 3, 16, 16, dtype=torch.uint8)
    boxes = torch.tensor([[[2, 3, 5], [-1, -1, -1]]])
    drawn = Gaze(torch.ones(1, 2, 2), boxes=boxes).draw(images)[0]
    white = (drawn == 255).all(-1)
    assert white.sum() == 16
    assert white[3, 2:7].all()
    assert white[7, 2:7].all()
    assert white[3:8, 2].all()
