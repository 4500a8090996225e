"""What `make gpu` has last shown, and what has changed since: said here, where there is no GPU, and no failure."""

import warnings
from pathlib import Path

from tests.gpu import proof
from tests.run_all import RECORD


def test_what_has_changed_since_the_last_run_on_a_gpu() -> None:
    found, now = proof.read(), proof.hashes()
    sentence = proof.standing(found, now)
    print(sentence)
    if found is None or proof.changed(found, now) or not found.get("passed"):
        warnings.warn(sentence, stacklevel=1)
    if found is not None:
        assert found["complete"], "tests/gpu/proof.json is of a part; a full run alone may be recorded there"
        assert found["source"], "tests/gpu/proof.json says nothing of the source it is about"


def test_what_has_changed_since_all_tests_passed() -> None:
    """Slow tests are not run everywhere: `make test-all` records when they last passed."""
    record = proof.read(RECORD)
    if record is None:
        warnings.warn("no run of `make test-all` is recorded (there is no tests/last_pass.json)", stacklevel=1)
    elif names := proof.changed(record, proof.hashes()):
        warnings.warn(f"`make test-all` passed at {record['commit']}; changed since: {', '.join(names)}", stacklevel=1)


def test_a_hash_follows_what_a_package_holds(tmp_path: Path) -> None:
    package = tmp_path / "nn"
    (package / "__pycache__").mkdir(parents=True)
    (package / "a.py").write_text("1")
    (tmp_path / "api.py").write_text("2")
    first = proof.hashes(tmp_path)
    assert sorted(first) == ["api.py", "nn"]
    (package / "__pycache__" / "a.pyc").write_text("compiled")
    assert proof.hashes(tmp_path) == first
    (package / "a.py").write_text("1 ")
    assert proof.changed({"source": first}, proof.hashes(tmp_path)) == ["nn"]
    (package / "a.py").rename(package / "b.py")  # the name counts too
    (package / "b.py").write_text("1")
    (tmp_path / "new.py").write_text("")
    assert proof.changed({"source": first}, proof.hashes(tmp_path)) == ["new.py", "nn"]


def test_the_sentence() -> None:
    now = {"nn": "1", "data": "2"}
    seen = {"complete": True, "passed": True, "commit": "abc", "device": "a GPU", "source": dict(now)}
    assert "no run of `make gpu`" in proof.standing(None, now)
    assert proof.standing(seen, now) == "`make gpu` passed at abc on a GPU; nothing under src/regard has changed since"
    assert proof.standing(seen, {**now, "nn": "3"}).endswith("changed since: nn")
    assert "did not pass" in proof.standing({**seen, "passed": False}, now)
