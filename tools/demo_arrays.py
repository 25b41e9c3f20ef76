"""Arrays for tools/demo, without numpy: `write FOLDER` creates q, k and v; `check FOLDER` compares o and lse with
causal attention with softcap 20 in double precision."""
import array
import math
import random
import struct
import sys

QUERIES, KEYS, HEADS_Q, HEADS_KV, HEAD_DIM = 100, 160, 4, 2, 64
SOFTCAP = 20.0


def write_npy(path, shape, values):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write(struct.pack(f"<{len(values)}f", *values))


def read_npy(path):
    with open(path, "rb") as file:
        data = file.read()
    start = 10 + struct.unpack_from("<H", data, 8)[0]
    return array.array("f", data[start:])


def to_bf16(value):
    """Rounds to a bf16 value, so that the kernel gets exactly the reference's inputs."""
    return struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", value))[0] & 0xFFFF0000))[0]


def write(folder):
    generator = random.Random(2024)
    for name, length, heads in ("q", QUERIES, HEADS_Q), ("k", KEYS, HEADS_KV), ("v", KEYS, HEADS_KV):
        values = [to_bf16(generator.gauss(0, 1)) for _ in range(length * heads * HEAD_DIM)]
        write_npy(f"{folder}/{name}.npy", (1, length, heads, HEAD_DIM), values)


def row(values, heads, position, head):
    start = (position * heads + head) * HEAD_DIM
    return values[start:start + HEAD_DIM]


def attend(q, k, v, query, head):
    """One row of the output and its log-sum-exp."""
    q_row = row(q, HEADS_Q, query, head)
    kv_head = head // (HEADS_Q // HEADS_KV)
    scores = []
    for key in range(query + KEYS - QUERIES + 1):  # causal, the last query at the last key
        dot = sum(a * b for a, b in zip(q_row, row(k, HEADS_KV, key, kv_head)))
        scores.append(SOFTCAP * math.tanh(dot / math.sqrt(HEAD_DIM) / SOFTCAP))
    lse = math.log(sum(map(math.exp, scores)))
    output = [0.0] * HEAD_DIM
    for key, score in enumerate(scores):
        weight = math.exp(score - lse)
        output = [sum_ + weight * value for sum_, value in zip(output, row(v, HEADS_KV, key, kv_head))]
    return output, lse


def check(folder):
    q, k, v, o, lse = (read_npy(f"{folder}/{name}.npy") for name in ("q", "k", "v", "o", "lse"))
    # Weights and result are rounded to bf16, with a relative error of at most 2^-9 each.
    o_bound = 2**-8 * max(map(abs, v))
    lse_bound = 1e-3
    o_error = lse_error = 0.0
    for query in range(QUERIES):
        for head in range(HEADS_Q):
            exact, exact_lse = attend(q, k, v, query, head)
            errors = [abs(a - b) for a, b in zip(exact, row(o, HEADS_Q, query, head))]
            # max() would ignore a NaN.
            o_error = max(o_error, *(error if error == error else math.inf for error in errors))
            error = abs(exact_lse - lse[head * QUERIES + query])
            lse_error = max(lse_error, error if error == error else math.inf)
    passed = o_error <= o_bound and lse_error <= lse_bound
    print(f"demo: largest error against double precision: o {o_error:.2e} (at most {o_bound:.2e}), "
          f"lse {lse_error:.2e} (at most {lse_bound:.0e}): {'correct' if passed else 'WRONG'}")
    return 0 if passed else 1


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("write", "check"):
        sys.exit(__doc__)
    sys.exit({"write": write, "check": check}[sys.argv[1]](sys.argv[2]))
