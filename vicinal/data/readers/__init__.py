"""Readers of datasets; each checks its files and counts, and reports all problems together."""

from vicinal.data.readers.arrays import arrays
from vicinal.data.readers.cars import cars196
from vicinal.data.readers.cifar import cifar
from vicinal.data.readers.cub import cub
from vicinal.data.readers.digits import digits
from vicinal.data.readers.folder import folder
from vicinal.data.readers.glyphs import glyphs
from vicinal.data.readers.inshop import inshop
from vicinal.data.readers.mnist import mnist
from vicinal.data.readers.omniglot import omniglot
from vicinal.data.readers.sop import sop
from vicinal.data.readers.table import table

__all__ = [
    "arrays",
    "cars196",
    "cifar",
    "cub",
    "digits",
    "folder",
    "glyphs",
    "inshop",
    "mnist",
    "omniglot",
    "sop",
    "table",
]
