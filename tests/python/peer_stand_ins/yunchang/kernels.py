"""Kinds of kernels."""

import enum


class AttnType(enum.Enum):
    FA = "fa"
