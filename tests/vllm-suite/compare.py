"""Compares how vLLM's tests ended against vLLM and through rolltap with the expected differences.

The end of a test is `passed`, `skipped`, or the name of the exception and the line of the test's
file: `BadRequestError at line 190`. Two failures at different places are a difference too.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

BOTH_WAYS = " / "
# Matches any end against vLLM itself, for a test whose end there depends on the load of the machine.
ANY = "any"


@dataclass
class Ends:
    """Has the end of each test of a run, and the messages of the failures, by the id of the test."""

    outcomes: dict[str, str]
    messages: dict[str, str]


def expected_differences(file: Path) -> dict[str, str]:
    """Reads the expected ends, `DIRECT / PROXIED`, by the id of the test.

    Exits if a test is listed twice, or if a difference lacks `what`, `why` or `see`.
    """
    expected: dict[str, str] = {}
    for difference in tomllib.loads(file.read_text()).get("differences", []):
        for key in ("what", "why", "see"):
            if not difference.get(key):
                raise SystemExit(f"{file}: a difference has no `{key}`")
        for test, ends in difference["tests"].items():
            if test in expected:
                raise SystemExit(f"{file}: {test} is listed twice")
            expected[test] = ends
    return expected


@dataclass
class Comparison:
    """Has the tests of one group, each with both its ends in the last attempt."""

    files: list[str]
    expected: dict[str, str]
    ends: dict[str, tuple[str, str]] = field(default_factory=dict)
    messages: dict[str, tuple[str, str]] = field(default_factory=dict)
    unsteady: set[str] = field(default_factory=set)
    """Tests that ended as expected only in a later attempt."""

    def add(self, direct: Ends, proxied: Ends) -> None:
        before = self.surprises()
        for test in direct.outcomes.keys() | proxied.outcomes.keys():
            self.ends[test] = (
                direct.outcomes.get(test, "not run"),
                proxied.outcomes.get(test, "not run"),
            )
            self.messages[test] = (
                direct.messages.get(test, ""),
                proxied.messages.get(test, ""),
            )
        if self.ends.keys() & before:
            self.unsteady |= set(before) - set(self.surprises())

    def surprises(self) -> list[str]:
        """Returns the tests with unexpected ends.

        The two ends must be equal, or exactly the listed difference if there is one.
        """
        return sorted(test for test in self.ends if not self.is_as_expected(test))

    def is_as_expected(self, test: str) -> bool:
        direct, proxied = self.ends[test]
        if test in self.expected:
            ends = (direct + BOTH_WAYS + proxied, ANY + BOTH_WAYS + proxied)
            return direct != proxied and self.expected[test] in ends
        return direct == proxied

    def missing(self) -> list[str]:
        """Returns the tests with an expected difference that did not run."""
        return sorted(self.expected.keys() - self.ends.keys())

    def holds(self) -> bool:
        return not self.surprises() and not self.missing()


def show_surprises(comparison: Comparison) -> None:
    for test in comparison.surprises():
        show_surprise(comparison, test)
    for test in comparison.missing():
        print(f"{test}\n    is in expected-differences.toml, and there is no such test\n")


def show_surprise(comparison: Comparison, test: str) -> None:
    """Prints the ends of a test as a line of expected-differences.toml, and the messages of its failures."""
    ends = comparison.ends[test]
    print(f'"{test}" = "{BOTH_WAYS.join(ends)}"')
    if test in comparison.expected:
        print(f"    expected: {comparison.expected[test]}")
    for side, message in zip(("direct", "proxied"), comparison.messages[test], strict=True):
        for line in message.splitlines()[:8]:
            print(f"    {side}: {line}")
    print()


def show_table(comparisons: list[Comparison]) -> None:
    columns = ("both pass", "both fail", "skipped", "expected", "unexpected", "unsteady")
    rows = []
    for comparison in comparisons:
        for file in comparison.files:
            rows.append((file, counts_of(comparison, file)))
    rows.append(("all", [sum(numbers) for numbers in zip(*(row for _, row in rows), strict=True)]))
    width = max(len(name) for name, _ in rows)
    print(f"{'differences:':>{width + 49}}")
    print(" " * width + "".join(f"{column:>12}" for column in columns))
    for name, numbers in rows:
        print(f"{name:{width}}" + "".join(f"{number:12}" for number in numbers))


def counts_of(comparison: Comparison, file: str) -> list[int]:
    numbers = [0] * 6
    for test, (direct, proxied) in comparison.ends.items():
        if test.split("::")[0] != file:
            continue
        if not comparison.is_as_expected(test):
            numbers[4] += 1
        elif direct != proxied:
            numbers[3] += 1
        elif direct == "passed":
            numbers[0] += 1
        elif direct == "skipped":
            numbers[2] += 1
        else:
            numbers[1] += 1
        numbers[5] += test in comparison.unsteady
    return numbers
