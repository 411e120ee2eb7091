"""The id under which verifiers finds rolltap's harness: it takes ids as names of modules without a dot."""

from rolltap.trainers.verifiers import RolltapHarness

__all__ = ["RolltapHarness"]
