"""Gather what many ask at the same time, and do it at once.

Nothing waits while nothing is being done: a single request is worked on immediately. What arrives while others are
worked on is taken together when these are done; and as long as there was company, a few milliseconds are waited for
more of it: clients that have just been answered ask again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

__all__ = ["Gathering"]

Key = TypeVar("Key", bound=Hashable)
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Gathering(Generic[Key, Asked, Answer]):
    """Answers requests in groups, one group after the other.

    Args:
        answer: Answers a group whose requests have one key; an exception is given to all of the group.
        pool: Where it is called.
        most: Requests in a group.
        company: Seconds to wait for others after a group of several.
        tell: Told how many requests each group has.
    """

    def __init__(
        self,
        answer: Callable[[Key, Sequence[Asked]], Sequence[Answer]],
        pool: Executor,
        *,
        most: int = 64,
        company: float = 0.002,
        tell: Callable[[int], object] = int,
    ) -> None:
        self._answer, self._pool, self._most, self._company, self._tell = answer, pool, most, company, tell
        self._waiting: list[tuple[Key, Asked, asyncio.Future[Answer]]] = []
        self._working: asyncio.Task[None] | None = None

    async def ask(self, key: Key, asked: Asked) -> Answer:
        """Ask for something; what has the same key may be answered together."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((key, asked, future))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        many = 1
        while self._waiting:
            if many > 1 and len(self._waiting) < min(many, self._most):
                await asyncio.sleep(self._company)
            # Who has gone away, or was sent away because it took too long, is not worked for.
            self._waiting = [entry for entry in self._waiting if not entry[2].done()]
            if not self._waiting:
                return
            key = self._waiting[0][0]
            group = [entry for entry in self._waiting if entry[0] == key][: self._most]
            taken = {id(entry) for entry in group}
            self._waiting = [entry for entry in self._waiting if id(entry) not in taken]
            many = len(group)
            self._tell(many)
            try:
                answers = await loop.run_in_executor(self._pool, self._answer, key, [asked for _, asked, _ in group])
                for (_, _, future), answer in zip(group, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)
            except Exception as error:
                for _, _, future in group:
                    if not future.done():
                        future.set_exception(error)
