"""The index: items, their embeddings and the embedder, in a folder or in a database, searched exactly."""

from vicinal.index._classify import Naming, classify
from vicinal.index.client import RemoteIndex, connect
from vicinal.index.hits import Changes, Hit, Hits
from vicinal.index.index import Index
from vicinal.index.item import Header, Item
from vicinal.index.stores.store import Answer, Store

__all__ = [
    "Answer",
    "Changes",
    "Header",
    "Hit",
    "Hits",
    "Index",
    "Item",
    "Naming",
    "RemoteIndex",
    "Store",
    "classify",
    "connect",
]
