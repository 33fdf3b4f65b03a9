"""The same of f64."""

from __future__ import annotations

import numpy as np
from functions import functions

WORK = functions(np.float64)
