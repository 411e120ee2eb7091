"""The types of submissions: the groups that a trainer asks `rolltap serve` to sample."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, TypedDict, Union
from urllib.parse import quote

PAGE = 1000
"""The number of submissions that one request reads."""

SubmissionState = Literal["queued", "running", "stopping", "done", "cancelled", "expired", "failed"]
"""The state of a submission. `stopping` means that its running trials are being stopped. The last four are its ends."""

TaskPath = Union[str, "os.PathLike[str]"]


class SubmissionRequest(TypedDict, total=False):
    """A request for groups, as it was sent. Members that are absent have the defaults of the service."""

    task: str
    task_path: str
    dataset: str
    agent: str
    samples: int
    sampling: dict[str, Any]
    priority: int
    deadline: float
    metadata: dict[str, Any]
    idempotency_key: str


class _GroupCounts(TypedDict):
    group_id: str
    """The name of the group, as in the feed and in rollouts."""
    task_id: str
    samples: int
    """The number of its samples."""
    queued: int
    """The samples that have not begun, or wait for another attempt."""
    running: int
    ended: int
    began_at: str | None
    """When its first sample began. None before."""
    waited_sec: float | None
    """The seconds from the submission to `began_at`. None before."""
    began_at_version: int | None
    """The policy version that was current when its first sample began. None before."""
    closed_at: str | None
    """When the group closed. None before."""


class SubmittedGroup(_GroupCounts, total=False):
    """A group of a submission, with the numbers of its samples."""

    failures: dict[str, int]
    """The samples that ended with a failure that is not the agent's, by cause. Absent if there are none."""
    dropped: Literal["uniform", "too_old", "stopped", "empty"]
    """Why readers of closed groups do not get the group. Absent if they do."""


class _SubmissionFacts(TypedDict):
    id: str
    """The name of the submission. Names sort by the time of submission."""
    state: SubmissionState
    submitted_at: str
    policy_version: int
    """The policy version that was current when it was submitted: rolltap's count, not the label."""
    started_at: str | None
    """When its first sample began. None before."""
    ended_at: str | None
    """When it ended. None before."""
    request: SubmissionRequest
    groups: list[SubmittedGroup]
    """Its groups, in the order of the tasks."""


class Submission(_SubmissionFacts, total=False):
    """A submission and its progress."""

    error: str
    """Why it failed. Absent otherwise."""


def has_ended(submission: Submission) -> bool:
    """Returns whether no further sample of the submission begins or runs."""
    return submission["state"] not in ("queued", "running", "stopping")


def of_submission(submission_id: str, what: str = "") -> str:
    """Returns the path of a submission, or of an action on it."""
    return f"/v1/submissions/{quote(submission_id, safe='')}{what}"


def submission_body(task_path: TaskPath | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the body that submits groups. Omits members that are None: the service has defaults for them."""
    path = None if task_path is None else os.fspath(task_path)
    return {key: value for key, value in {**fields, "task_path": path}.items() if value is not None}
