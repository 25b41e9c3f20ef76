"""The parts of bench/compare.py and bench/accuracy.py: jit-attention beside other attention kernels, in one process.

    suites      the problems and their useful work         reference   fp32 attention and the rule for "correct"
    inputs      random tensors of a problem                timing      samples of several kernels, interleaved
    contenders  what is compared, all of one shape         measure     the way of one cell: prepare, check, time
    records     JSON lines and statistics                  report      ratios and tables;  chart: pictures
    accuracy    errors against fp64

Each contender is a `contender.Contender`: ours, torch_peers, package_peers. PyTorch is imported when it is
called for, so that lists, tables and charts do without it.
"""
