"""Measure `import cvm` beyond `import numpy`: the median of fresh interpreters. It should stay
under 50 ms.
"""

import statistics
import subprocess
import sys

CODE = (
    "import numpy, time; began = time.perf_counter(); import cvm; print(time.perf_counter() - "
    "began)"
)


def main() -> None:
    times = [
        float(subprocess.run([sys.executable, "-c", CODE], capture_output=True, check=True).stdout)
        for _ in range(11)
    ]
    print(
        f"import cvm: {1000 * statistics.median(times):.1f} ms beyond numpy, "
        f"from {1000 * min(times):.1f} to {1000 * max(times):.1f}"
    )


if __name__ == "__main__":
    main()
