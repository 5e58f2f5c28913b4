"""Inputs from seeds, by splitmix64."""

import math

import numpy as np
import torch

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


def splitmix64(seed, count):
    """The first `count` outputs."""
    z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(seed, *shape, low=-1.0, high=1.0):
    """Uniform in [low, high), from the upper 53 bits."""
    bits = splitmix64(seed, math.prod(shape)) >> np.uint64(11)
    return low + (high - low) * torch.from_numpy(bits.astype(np.float64) / 2.0**53).reshape(shape)


def whole(seed, count, below):
    """Whole numbers from 0 to below - 1."""
    return torch.from_numpy((splitmix64(seed, count) % np.uint64(below)).astype(np.int64))
