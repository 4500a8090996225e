"""Caches between decoding steps: keys and values, recurrent states, the memory of a segment. They know no model."""

from regard.nn.cache.bounded import BoundedKVCache, SlotRing
from regard.nn.cache.kv_cache import CachePositions, CrossKVCache, KVCache
from regard.nn.cache.segment_memory import SegmentMemory
from regard.nn.cache.state_tensors import StateTensors

__all__ = ["BoundedKVCache", "CachePositions", "CrossKVCache", "KVCache", "SegmentMemory", "SlotRing", "StateTensors"]
