"""The budget goes where the whole model should gain most."""

from __future__ import annotations

from rewrite.tuning.budget import Arm, next_arm


def run(arms: list[Arm], gains: list[float], turns: int, seconds: float = 1.0) -> list[int]:
    """Give turns to arms; each batch of an arm makes its kernel faster by its factor. Return the turns of each."""
    counts = [0] * len(arms)
    for _ in range(turns):
        at = next_arm(arms, range(len(arms)))
        counts[at] += 1
        arms[at].ran(arms[at].best * gains[at], seconds)
    return counts


def test_large_kernels_come_first() -> None:
    assert next_arm([Arm(0.1), Arm(0.6), Arm(0.3)], range(3)) == 1
    assert next_arm([Arm(0.1), Arm(0.6), Arm(0.3)], [0, 2]) == 2


def test_every_kernel_has_its_turn() -> None:
    assert min(run([Arm(0.8), Arm(0.15), Arm(0.05)], [1.0, 1.0, 1.0], 30)) >= 1


def test_kernels_that_gain_get_more() -> None:
    counts = run([Arm(0.5, "a"), Arm(0.5, "b")], [1.0, 0.93], 20)
    assert counts[1] > 2 * counts[0]


def test_slow_measurements_count_against_a_kernel() -> None:
    slow, quick = Arm(0.5, "a"), Arm(0.5, "b")
    slow.ran(1.0, 9.0)
    quick.ran(1.0, 1.0)
    assert next_arm([slow, quick], range(2)) == 1


def test_similar_kernels_that_gained_raise_hopes() -> None:
    arms = [Arm(0.3, "gemm"), Arm(0.3, "conv"), Arm(0.4, "gemm")]
    for arm in arms:
        for _ in range(4):
            arm.ran(1.0, 1.0)
    arms[2].best = 0.6
    assert next_arm(arms, [0, 1]) == 0
