"""What was seen to work on a GPU, and of which source: `tests/gpu/proof.json`, written by a full run of `make gpu`.

The source of every package and module of `src/regard` is known by a hash, so that a checkout without a GPU can say
what has changed since. Imports no torch.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROOF = Path(__file__).parent / "proof.json"
SOURCE = ROOT / "src" / "regard"


def hashes(source: Path = SOURCE) -> dict[str, str]:
    """Of every package and every module at the top: SHA-256 over the names and bytes of its files, in order."""
    found = {}
    for path in sorted(source.iterdir()):
        files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
        files = [each for each in files if "__pycache__" not in each.parts and each.suffix != ".pyc"]
        if files and not path.name.startswith("."):
            sums = hashlib.sha256()
            for each in files:
                data = each.read_bytes()
                sums.update(f"{each.relative_to(source).as_posix()}\0{len(data)}\0".encode() + data)
            found[path.name] = sums.hexdigest()
    return found


def read(path: Path = PROOF) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def changed(proof: dict[str, Any], now: dict[str, str]) -> list[str]:
    """Packages and modules that are other ones now, new ones and lost ones too."""
    before = proof.get("source", {})
    return sorted(name for name in {*before, *now} if before.get(name) != now.get(name))


def standing(proof: dict[str, Any] | None, now: dict[str, str]) -> str:
    """In one sentence, what the proof says of the source as it is."""
    if proof is None:
        return "no run of `make gpu` is recorded (there is no tests/gpu/proof.json): nothing here was seen on a GPU"
    of = f"{proof.get('commit', 'unknown')} on {proof.get('device', 'an unknown device')}"
    state = "passed" if proof.get("complete") and proof.get("passed") else "did not pass, or only a part of it ran"
    if names := changed(proof, now):
        return f"`make gpu` {state} at {of}; changed since: {', '.join(names)}"
    return f"`make gpu` {state} at {of}; nothing under src/regard has changed since"
