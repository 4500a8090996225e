import pytest

from regard.training.schedule import Constant, Cosine, Linear, Noam


def test_noam_is_the_papers_formula() -> None:
    """lr = d^-0.5 · min(step^-0.5, step · warmup^-1.5), eq. 3."""
    for step in (1, 100, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert Noam().rate(step, 512, 100_000) == pytest.approx(expected, rel=1e-12)
    assert Noam(warmup=2000, peak=5e-3).rate(2000, 128, 8000) == 5e-3
    assert Noam(warmup=2000, peak=5e-3).rate(8000, 128, 8000) == 2.5e-3


def test_falling_schedules_at_their_corners() -> None:
    for kind in (Cosine, Linear):
        schedule = kind(peak=1.0, warmup=10, final=0.1)
        assert [schedule.rate(s, 1, 110) for s in (5, 10, 60, 110, 200)] == pytest.approx([0.5, 1.0, 0.55, 0.1, 0.1])
    assert Cosine(peak=1.0, warmup=0).rate(25, 1, 100) == pytest.approx(0.8535533906)
    assert [Constant(peak=2.0, warmup=4).rate(s, 1, 9) for s in (1, 4, 9)] == [0.5, 2.0, 2.0]
