"""Expected values of the op cases, computed with NumPy.

usage: reference.py FAMILY REQUEST ANSWER

REQUEST is a JSON list of cases (name, ref, inputs, dtypes); ANSWER gets one
line for each output: name, dtype, dims, values, separated by tabs. Inputs
follow the formula of spec/support/cases.lua. Floating-point cases are
computed in float64 from inputs that were rounded to the case's dtype.
"""

import importlib.util
import json
import os
import sys

# math.py and random.py here must not hide the modules of those names.
sys.path.append(sys.path.pop(0))

import numpy as np  # noqa: E402

MODULUS = 2147483647


def uniform(k, n, round_):
    i = np.arange(n, dtype=np.int64)
    x = (i * 7919 + k * 104729 + round_ * 1299709 + 12345) % MODULUS
    for _ in range(3):
        x = (x * 16807 + 11) % MODULUS
    return (x + 1) / float(MODULUS + 2)


def raw_values(spec, k):
    n = int(np.prod(spec["dims"], dtype=np.int64))
    kind = spec["kind"]
    if kind == "normal":
        return (uniform(k, n, 0) + uniform(k, n, 1) + uniform(k, n, 2)
                - 1.5) * 2
    if kind == "positive":
        return 0.1 + 2.9 * uniform(k, n, 0)
    if kind == "unit":
        return -0.95 + 1.9 * uniform(k, n, 0)
    if kind == "boolean":
        return uniform(k, n, 0) < 0.5
    return spec["lo"] + np.floor(uniform(k, n, 0) * (spec["hi"] - spec["lo"]))


def bfloat16(x):
    """Round float64 values to the nearest bfloat16, kept as float64."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


def kind_of(dtype):
    return np.dtype("float32" if dtype == "bfloat16" else dtype)


def as_dtype(values, dtype):
    if dtype == "bfloat16":
        return bfloat16(values)
    if dtype in ("float16", "float32"):
        return np.asarray(values, dtype).astype(np.float64)
    return np.asarray(values).astype(dtype)


def inputs_of(case, dtype):
    out = []
    for k, spec in enumerate(case["inputs"]):
        wanted = spec["dtype"] or dtype
        values = raw_values(spec, k)
        if np.issubdtype(kind_of(wanted), np.integer) \
                and spec["kind"] not in ("integer", "boolean"):
            values = np.floor(values * 3)
        if wanted == "uint8":
            values = np.abs(values)
        if wanted == "bool":
            values = values > 0
        out.append(as_dtype(values, wanted).reshape(spec["dims"]))
    return out


def text(value):
    value = float(value)
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    return repr(value)


def namespace(family):
    names = {"np": np}
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.path.join(here, family + ".py")
    if os.path.exists(path):
        spec = importlib.util.spec_from_file_location("family_" + family, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        names.update(vars(module))
    return names


def main(family, request, answer):
    names = namespace(family)
    with open(request, encoding="utf-8") as file:
        cases = json.load(file)
    with open(answer, "w", encoding="utf-8") as file, \
            np.errstate(all="ignore"):
        for case in cases:
            for dtype in case["dtypes"]:
                scope = dict(names, dtype=dtype)
                scope.update(zip("abcdefgh", inputs_of(case, dtype)))
                try:
                    outs = eval(case["ref"], scope)
                except Exception as error:
                    sys.exit("case %r (%s): %s" % (case["name"], dtype, error))
                if not isinstance(outs, (tuple, list)):
                    outs = (outs,)
                for out in outs:
                    out = np.asarray(out)
                    file.write("%s\t%s\t%s\t%s\n" % (
                        case["name"], dtype,
                        ",".join(str(d) for d in out.shape),
                        " ".join(text(v) for v in out.reshape(-1))))


if __name__ == "__main__":
    main(*sys.argv[1:])
