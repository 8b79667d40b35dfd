#!/usr/bin/env python3
"""Runs one command many times and says how often it fails: for a test that fails only sometimes.

Usage: repeat.py [-n RUNS] [--timeout SECONDS] [--stop] [--save FILE] -- COMMAND [ARGUMENT ...]

A run fails when the command's exit status is not 0 or it takes longer than --timeout (it is then killed, with its
children). The output of the first failure goes to --save. Python 3.9 or newer, nothing to install.
Exit status: 0 every run passed, 1 some failed, 2 wrong usage.
"""

import argparse
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter


def run(command, timeout):
    """Returns (reason it failed or '', its output, seconds)."""
    started = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        output, _ = process.communicate(timeout=timeout)
        reason = f"exit {process.returncode}" if process.returncode else ""
    except subprocess.TimeoutExpired:
        stop(process)
        output, reason = process.communicate()[0], f"longer than {timeout:g} s"
    except BaseException:
        stop(process)
        raise
    return reason, output, time.monotonic() - started


def stop(process):
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def summary(runs, reasons, times):
    """Returns the lines that say what came of the runs."""
    failed = sum(reasons.values())
    count = f"{runs} run{'' if runs == 1 else 's'}"
    lines = [f"{count}: {runs - failed} passed, {failed} failed ({100 * failed / runs:.0f}%)"]
    lines += [f"  {reason}: {count}" for reason, count in reasons.most_common()]
    times = sorted(times)
    lines.append(
        f"seconds: shortest {times[0]:.2f}, middle {times[len(times) // 2]:.2f}, longest {times[-1]:.2f}"
    )
    if 0 < failed < runs:
        # So many passes in a row come by chance in less than 1 case of 20.
        passes = math.ceil(math.log(0.05) / math.log(1 - failed / runs))
        lines.append(
            f"to prove a fix at this rate, see {passes} passes in a row (19 times out of 20)"
        )
    elif not failed:
        lines.append(
            f"a test that fails 1 time in {max(1, round(runs / 3))} or more often would probably have failed"
        )
    return lines


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", type=int, default=30, metavar="RUNS", help="how often (default: 30)")
    parser.add_argument(
        "--timeout", type=float, default=300, metavar="SECONDS", help="for one run (default: 300)"
    )
    parser.add_argument("--stop", action="store_true", help="stop at the first failure")
    parser.add_argument("--save", metavar="FILE", help="where the first failure's output goes")
    parser.add_argument("command", nargs="+", metavar="COMMAND")
    args = parser.parse_args()
    if args.n < 1:
        parser.error("-n wants 1 or more")
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # so that "| head" ends it quietly
    reasons, times = Counter(), []
    for _ in range(args.n):
        try:
            reason, output, seconds = run(args.command, args.timeout)
        except OSError as error:
            parser.error(f"cannot run {args.command[0]}: {error.strerror}")
        times.append(seconds)
        if reason:
            if args.save and not reasons:
                with open(args.save, "wb") as file:
                    file.write(output)
            reasons[reason] += 1
            if args.stop:
                break
    print("\n".join(summary(len(times), reasons, times)))
    if reasons and args.save:
        print(f"output of the first failure: {args.save}")
    return int(bool(reasons))


if __name__ == "__main__":
    sys.exit(main())
