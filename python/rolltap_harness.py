"""Lets verifiers find the harness by the id `rolltap_harness`: an id is the name of a module without a dot."""

from rolltap.trainers.verifiers import RolltapHarness

__all__ = ["RolltapHarness"]
