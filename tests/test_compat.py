import subprocess
import sys

import pytest


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_timm_and_torchvision_import_after_compat() -> None:
    code = "from foveate import compat; import timm, torchvision; print(torchvision.ops.nms is not None)"
    assert run(code) == "True"


def test_nothing_is_done_when_torchvision_is_healthy() -> None:
    code = (
        "import sys, types; sys.modules['torchvision'] = types.ModuleType('torchvision')\n"
        "from foveate import compat; print(compat.repaired, compat._library)"
    )
    assert run(code) == "False None"


def test_other_failures_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    from foveate import compat

    def broken(name: str) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(compat.importlib, "import_module", broken)
    with pytest.raises(RuntimeError, match="something else"):
        compat.ensure_torchvision()
