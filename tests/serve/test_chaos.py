"""`benchmarks/chaos.py`: workers are killed and stopped under load; all is answered, or refused with a reason."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_faults_lose_no_request(toy_run: Path, tmp_path: Path) -> None:
    words = [toy_run, "--minutes", "0.5", "--every", "10", "--seconds", "2", "--json", tmp_path / "figures.json"]
    command = [sys.executable, str(ROOT / "benchmarks" / "chaos.py"), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert (figures["lost"], figures["faults"]) == (0, {"SIGKILL": 2, "SIGSTOP": 1})
    assert figures["outcomes"]["answered"] > figures["requests"] / 2
    assert "0 lost" in done.stdout
