"""Tests that a run takes trials from the feed and stores its state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import state as states
import torch
from job import BASE, copy_tasks
from rollouts import discounted, take


class Feed:
    """Simulates a client whose feed gives these answers in turn. `None` simulates a service that is down."""

    def __init__(self, answers: list[list[dict[str, Any]] | None]) -> None:
        self.answers = answers
        self.asked: list[str | None] = []

    def rollouts(self, *, after: str | None, **_: Any) -> Iterator[dict[str, Any]]:
        self.asked.append(after)
        answer = self.answers.pop(0) if self.answers else []
        if answer is None:
            raise httpx.ConnectError("refused")
        yield from answer


def line(cursor: int, remaining: int, **more: Any) -> dict[str, Any]:
    return {"cursor": str(cursor), "trial_id": f"t{cursor}", "group_id": "g", "group_remaining": remaining, "rows": [], **more}


def waiting() -> bool:
    return False


def test_no_more_is_taken_than_was_asked_for() -> None:
    feed = Feed([[line(1, 1), line(2, 0), line(3, 1), line(4, 0)]])
    taken = take(feed, None, 1, waiting)  # type: ignore[arg-type]
    assert taken.cursor == "2" and [one["trial_id"] for one in taken.trials] == ["t1", "t2"]


def test_a_group_that_comes_in_two_answers_is_one() -> None:
    feed = Feed([[line(1, 1)], [], [line(2, 0)]])
    taken = take(feed, "0", 1, waiting)  # type: ignore[arg-type]
    assert feed.asked == ["0", "1", "1"] and taken.groups() == 1 and taken.cursor == "2"


def test_late_trials_are_passed_and_not_trained() -> None:
    feed = Feed([[line(1, 0, late=True), line(2, 0)]])
    taken = take(feed, None, 1, waiting)  # type: ignore[arg-type]
    assert taken.late == ["t1"] and [one["trial_id"] for one in taken.trials] == ["t2"]


def test_fewer_groups_are_taken_where_no_more_will_come() -> None:
    feed = Feed([[line(1, 0)], [], []])
    taken = take(feed, None, 3, lambda: True)  # type: ignore[arg-type]
    assert taken.groups() == 1 and taken.cursor == "1" and feed.asked == [None, "1", "1"]


def test_what_was_closed_while_it_was_asked_for_the_last_time_is_taken() -> None:
    feed = Feed([[line(1, 0)], [], [line(2, 0)], [], []])
    taken = take(feed, None, 3, lambda: True)  # type: ignore[arg-type]
    assert taken.groups() == 2 and taken.cursor == "2"


def test_a_service_that_is_down_is_looked_after_and_what_it_kept_is_taken() -> None:
    """Regression: the run retried the dead service forever."""
    looked: list[int] = []

    def look() -> bool:
        looked.append(len(feed.asked))
        return True

    feed = Feed([[line(1, 0)], None, None, [line(2, 0)], [], []])
    taken = take(feed, None, 3, look)  # type: ignore[arg-type]
    assert taken.groups() == 2 and looked == [2, 3, 5] and feed.asked == [None, "1", "1", "1", "2", "2"]


def test_a_reward_is_worth_less_with_each_turn_of_its_trial() -> None:
    def row(trial: str, calls: list[str], reward: float | None) -> Any:
        return {"trial_id": trial, "reward": reward, "calls": [{"call_id": one} for one in calls]}

    # Two branches that share a call form one trial of three turns.
    rows = [row("a", ["1", "2"], 1.0), row("a", ["1", "3"], 1.0), row("b", ["4"], 1.0), row("c", ["5"], None)]
    assert [one["reward"] for one in discounted(rows, 0.5)] == [0.125, 0.125, 0.5, None]


def test_each_group_has_a_task_of_its_own_name(tmp_path: Path) -> None:
    assert copy_tasks(tmp_path, "other:image", ["web"], 2) == ["web-1", "web-2"]
    names = [(tmp_path / one / "task.toml").read_text().split('name = "')[1].split('"')[0] for one in ("web-1", "web-2")]
    assert names == ["rolltap/learn-web-1", "rolltap/learn-web-2"]
    dockerfile = (tmp_path / "web-1" / "environment" / "Dockerfile").read_text()
    assert "FROM other:image\n" in dockerfile and BASE not in dockerfile
    # Existing copies are not replaced: a resumed run uses the same tasks.
    copy_tasks(tmp_path, "another:image", ["web"], 2)
    assert (tmp_path / "web-1" / "environment" / "Dockerfile").read_text() == dockerfile


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "state.pt"
    assert states.read(file) is None
    weights = {"a": torch.arange(3.0)}
    written = states.State(2, {"state": {}}, "17", ["x"], {"y": "late"}, [{"step": 0.0}], {1: weights, 2: weights})
    written.write(file)
    # An incomplete new file is ignored.
    (tmp_path / "state.new").write_bytes(b"half of")
    read = states.read(file)
    assert read is not None and read.cursor == "17" and read.trained == ["x"] and read.table == [{"step": 0.0}]
    assert torch.equal(read.recent[1]["a"], weights["a"])
