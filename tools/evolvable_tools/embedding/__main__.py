"""Start the process that embeds for one library.

`python -m evolvable_tools.embedding HOME SPEC [IDLE_SECONDS] [--give-way]`; with --give-way only
where none serves.
"""

import ctypes
import os
import sys
from pathlib import Path

_M_ARENA_MAX = -8  # of glibc's malloc.h


def _save_memory() -> None:
    """Limit the threads of this process and their heaps, before it loads anything else."""
    # A product of some megabytes gains nothing from several threads, and those of OpenBLAS burn
    # time waiting for each other on a busy machine. Those of the tokenizer would each keep a heap.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # glibc gives each thread a heap, up to eight for each core, and what a thread has freed stays
    # there.
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(_M_ARENA_MAX, 2)


if __name__ == "__main__":
    _save_memory()
    # After the limits are set.
    from evolvable_tools.embedding.vector_service import IDLE_SECONDS, serve_vectors

    home, spec, *idle = (word for word in sys.argv[1:] if word != "--give-way")
    seconds = float(idle[0]) if idle else IDLE_SECONDS
    gives_way = "--give-way" in sys.argv
    sys.exit(serve_vectors(Path(home), spec, idle=seconds, give_way=gives_way))
