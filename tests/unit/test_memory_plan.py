"""What lives in planned memory when it holds most."""

from __future__ import annotations

from model_profiling.program.memory_plan import most_alive


def test_values_live_from_their_writer_to_their_last_reader() -> None:
    # 0 is an input; 1 = f(0), 2 = g(1), 3 = h(1, 2), 4 = i(3)
    steps = [((0,), (1,)), ((1,), (2,)), ((1, 2), (3,)), ((3,), (4,))]
    assert most_alive(steps, {0: 5, 1: 10, 2: 20, 3: 1, 4: 2}, (4,)) == (31, [2, 1, 3])
    assert most_alive(steps, {0: 100, 1: 10, 2: 20, 3: 1, 4: 2}, (4,)) == (110, [0, 1])
    # An early output is kept to the end.
    assert most_alive(steps, {1: 10, 2: 1, 3: 1, 4: 5}, (1, 4)) == (16, [1, 4, 3])
    assert most_alive([], {}, ()) == (0, [])
