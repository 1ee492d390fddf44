"""The short form of the campaign: nothing lost, nothing raw, nothing silently wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_short_campaign_finds_no_fault() -> None:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "campaign")])
    command = [sys.executable, str(ROOT / "campaign" / "run.py"), "--short"]
    run = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=1200, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
