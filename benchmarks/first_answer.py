"""When a service answers: `rewrite.ort` on a model that was never compiled, beside ONNX Runtime.

    python -m benchmarks.first_answer resnet50.ts.raw bert_base.ts.raw … --threads 2

Each engine runs in a process of its own, with an empty cache, and gets a request every `--pause` seconds after the last
answer. One row of Markdown per model: seconds from the start of the process to the first answer of both, to the switch,
the time of a request before the switch (median, and mean) as shares of ONNX Runtime's in the same minutes, the same as
shares of requests to the same session while the compilers are frozen, and the time after the switch. The two
engines alternate `--rounds` times; figures are medians over the rounds. Means leave out the slowest twentieth of both,
which is noise of the machine.

A small model's time depends on the pages that its process got, by a tenth and more, and that of a request on all cores
on whatever else runs. So only the same session in the same seconds shows what the compilers cost: they are frozen for
every other window of `WINDOW` seconds, which the time of the switch leaves out.

With `--without-onnxruntime` it cannot be imported: NumPy answers until the switch. It is compared with a session that
waits for the program.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
from rewrite.ort.pace import Pace

from . import models

WINDOW = 0.6
"""Seconds for which compilers work, or are frozen."""
SETTLING = 2
"""Requests at the start of a window that count for neither: what the window before left in the caches."""


class Freezer:
    """Freezes the compilers of a session in every other window. Its paces must be made after it."""

    def __init__(self) -> None:
        self.frozen, self.seconds, self._turned = False, 0.0, time.perf_counter()
        pauses = Pace._wants_stop
        Pace._wants_stop = lambda pace: self.frozen or pauses(pace)  # type: ignore[method-assign, assignment]

    def turn(self, pace: Pace) -> bool:
        """Begin the next window if this one is over; return whether it did."""
        now = time.perf_counter()
        if now - self._turned < WINDOW:
            return False
        self.end(pace)
        self.frozen = not self.frozen
        with pace._lock:
            pace._apply()
        return True

    def request(self, peer: Any, feeds: dict[str, Any]) -> None:
        """Run a request that the pace does not count; only the next one is due a gap later."""
        peer.session.run(None, feeds)
        with peer.pace._lock:
            peer.pace._last = time.perf_counter()
            peer.pace._slot = peer.pace._next_slot(peer.pace._last)

    def end(self, pace: Pace) -> None:
        """End a window; add its time if it was frozen, which does not count for the patience of the pace."""
        now = time.perf_counter()
        if self.frozen:
            self.seconds += now - self._turned
            with pace._lock:
                pace._stops -= now - self._turned
        self._turned = now


def serve(engine: str, name: str, inputs: str, options: argparse.Namespace) -> dict[str, Any]:
    """Answer requests for a while in this process; return the times, in seconds since it was started."""
    begin = float(os.environ["BENCHMARK_BEGIN"])
    ours = engine != "onnxruntime"
    if engine in ("numpy", "waiting"):
        sys.modules["onnxruntime"] = None  # type: ignore[assignment]  # nothing can import it
    if ours:
        import rewrite.ort as runtime
    else:
        import onnxruntime as runtime  # type: ignore[no-redef]

    settings: Any = runtime.SessionOptions()
    settings.intra_op_num_threads = options.threads
    if engine == "waiting":
        settings.add_session_config_entry("rewrite.compile_in_background", "0")
    freezer = Freezer()
    session: Any = runtime.InferenceSession(name, settings, providers=["CPUExecutionProvider"])
    feeds = dict(np.load(inputs))
    first: Any = session._engine if engine == "rewrite" else None
    session.run(None, feeds)
    found: dict[str, Any] = {"first": time.time() - begin, "before": [], "after": [], "alone": []}
    settling = 0
    while time.time() - begin - freezer.seconds < options.seconds:
        compiled = ours and session.program is not None
        if compiled and "switch" not in found:
            found["switch"] = time.time() - begin - freezer.seconds
        if first is not None and not compiled:
            settling = SETTLING if freezer.turn(first.pace) else settling - 1
        start = time.perf_counter()
        if freezer.frozen and not compiled:
            freezer.request(first, feeds)
        else:
            session.run(None, feeds)
        taken = time.perf_counter() - start
        if compiled:
            found["after"].append(taken)
        elif settling <= 0 or not freezer.frozen:
            found["alone" if freezer.frozen else "before"].append(taken)
        if len(found["after"]) >= 100:
            break
        time.sleep(options.pause)
    return found


def measure(engine: str, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run `serve` in a process with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        np.savez(f"{cache}/inputs.npz", **dict[str, Any](models.inputs(name)))
        command = [sys.executable, "-m", "rewrite.benchmarks.first_answer", str(models.path(name)), "--serve", engine]
        command += ["--inputs", f"{cache}/inputs.npz"]
        command += ["--threads", str(options.threads), "--pause", str(options.pause)]
        seconds = options.peer_seconds if engine == "onnxruntime" else options.seconds
        command += ["--seconds", str(seconds)]
        environment = {**os.environ, "XDG_CACHE_HOME": cache, "BENCHMARK_BEGIN": str(time.time())}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def row(name: str, options: argparse.Namespace) -> str:
    """The row of a model."""
    models.path(name)  # made before the clock runs
    pairs = [(measure("rewrite", name, options), measure("onnxruntime", name, options)) for _ in range(options.rounds)]
    ours, theirs = zip(*pairs, strict=True)

    def middle(values: Any) -> float:
        return statistics.median(values)

    peer = middle(middle(t["before"]) for t in theirs)
    switches = [t["switch"] for t in ours if "switch" in t]
    before = middle(middle(t["before"] or [peer]) for t in ours) / peer
    mean = middle(trimmed(t["before"]) for t in ours if t["before"]) / middle(trimmed(t["before"]) for t in theirs)
    own = [middle(ratio(t) for t in ours if t["before"]) for ratio in (of_medians, of_means)]
    after = middle(middle(t["after"]) for t in ours if t["after"]) / peer if switches else float("nan")
    return (
        f"| {name} | {middle(t['first'] for t in theirs):.2f} | {middle(t['first'] for t in ours):.2f} | "
        f"{middle(switches) if switches else float('nan'):.1f} | {before:.2f} | {mean:.2f} | "
        f"{own[0]:.2f} | {own[1]:.2f} | {after:.2f} |"
    )


def of_medians(found: dict[str, Any]) -> float:
    """The median time of a request before the switch, as a share of the same session's with frozen compilers."""
    return statistics.median(found["before"]) / statistics.median(found["alone"])


def of_means(found: dict[str, Any]) -> float:
    """The same of means."""
    return trimmed(found["before"]) / trimmed(found["alone"])


def trimmed(times: list[float]) -> float:
    """The mean without the slowest twentieth."""
    return statistics.fmean(sorted(times)[: max(1, len(times) * 19 // 20)])


def row_without(name: str, options: argparse.Namespace) -> str:
    """The row of a model where ONNX Runtime cannot be imported."""
    models.path(name)
    pairs = [(measure("numpy", name, options), measure("waiting", name, options)) for _ in range(options.rounds)]
    first, waiting = (statistics.median(found["first"] for found in side) for side in zip(*pairs, strict=True))
    switch = statistics.median(found.get("switch", float("nan")) for found, _ in pairs)
    ratio = statistics.median(statistics.median(n["before"]) / statistics.median(w["after"]) for n, w in pairs)
    return f"| {name} | {waiting:.2f} | {first:.2f} | {switch:.1f} | {ratio:.1f} |"


def main() -> None:
    """Measure models, or serve one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pause", type=float, default=0.05)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--peer-seconds", type=float, default=6.0)
    parser.add_argument("--inputs")
    parser.add_argument("--serve", choices=("rewrite", "onnxruntime", "numpy", "waiting"))
    parser.add_argument("--without-onnxruntime", action="store_true", help="measure where it cannot be imported")
    options = parser.parse_args()
    if options.serve:
        [name] = options.names
        print(json.dumps(serve(options.serve, name, options.inputs, options)))
        return
    if options.without_onnxruntime:
        print("| model | first answer, s: waiting | NumPy | switch, s | a request before it / after it |")
        print("|---|---:|---:|---:|---:|")
        for name in options.names:
            print(row_without(name, options), flush=True)
        return
    heads = "first answer, s: ONNX Runtime | ours | switch, s | request before: median | mean | of its session: median"
    print(f"| model | {heads} | mean | after |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name in options.names:
        print(row(name, options), flush=True)


if __name__ == "__main__":
    main()
