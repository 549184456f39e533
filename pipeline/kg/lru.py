"""A bounded mapping that drops the least recently used value."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class Lru(Generic[K, V]):
    """A cache of at most `size` values."""

    def __init__(self, size: int) -> None:
        """Create an empty cache."""
        self._size = size
        self._items: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K, default: D | None = None) -> V | D | None:
        """Return the value of `key` and mark it as the most recently used; `default` if there is no value."""
        if key not in self._items:
            return default
        self._items.move_to_end(key)
        return self._items[key]

    def put(self, key: K, value: V) -> None:
        """Store a value. If the cache is full, drop the least recently used one."""
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > self._size:
            self._items.popitem(last=False)
