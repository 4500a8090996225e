"""Products in 8 bits: against an emulation in numpy, and whole models near those that they were made of."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from typer.testing import CliRunner

import regard
from regard.accel import int8
from regard.accel.fused_step import fused
from regard.accel.int8 import int8_unsupported_reason, use_int8
from regard.accel.int8.linear import Int8Linear, Int8Output
from regard.cli.main import app
from regard.errors import RegardError
from regard.io.int8 import from_int8, to_int8
from regard.models.batch import collate_texts
from regard.nn.embedding import BiasedOutput, Embedding
from tests.models import test_bert, test_lm, test_transformer
from tests.models.test_transformer import batch

pytestmark = pytest.mark.skipif(bool(int8_unsupported_reason()), reason=str(int8_unsupported_reason()))
WIDE = {"size": 64, "inner": 128}  # weights that are enough for 8 bits


def emulated(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The formula of `linear.py`, in whole numbers and float64."""
    a = np.abs(w).max(1) / 127
    n = np.round(w / a[:, None]).astype(np.int64)
    m, s = x.min(1), (x.max(1) - x.min(1)) / 255
    q = np.round((x - m[:, None]) / s[:, None]).astype(np.int64)
    return s[:, None] * a * (q @ n.T) + m[:, None] * (a * n.sum(1)) + b


def inputs(rows: int, width: int) -> torch.Tensor:
    torch.manual_seed(rows)
    return torch.randn(rows, width) * torch.logspace(-2, 2, rows)[:, None] + 0.5


@pytest.mark.parametrize("rows", [1, 2, 7, 33, 130, 300])
def test_as_emulated(rows: int) -> None:
    """Rows whose sizes differ by 10⁴, each with a scale of its own; 33, 130 and 300 are padded by oneDNN's steps."""
    linear, x = nn.Linear(60, 70), inputs(rows, 60)
    made = Int8Linear(linear.weight, linear.bias)
    expected = torch.from_numpy(emulated(*(t.detach().double().numpy() for t in (x, linear.weight, linear.bias))))
    off = (made(x) - expected).abs() / x.abs().amax(1, keepdim=True)
    assert float(off.max()) < 4e-4  # a number that lies between two whole ones may be rounded to either
    assert float((off < 1e-5).double().mean()) > 0.9
    assert torch.equal(made.rectified(x), made(x).relu())


@pytest.mark.parametrize("rows", [1, 2, 40])
def test_within_what_rounding_allows(rows: int) -> None:
    """|Δ| ≤ Σₖ ½ s |w| + ½ a |x| + ¼ s a"""
    linear, x = nn.Linear(512, 96).requires_grad_(False), inputs(rows, 512)
    w, made = linear.weight.detach(), Int8Linear(linear.weight, linear.bias)
    a, s = w.abs().amax(1) / 127, (x.amax(1) - x.amin(1)) / 255
    room = 1e-3 + s[:, None] * w.abs().sum(1) / 2 + a * x.abs().sum(1)[:, None] / 2 + 512 * s[:, None] * a / 4
    error = (made(x[:, None])[:, 0] - linear(x)).abs()
    assert bool((error <= room).all())
    assert 0 < float(error.mean() / linear(x).abs().mean()) < 0.01
    assert bool(((made.rectified(x) - linear(x).relu()).abs() <= room).all())


def test_a_row_depends_on_itself_alone() -> None:
    linear, x = nn.Linear(64, 48), inputs(50, 64)
    made = Int8Linear(linear.weight, linear.bias)
    alike = Int8Linear(torch.cat([linear.weight, linear.weight.flip(0)]), None)
    for some in (slice(3, 4), slice(3, 5), slice(3, 19), slice(3, 24), slice(3, 44)):
        assert torch.equal(made(x)[some], made(x[some]))
    assert torch.equal(alike(x)[:, :48], alike(x)[:, 48:].flip(1))
    assert made(x[:0]).shape == (0, 48)


def test_rows_and_weights_of_one_number() -> None:
    x = torch.tensor([[2.5] * 8, [0.0] * 8, [-1.0] * 8])
    made = Int8Linear(torch.cat([torch.zeros(1, 8), torch.ones(1, 8)]), None)
    torch.testing.assert_close(made(x), torch.tensor([[0.0, 20.0], [0.0, 0.0], [0.0, -8.0]]))


def test_what_was_stored_in_8_bits_is_the_same_again() -> None:
    weight = torch.randn(300, 64) * torch.logspace(-3, 3, 300)[:, None]
    stored = to_int8({"w": weight})
    made = Int8Linear(from_int8(stored, "it")["w"], None)
    assert torch.equal(made.integers, stored["w"])
    torch.testing.assert_close(made.weight, from_int8(stored, "it")["w"])


def test_the_loss_of_an_output() -> None:
    output = BiasedOutput(Embedding(400, 64, False), 400, 64)
    x, labels = inputs(9, 64), torch.arange(9)
    made = Int8Output(output.weight, output.bias)
    found, logits = made.at(x, labels, 0.1), made.at(x, None, None)
    torch.testing.assert_close(found, F.cross_entropy(logits, labels, reduction="sum", label_smoothing=0.1))


def near(found: torch.Tensor, exact: torch.Tensor) -> bool:
    error = float((found - exact).norm() / exact.norm())
    return 0 < error < 0.04


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize(
    "keys", [{}, {"activation": "swiglu"}, {"residual": "pre_norm", "position": "relative"}], ids=str
)
def test_steps_of_a_translator(rows: int, keys) -> None:
    model = test_transformer.build(100, share="all", **WIDE, **keys).float()
    made = copy.deepcopy(model)
    use_int8(made)
    assert isinstance(made.output, Int8Output)
    assert isinstance(made.decoder[1].cross.key_value, Int8Linear)
    assert made.source_embedding.weight is made.target_embedding.weight
    given = batch([(5, 4), (5, 4)][:rows])
    with torch.inference_mode():
        exact, plain, fast = (m.step(given.target[:, :1], m.start(given, 8))[0] for m in (model, made, fused(made)))
    assert near(plain, exact)
    assert near(fast, exact)
    torch.testing.assert_close(fast, plain, atol=0.1, rtol=0.1)


@pytest.mark.parametrize("build, read", [(test_lm.build, lambda m, b: m(b)), (test_bert.build, lambda m, b: m.body(b))])
def test_language_models_and_berts(build, read) -> None:
    model, given = build(**WIDE).float(), collate_texts([[3, 5, 7, 9], [4, 6, 8]], 0)
    made = copy.deepcopy(model)
    use_int8(made)
    assert sum(isinstance(m, Int8Linear) for m in made.modules()) >= 8
    with torch.inference_mode():
        assert near(read(made, given), read(model, given))


def test_what_is_small_or_belongs_to_a_position_stays() -> None:
    model = test_transformer.build(100, position="transformer_xl", **WIDE).float()
    head = nn.Sequential(nn.Linear(64, 3), nn.Linear(66, 64), nn.Linear(64, 64))
    use_int8(model)
    use_int8(head)
    assert [type(m) for m in head] == [nn.Linear, nn.Linear, Int8Linear]
    assert all(isinstance(m, nn.Linear) for p in model.decoder_position for m in p.children())


# --- loading -------------------------------------------------------------------------------------------------------


def test_a_loaded_model(toy_run: Path) -> None:
    exact, made = regard.load(toy_run, "cpu"), regard.load(toy_run, "cpu", "int8")
    lines = ["w1 w2 w3", "w4"]
    assert made.precision == "int8"
    assert made.translate(lines) == exact.translate(lines)
    assert [len(each) for each in made.score([("w1", "W1")])] == [2]
    with pytest.raises(RegardError, match="precision is 'int4'; write float32 or bf16 or int8"):
        regard.load(toy_run, "cpu", "int4")


def test_where_there_are_no_such_products(
    toy_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(int8, "int8_unsupported_reason", lambda: "this processor is a test")
    for _ in range(2):
        assert regard.load(toy_run, "cpu", "int8").precision == "float32"
    assert capsys.readouterr().err == "regard: computing in float32, not int8: this processor is a test\n"
    with pytest.raises(RegardError, match="precision is int8, which is for CPUs, and the device is cuda; write cpu"):
        int8.int8_or_float32(torch.device("cuda"))


def test_commands(toy_run: Path) -> None:
    given = [str(toy_run), "--device", "cpu", "--precision"]
    exact, made = (CliRunner().invoke(app, ["score", *given, kind], input="w1\tW1\n") for kind in ("float32", "int8"))
    assert (exact.exit_code, made.exit_code) == (0, 0)
    assert float(made.stdout.split()[0]) == pytest.approx(float(exact.stdout.split()[0]), rel=0.05)
    refused = CliRunner().invoke(app, ["score", *given, "bf16"], input="w1\tW1\n")
    assert str(refused.exception) == "--precision is 'bf16'; write float32 or int8"
