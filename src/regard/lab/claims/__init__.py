"""The claims, a file each: `exact`, `screens` on constructed tasks, and screens on the embedded `corpus`."""
