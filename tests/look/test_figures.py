"""Figures are computed by the package's functions: what they show is checked, and every one is written."""

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from regard.cli.main import app
from regard.errors import RegardError
from regard.look.figures import FIGURES, LANGUAGES, MASKS, depths, differences, draw, mask_of, saturation, shift_matrix
from regard.nn.layout import Layout
from regard.nn.pattern import PATTERNS, parse_pattern
from regard.nn.position import sinusoids


@pytest.mark.parametrize("step", [1, 5, 40])
def test_the_matrix_moves_every_position(step: int) -> None:
    waves = sinusoids(torch.arange(200), 64)
    torch.testing.assert_close(waves[:-step] @ shift_matrix(step, 64).T, waves[step:], atol=1e-12, rtol=0)


def test_depths_are_those_of_the_formulas() -> None:
    n = 21
    away = (torch.arange(n)[:, None] - torch.arange(n)).abs()
    for width in (1, 2, 4):  # centred windows of k = 2·width + 1: 2(n − 1)/(k − 1) layers
        assert int(depths([away <= width], n).max()) == -(-2 * (n - 1) // (2 * width))
    assert int(depths([away >= 0], n).max()) == 1
    causal = depths([torch.ones(n, n, dtype=torch.bool).tril()], n)
    assert bool((causal.triu(1)[torch.ones(n, n).triu(1).bool()] == -1).all())


def test_scaling_keeps_softmax_soft() -> None:
    small, large = (saturation(d_k, False) for d_k in (8, 512))
    assert large[0] < 0.2 < small[0]
    scaled = [saturation(d_k, True) for d_k in (8, 512)]
    assert scaled[0] == pytest.approx(scaled[1], abs=0.05)


def test_the_residual_keeps_words_apart() -> None:
    alone, feed_forward, residual = (
        differences("none", False),
        differences("none", True),
        differences("pre_norm", False),
    )
    assert alone[0] == pytest.approx(feed_forward[0]) == pytest.approx(residual[0])
    assert max(alone[-1], feed_forward[-1]) < 0.01 < 0.3 < residual[-1]


@pytest.mark.parametrize("text", MASKS)
def test_masks_are_the_patterns(text: str) -> None:
    mask = mask_of(parse_pattern(text, PATTERNS), Layout.of(16))
    assert mask.shape == (16, 16)
    assert bool(mask.diagonal().all()) or text == "global(2)"
    assert ("causal" in text) == (not bool(mask.triu(1).any()))


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_command_draws_all(tmp_path: Path, language: str) -> None:
    CliRunner().invoke(app, ["figures", "--out", str(tmp_path), "--language", language], catch_exceptions=False)
    drawn = {path.name.split(".")[0]: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.svg")}
    assert set(drawn) == set(FIGURES)
    assert ("查询" if language == "zh" else "queries") in drawn["masks"]
    assert "2.00 ± 2.16" in drawn["norms"]  # of the row 0, 1, 5


def test_a_figure_or_a_format_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"did you mean positions\?"):
        draw("positons", tmp_path / "positons.svg")
    with pytest.raises(RegardError, match="cannot be written"):
        draw("norms", tmp_path / "norms.bmpx")
    assert not list(tmp_path.iterdir())
