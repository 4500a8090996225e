import pytest

from regard.training.schedule import (
    ConstantSchedule,
    CosineSchedule,
    LinearSchedule,
    NoamSchedule,
    SlantedTriangleSchedule,
)


def test_noam_is_the_papers_formula() -> None:
    """lr = d^-0.5 · min(step^-0.5, step · warmup^-1.5), eq. 3."""
    for step in (1, 100, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert NoamSchedule().rate(step, 512, 100_000) == pytest.approx(expected, rel=1e-12)
    assert NoamSchedule(warmup=2000, peak=5e-3).rate(2000, 128, 8000) == 5e-3
    assert NoamSchedule(warmup=2000, peak=5e-3).rate(8000, 128, 8000) == 2.5e-3


def test_falling_schedules_at_their_corners() -> None:
    for kind in (CosineSchedule, LinearSchedule):
        schedule = kind(peak=1.0, warmup=10, final=0.1)
        assert [schedule.rate(s, 1, 110) for s in (5, 10, 60, 110, 200)] == pytest.approx([0.5, 1.0, 0.55, 0.1, 0.1])
    assert CosineSchedule(peak=1.0, warmup=0).rate(25, 1, 100) == pytest.approx(0.8535533906)
    assert [ConstantSchedule(peak=2.0, warmup=4).rate(s, 1, 9) for s in (1, 4, 9)] == [0.5, 2.0, 2.0]


def test_slanted_triangle_by_hand() -> None:
    """Howard 2018, eq. 3: T = 200, cut = 20; the lowest rate is peak / ratio."""
    schedule = SlantedTriangleSchedule(peak=0.01, cut_frac=0.1, ratio=32)
    wanted = {10: 0.01 * 16.5 / 32, 20: 0.01, 110: 0.01 * 16.5 / 32, 200: 0.01 / 32}
    assert {step: schedule.rate(step, 1, 200) for step in wanted} == pytest.approx(wanted)
    assert schedule.rate(1, 1, 5) == pytest.approx(0.01)  # no room to rise in
    assert schedule.rate(205, 1, 205) == pytest.approx(0.01 / 32)  # cut = 20: never below the lowest
