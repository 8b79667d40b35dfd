"""A process in which one peer answers: the number of the peer, its folder and its model come on the
command line.

It says when it is ready, then answers each task of stdin by one line. Times are taken here, around
the search alone.
"""

import json
import sys
import time
from pathlib import Path

from lookup.peers import PEERS


def main() -> None:
    number, place, model = sys.argv[1:]
    ask = PEERS[int(number)].open(Path(place), Path(model) if model else None)
    ask("a first task")
    print("ready", flush=True)
    for line in sys.stdin:
        started = time.perf_counter()
        ranked = ask(json.loads(line))
        print(json.dumps({"ranked": ranked, "seconds": time.perf_counter() - started}), flush=True)


if __name__ == "__main__":
    main()
