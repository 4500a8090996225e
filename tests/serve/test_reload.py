"""One model is one model: its digest, workers that find other files, and new files without a lost request."""

import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from regard.io.manifest import MANIFEST, model_digest, write_manifest
from regard.io.tensors import read_tensors, write_tensors
from tests.serve.live import WAIT, Server, signal_to, until

TEXT = "w1 w2 w3 w4"
ADMIN = {"authorization": "Bearer admin-key"}


def change_weights(run: Path, seed: int = 0) -> None:
    """Other weights, put in place by a rename; the manifest stays."""
    tensors = read_tensors(run / "model.safetensors")
    generator = torch.Generator().manual_seed(seed)
    write_tensors(run / "model.safetensors", {k: torch.randn(t.shape, generator=generator) for k, t in tensors.items()})


def change(run: Path) -> None:
    """Other weights, and a manifest in step with them where there is one."""
    change_weights(run)
    if (run / MANIFEST).exists():
        write_manifest(run)


@pytest.fixture
def run(toy_run: Path, tmp_path: Path) -> Path:
    shutil.copytree(toy_run, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints", "last"))
    return tmp_path / "run"


def admin_server(run: Path, tmp_path: Path, *arguments: Any) -> Server:
    (tmp_path / "admin").write_text("admin-key\n")
    return Server(f"toy={run}", "--admin-key-file", tmp_path / "admin", *arguments)


def reload(server: Server, headers: dict[str, str] = ADMIN) -> httpx.Response:
    return httpx.post(f"{server.url}/admin/reload", headers=headers, timeout=WAIT)


def has_failed(server: Server, why: str) -> bool:
    return any(why in event["why"] for event in server.events("worker_failed"))


def text_of(answer: httpx.Response) -> str:
    """Without the score, whose last bits depend on its neighbours."""
    return str(answer.json()["results"][0]["text"])


@pytest.mark.slow
def test_a_restarted_worker_with_other_files_answers_nothing(run: Path, tmp_path: Path) -> None:
    before = model_digest(run)
    with admin_server(run, tmp_path, "--workers", 2) as server:
        wanted = server.ask("translate", text=TEXT)
        assert wanted.headers["x-model-digest"] == before
        assert server.client.get("/v1/models").json()["models"][0]["digest"] == before
        assert server.metric(f'regard_model_info{{digest="{before}",model="toy"}}') == 1
        change_weights(run)
        signal_to(server.workers()[0], signal.SIGKILL)
        until(lambda: has_failed(server, "model.safetensors: damaged"), "weights that the manifest does not know")
        assert reload(server).json()["error"]["code"] == "not_reloaded"
        write_manifest(run)
        until(lambda: has_failed(server, "its files have changed"), "another model is refused")
        answers = [server.ask("translate", text=TEXT) for _ in range(20)]
        assert {answer.headers["x-model-digest"] for answer in answers} == {before}
        assert {text_of(answer) for answer in answers} == {text_of(wanted)}
        signal_to(server.workers()[0], signal.SIGKILL)
        until(lambda: server.client.get("/readyz").status_code == 503, "no worker is left")
        assert reload(server).json() == {"models": {"toy": model_digest(run)}}
        assert server.client.get("/readyz").status_code == 200
        assert server.ask("translate", text=TEXT).headers["x-model-digest"] == model_digest(run) != before


@pytest.mark.slow
@pytest.mark.parametrize("by_signal", [False, True])
def test_new_files_are_taken_without_a_lost_or_a_mixed_request(run: Path, tmp_path: Path, by_signal: bool) -> None:
    if not by_signal:
        (run / MANIFEST).unlink()  # as all folders were before
    stop, answers = threading.Event(), list[tuple[int, str, str]]()
    with admin_server(run, tmp_path, "--workers", 2) as server:
        before = model_digest(run)

        def ask() -> None:
            with httpx.Client(timeout=WAIT) as client:
                while not stop.is_set():
                    answer = client.post(f"{server.url}/v1/translate", json={"text": TEXT})
                    answers.append((answer.status_code, answer.headers["x-model-digest"], text_of(answer)))

        threads = [threading.Thread(target=ask, daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        until(lambda: len(answers) > 20, "it answers")
        change(run)
        after = model_digest(run)
        if by_signal:
            server.process.send_signal(signal.SIGHUP)
        else:
            assert reload(server).json() == {"models": {"toy": after}}
            assert server.ask("translate", text=TEXT).headers["x-model-digest"] == after
        until(lambda: server.events("reloaded"), "it has the new files")
        count = len(answers)
        until(lambda: len(answers) > count + 40, "it goes on")
        stop.set()
        for thread in threads:
            thread.join(WAIT)
        until(lambda: len(server.workers()) == 2, "the old workers have ended")
        assert server.metric(f'regard_model_info{{digest="{before}",model="toy"}}') == 0
    assert {status for status, _, _ in answers} == {200}
    assert {digest for _, digest, _ in answers} == {before, after}
    assert len({(digest, text) for _, digest, text in answers}) == 2  # one text of each
    digests = [digest for _, digest, _ in answers]
    assert digests.index(after) > len(digests) - 1 - digests[::-1].index(before) - 16  # but for those under way


def test_files_that_cannot_be_loaded_change_nothing_and_whole_ones_are_taken(run: Path, tmp_path: Path) -> None:
    with admin_server(run, tmp_path) as server:
        wanted, weights = server.ask("translate", text=TEXT), (run / "model.safetensors").read_bytes()
        (run / "model.safetensors").write_bytes(b"no weights")
        answer = reload(server)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not_reloaded")
        assert "model.safetensors" in answer.json()["error"]["message"]
        until(lambda: server.events("reload_failed"), "it is logged")
        after = server.ask("translate", text=TEXT)
        assert text_of(after) == text_of(wanted)
        assert after.headers["x-model-digest"] == wanted.headers["x-model-digest"]
        assert len(server.workers()) == 1
        (run / "model.safetensors").write_bytes(weights)
        change(run)
        assert reload(server).json() == {"models": {"toy": model_digest(run)}}
        assert server.ask("translate", text=TEXT).headers["x-model-digest"] == model_digest(run)


def test_a_reload_needs_its_own_key(toy_run: Path, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("user-key\n")
    with admin_server(toy_run, tmp_path, "--api-key-file", tmp_path / "keys") as server:
        for headers in ({}, {"x-api-key": "user-key"}, {"authorization": "Bearer nonsense"}):
            assert reload(server, headers).status_code == 401
        assert httpx.post(f"{server.url}/v1/translate", json={"text": "w1"}, headers=ADMIN).status_code == 401
        assert server.events("reloaded") == []
