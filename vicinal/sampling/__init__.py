"""Which items form a batch: pure functions that draw a whole pass, and one class that knows where it is.

A pass is drawn from (seed, number of the pass) alone, so a sampler resumes from two integers, and under
DDP every rank draws the same batches and takes its own slice of each.
"""

from collections.abc import Callable

from vicinal.sampling.class_sampler import class_batches, class_sampler, hard_class_sampler
from vicinal.sampling.composition import composition, compositions
from vicinal.sampling.fitting_batches import batch_that_fits
from vicinal.sampling.nearest_classes import nearest_class_order
from vicinal.sampling.random_sampler import random_batches, random_sampler
from vicinal.sampling.sampler import Sampler

__all__ = [
    "SAMPLERS",
    "Sampler",
    "batch_that_fits",
    "class_batches",
    "class_sampler",
    "composition",
    "compositions",
    "hard_class_sampler",
    "nearest_class_order",
    "random_batches",
    "random_sampler",
]

SAMPLERS: dict[str, Callable[..., Sampler]] = {
    "random": random_sampler,
    "classes": class_sampler,
    "hard-classes": hard_class_sampler,
}
