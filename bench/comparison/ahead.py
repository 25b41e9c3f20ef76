"""Concurrent compilation of many problems' kernels, so that measuring does not wait for each."""

import concurrent.futures


def call_at_once(calls):
    """Runs all calls, each in a thread. Failures recur, and are reported, when they are measured."""
    def one(call):
        try:
            call()
        except Exception:
            pass

    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(one, calls))
