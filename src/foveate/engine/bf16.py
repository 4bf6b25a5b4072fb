"""Whether bfloat16 can be used on this processor: tried once, in a process that may die of it.

Some virtual machines advertise Intel's AMX but do not let programs use it. PyTorch (oneDNN) believes the processor, and
the first bf16 matrix product is an illegal instruction: the process is gone, without a traceback. So it is tried in a
child process first. There, ``ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16`` in the environment keeps oneDNN off AMX, and bf16
works. It is *named* and never set from here: oneDNN reads it once, and by the time a precision is known PyTorch may
have read it long ago.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys

from foveate.errors import FoveateError

OVERRIDE = "FOVEATE_BF16"
"""Environment variable that decides in place of the trial: ``usable`` or ``unusable``."""
LIMIT, LIMIT_VALUE = "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16"
PATIENCE = 300
"""Seconds the child may take; it is mostly the time PyTorch needs to load."""

# Products of several shapes, for oneDNN chooses its code by shape; a linear layer and a convolution there and back, as
# in training. What comes out is compared, for a processor may also be wrong without dying.
TRIAL = """
import torch
import torch.nn.functional as F
torch.manual_seed(0)
torch.set_num_threads(1)
for n, k, m in ((8, 16, 8), (64, 64, 64), (128, 96, 256)):
    a, b = torch.randn(n, k), torch.randn(k, m)
    assert torch.allclose((a.bfloat16() @ b.bfloat16()).float(), a @ b, atol=0.1 * k ** 0.5), "a wrong product"
net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
    torch.nn.Conv2d(16, 32, 3, stride=2), torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(128, 8),
)
with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = F.cross_entropy(net(torch.randn(4, 3, 32, 32)), torch.arange(4))
loss.backward()
assert all(bool(p.grad.isfinite().all()) for p in net.parameters()), "a gradient that is not finite"
"""


@functools.cache
def bf16_problem() -> str | None:
    """What is wrong with bf16 on this processor, as part of a sentence; None when it works.

    The trial takes a few seconds, once a process. ``FOVEATE_BF16=usable`` or ``unusable`` decides without it.

    >>> bf16_problem() is None or "bf16" in bf16_problem()
    True
    """
    told = os.environ.get(OVERRIDE)
    if told is not None:
        if told not in ("usable", "unusable"):
            raise FoveateError(f"{OVERRIDE} is 'usable' or 'unusable'; found '{told}'.")
        return None if told == "usable" else f"{OVERRIDE} says that bf16 is unusable here"
    try:
        done = subprocess.run(
            [sys.executable, "-c", TRIAL], capture_output=True, text=True, errors="replace", timeout=PATIENCE,
            env={**os.environ, "PYTHONFAULTHANDLER": ""},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"a bf16 matrix product had not ended after {PATIENCE} s in a process of its own"
    except OSError as error:
        return f"bf16 could not be tried, for no process could be started ({error})"
    if done.returncode == 0:
        return None
    if done.returncode < 0:
        return f"a bf16 matrix product ended a process of its own with {_name(-done.returncode)}"
    last = done.stderr.strip().splitlines()
    return f"bf16 arithmetic failed in a process of its own: {last[-1] if last else f'exit {done.returncode}'}"


def require_bf16(precision: str) -> None:
    """A :class:`FoveateError` that says what to do, when ``precision`` needs bf16 and this processor cannot do it.

    >>> require_bf16("32-true")
    """
    if "bf16" not in precision:
        return
    problem = bf16_problem()
    if problem is None:
        return
    other = "use another precision (precision='32-true')"
    cure = f"set {LIMIT}={LIMIT_VALUE} in the environment before Python starts, or {other}"
    if os.environ.get(LIMIT):
        cure = f"{LIMIT}={os.environ[LIMIT]} does not help; {other}"
    raise FoveateError(f"precision='{precision}' does not work on this processor: {problem}. To go on, {cure}.")


def _name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} ({signal.strsignal(number)})"
    except ValueError:
        return f"signal {number}"
