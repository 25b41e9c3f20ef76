"""The parts of bench/compare.py and bench/accuracy.py: jit-attention beside other attention kernels, in one process.

    cells       dense problems and their useful work       serving     batches of requests, and theirs
    suites      rows of cells;  serving_suites: of those   reference   fp32 attention and the rule for "correct"
    inputs      random tensors;  serving_inputs: of those  timing      samples of several kernels, interleaved
    contenders  what is compared, all of one shape         measure     the way of one problem: prepare, check, time
    records     JSON lines and statistics                  report      ratios and tables;  chart: pictures
    accuracy    errors against fp64                        backward    inputs of gradients, and their reference
    engine_suites: rows of vLLM's benchmark
    grid, backward_suites: rows of training                by_autograd gradients of what torch differentiates
    sparse_suites: rows of sparse masks                    ours_sparse these as texts and block masks of ours
    fp8_suites: rows of fp8                                fp8_peers   cuDNN's graphs of fp8, SageAttention

Each contender is a `contender.Contender`: ours, torch_peers, flash_attention_peers, flashinfer_peers, whose blocks are
in flashinfer_sparse, and fp8_peers. PyTorch is imported when it is called for, so that lists, tables and charts do without it. A
problem is a `Cell` or `Requests`; both have name, unit, speed, flops, bytes, floor_us and output_shape, all that
records, report and chart ask for.
"""
