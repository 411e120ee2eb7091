"""Lets verifiers find the taskset of Harbor tasks and the terminal harness, by the id `rolltap_terminal`.

An id of verifiers is the name of a module without a dot.
"""

from rolltap.trainers.verifiers_terminal import HarborTaskset, TerminalHarness

__all__ = ["HarborTaskset", "TerminalHarness"]
