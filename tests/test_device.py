"""What a device can do, against what the operating system says of it."""

import gc
import platform
import sys
from pathlib import Path

import pytest
import torch

import regard
from regard import accel
from regard import recipe as recipes
from regard.cli import main as cli
from regard.device import check_bf16, gc_disabled, has_bf16, pick_device
from regard.errors import RegardError
from regard.run import train_recipe
from regard.run_checks import device_warnings
from regard.training.config import TrainingConfig
from regard.training.loop import Trainer
from tests.training import toy

FLAGS = Path("/proc/cpuinfo")


@pytest.mark.skipif(not FLAGS.exists() or platform.machine() != "x86_64", reason="asks Linux about an x86 processor")
def test_bf16_on_a_cpu_is_what_its_flags_say() -> None:
    flags = FLAGS.read_text(encoding="utf-8").split()
    assert has_bf16(torch.device("cpu")) == ("avx512_bf16" in flags or "amx_tile" in flags)


def test_nothing_is_collected_meanwhile() -> None:
    with gc_disabled():
        assert not gc.isenabled()
        with gc_disabled():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


# --- devices that are not there, or can do less --------------------------------------------------------------------


@pytest.fixture
def old_gpu(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (7, 5))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    return torch.device("cuda")


@pytest.mark.parametrize(
    "name, sentence",
    [
        ("cuda", "device cuda was asked for, but torch sees no GPU; write cpu, or auto"),
        ("cuda:1", "device cuda:1 was asked for, but torch sees no GPU"),
        ("mps", "device mps was asked for, but torch has no Apple GPU here; write cpu, or auto"),
        ("meta", "device is 'meta'; write auto, cpu, cuda, cuda:1 or mps"),
        ("gpu", "device is 'gpu'; write auto, cpu, cuda, cuda:1 or mps"),
        ("", "device is ''; write auto"),
    ],
)
def test_devices_that_are_not_there(name: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(RegardError, match=sentence):
        pick_device(name)


def test_devices_that_are_there(old_gpu: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert [pick_device(name).type for name in ("auto", "cuda:0", "cpu", "mps")] == ["cuda", "cuda", "cpu", "mps"]
    with pytest.raises(RegardError, match="cuda:3 was asked for, but torch sees 1 GPU, counted from cuda:0"):
        pick_device("cuda:3")


def test_a_gpu_from_before_bf16(old_gpu: torch.device, toy_run: Path, tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"8\.0 or more, and Tesla T4 has 7\.5; write precision=float32"):
        regard.load(toy_run, "cuda", precision="bf16")
    recipe = recipes.load_recipe(toy.recipe(tmp_path, precision="bf16"))
    with pytest.raises(RegardError, match=r"write training\.precision=float32"):
        train_recipe(recipe, tmp_path / "run", "cuda")
    assert not (tmp_path / "run").exists()
    check_bf16(torch.device("cpu"), "precision")
    assert device_warnings(TrainingConfig(), old_gpu) == [
        "Tesla T4 is older than our kernels: torch's own operations are used"
    ]
    assert (
        device_warnings(TrainingConfig(fast=False), old_gpu)
        == device_warnings(TrainingConfig(), torch.device("cpu"))
        == []
    )


def test_without_triton_it_is_said_once(old_gpu: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accel, "TRITON", False)
    [sentence] = device_warnings(TrainingConfig(), old_gpu)
    assert sentence.startswith("Triton is not installed: torch's own operations are used")


# --- too little memory ---------------------------------------------------------------------------------------------


def full(monkeypatch: pytest.MonkeyPatch, *failing: int) -> list[int]:
    """These micro-batches, counted from 0, find the memory full after their gradients were added."""
    calls: list[int] = []
    gradients = Trainer._loss_and_backward

    def work(self: Trainer, batch: object, share: float) -> torch.Tensor:
        calls.append(len(calls))
        loss = gradients(self, batch, share)
        if calls[-1] in failing:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return loss

    monkeypatch.setattr(Trainer, "_loss_and_backward", work)
    return calls


def test_a_step_that_found_no_memory_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And learns the same: half of its gradients were there already."""
    toy.write_corpus(tmp_path)
    keys = toy.recipe(tmp_path, steps=4, accumulate=2)
    train_recipe(recipes.load_recipe(keys), tmp_path / "whole", "cpu")
    calls = full(monkeypatch, 3)
    train_recipe(recipes.load_recipe(keys), tmp_path / "again", "cpu")
    assert len(calls) == 4 * 2 + 2  # a step more
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "again")]
    assert weights[0] == weights[1]


def test_a_step_that_never_finds_memory_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.write_corpus(tmp_path)
    full(monkeypatch, *range(100))
    sentence = r"out of memory; lower training\.tokens_per_batch \(it is \d+\) and raise training\.accumulate as much"
    with pytest.raises(RegardError, match=sentence):
        train_recipe(recipes.load_recipe(toy.recipe(tmp_path)), tmp_path / "run", "cpu")


@pytest.mark.parametrize(
    "override, sentence",
    [
        ("model.size=1e9", r"parameters, which take [\d,]+ GiB to learn, and cpu has"),
        ("model.size=1e18", r"more parameters than can be counted; lower model\.size"),
        ("model.inner=1e12", r"[\d,]+ parameters, which take [\d,]+ GiB to learn, and cpu has \d+ GiB; lower"),
        ("model.layers=1000000000", r"model\.layers is 1000000000; it can be at most 2000"),
    ],
)
def test_a_model_that_fits_nowhere(override: str, sentence: str, tmp_path: Path) -> None:
    toy.write_corpus(tmp_path)
    with pytest.raises(RegardError, match=sentence):
        train_recipe(recipes.load_recipe(toy.recipe(tmp_path), [override]), tmp_path / "run", "cpu")


@pytest.mark.parametrize(
    "error, sentence",
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total ..."),
            "the GPU is out of memory; give less at a time (--batch-tokens), or --device cpu",
        ),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory"),
            "the machine is out of memory; give less at a time (--batch-tokens)",
        ),
        (MemoryError(), "the machine is out of memory; give less at a time (--batch-tokens)"),
    ],
)
def test_a_command_that_finds_no_memory_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, sentence: str
) -> None:
    def decode() -> None:
        raise error

    monkeypatch.setattr(cli, "app", decode)
    monkeypatch.setattr(sys, "argv", ["regard", "translate", "runs/my"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"regard: {sentence}\n"
