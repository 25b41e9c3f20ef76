"""Published silent failures of attention libraries, each as a check that any library can be put to.

A case (`case.py`) names its public sources and poses problems (`problem.py`) to a library (`interface.py`), whose results
are compared with double precision (`exact.py`). The other modules hold the cases, by kind. test_gauntlet.py puts
jit-attention to all of them, bench/gauntlet.py the peers, too.
"""
