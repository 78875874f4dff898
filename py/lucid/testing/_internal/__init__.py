"""Names of PyTorch's tests that packages take."""

from lucid.testing._internal import composite_compliance as composite_compliance
