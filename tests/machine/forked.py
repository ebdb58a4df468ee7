"""A child of a process in which other threads run the machine runs it too. `python forked.py` ends, with
status 0.
"""

from __future__ import annotations

import os
import threading

import numpy as np

from snippets import run_body

BODY = """
    setp.lt.u32 %p1, %t, 7; @%p1 bra L; add.u32 %r2, %t, 1;
    L: shfl.sync.up.b32 %r1, %t, 1, 0, -1; bar.sync 0;
    mad.wide.u32 %rd1, %t, 4, %out; @%p1 st.global.u32 [%rd1], %r1;
"""
CHILDREN = 20


def work() -> None:
    out = np.zeros(64, "u4")
    run_body(BODY, np.zeros(1, "u4"), out, grid=4, threads=64)
    assert (out[1:7] == np.arange(6)).all()


def main() -> None:
    work()
    stop = threading.Event()

    def go_on() -> None:
        while not stop.is_set():
            work()

    threads = [threading.Thread(target=go_on, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(CHILDREN):
        child = os.fork()
        if child == 0:
            try:
                work()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    stop.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
