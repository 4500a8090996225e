"""Caches of keys and values between decoding steps, recurrent states, and the memory of a segment. They know no model."""

from regard.nn.cache.bounded import BoundedKVCache, SlotRing
from regard.nn.cache.kv_cache import CachePositions, CrossKVCache, KVCache, SegmentMemory, StateTensors

__all__ = ["BoundedKVCache", "CachePositions", "CrossKVCache", "KVCache", "SegmentMemory", "SlotRing", "StateTensors"]
