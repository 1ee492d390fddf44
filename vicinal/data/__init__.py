"""Data: readers, splits, transforms and batches.

`load` opens any dataset by name or path; each reader (`cub`, `folder`, `table`, ...) opens one layout.
"""

from vicinal.data._load import READERS, load, recognise
from vicinal.data.dataset import Dataset
from vicinal.data.foreign import as_dataset, is_foreign
from vicinal.data.images import PIXELS, Looks, in_memory, in_memory_once, looks_of, to_tensor
from vicinal.data.loader import ItemBatch, batches
from vicinal.data.lookalikes import Lookalikes, find_leaks, find_lookalikes, leak_note
from vicinal.data.readers import (
    arrays,
    cars196,
    cifar,
    cub,
    digits,
    folder,
    glyphs,
    inshop,
    mnist,
    omniglot,
    sop,
    table,
)
from vicinal.data.sheets import contact_sheet
from vicinal.data.splits import PROTOCOLS, Split, split
from vicinal.data.transforms import (
    PIPELINES,
    TRANSFORMS,
    CentreCrop,
    Fit,
    Pipeline,
    RandomAffine,
    RandomCrop,
    RandomResizedCrop,
    Transform,
    as_transform,
    describe,
    pipeline,
    restore,
)

__all__ = [
    "PIPELINES",
    "PIXELS",
    "PROTOCOLS",
    "READERS",
    "TRANSFORMS",
    "CentreCrop",
    "Dataset",
    "Fit",
    "ItemBatch",
    "Lookalikes",
    "Looks",
    "Pipeline",
    "RandomAffine",
    "RandomCrop",
    "RandomResizedCrop",
    "Split",
    "Transform",
    "arrays",
    "as_dataset",
    "as_transform",
    "batches",
    "cars196",
    "cifar",
    "contact_sheet",
    "cub",
    "describe",
    "digits",
    "find_leaks",
    "find_lookalikes",
    "folder",
    "glyphs",
    "in_memory",
    "in_memory_once",
    "inshop",
    "is_foreign",
    "leak_note",
    "load",
    "looks_of",
    "mnist",
    "omniglot",
    "pipeline",
    "recognise",
    "restore",
    "sop",
    "split",
    "table",
    "to_tensor",
]
