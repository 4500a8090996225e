"""regard comes first: it settles how OpenMP's threads wait before torch is imported."""

import regard as regard
