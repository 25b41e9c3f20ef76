"""Kernels of many problems, compiled at once, so that measuring does not wait for one after another."""

import concurrent.futures


def call_at_once(calls):
    """Calls all, each in a thread. What fails here fails again, and is told, when it is measured."""
    def one(call):
        try:
            call()
        except Exception:
            pass

    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(one, calls))
