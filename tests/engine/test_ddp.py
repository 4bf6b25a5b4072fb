import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch has no torch.distributed")
def test_two_processes_equal_one_with_the_doubled_batch(tmp_path: Path) -> None:
    script = Path(__file__).with_name("ddp_script.py")
    results = []
    for devices, batch in ((1, 16), (2, 8)):
        out = tmp_path / f"{devices}.json"
        command = [sys.executable, str(script), str(devices), str(batch), str(out)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        assert done.returncode == 0, done.stderr
        results.append(json.loads(out.read_text()))
    one, two = results
    assert len(one["losses"]) == 3 * 4
    assert two["losses"] == pytest.approx(one["losses"], abs=1e-5)
    assert two["weight"] == pytest.approx(one["weight"], abs=1e-5)
