"""Cases drawn from a seed, with what TensorFlow says about them.

usage: python scripts/parity/seeded FILE [--seed=1] [--cases=3000]
           [--only=FAMILY] [--case=ID]
Writes FILE (npz; see program.py). Families share the cases by weight. A case
that TensorFlow refuses is drawn again; stderr says how many were.
"""
import argparse
import collections
import os
import sys
import time
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
sys.dont_write_bytecode = True

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import data  # noqa: E402
import fit  # noqa: E402
import layers  # noqa: E402
import losses  # noqa: E402
import metrics  # noqa: E402
import ops_array  # noqa: E402
import ops_math  # noqa: E402
import ops_nn  # noqa: E402
import optimizers  # noqa: E402
import program  # noqa: E402

# name: (module, share of the cases)
FAMILIES = {
    "math": (ops_math, 22), "array": (ops_array, 14), "nn": (ops_nn, 12),
    "losses": (losses, 10), "metrics": (metrics, 10),
    "optimizers": (optimizers, 8), "layers": (layers, 14), "data": (data, 7),
    "fit": (fit, 2),
}
TRIES = 20


def draw(family, seed, i, store, refused):
    module = FAMILIES[family][0]
    for attempt in range(TRIES):
        rng = np.random.default_rng([seed, zlib.crc32(family.encode()), i,
                                     attempt])
        case = program.Case(rng)
        case.fields.update(family=family, id="%s-%d" % (family, i))
        case.fields["name"] = "?"
        try:
            name = module.draw(case)
            case.fields["name"] = name
            return program.finish(case, store)
        except Exception as error:
            text = "%s: %s: %s" % (case.fields["name"], type(error).__name__,
                                   str(error).split("\n")[0][:150])
            refused[text] += 1
    raise RuntimeError("nothing to be had for %s-%d" % (family, i))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("file")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--cases", type=int, default=3000)
    options.add_argument("--only", default="")
    options.add_argument("--case", default="")
    options.add_argument("--verbose", action="store_true")
    given = options.parse_args()
    tf.get_logger().setLevel("ERROR")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
    store, cases = program.Store(), []
    refused = collections.Counter()
    total = sum(share for _, share in FAMILIES.values())
    for family, (_, share) in FAMILIES.items():
        if given.only and family not in given.only.split(","):
            continue
        begun = time.monotonic()
        count = max(1, round(given.cases * share / total))
        ids = range(count)
        if given.case:
            wanted, number = given.case.rsplit("-", 1)
            ids = [int(number)] if wanted == family else []
        for i in ids:
            cases.append(draw(family, given.seed, i, store, refused))
        tf.keras.backend.clear_session()
        print("%s: %d cases, %.0f s" % (family, len(ids),
                                        time.monotonic() - begun),
              file=sys.stderr, flush=True)
    if refused:
        print("drawn again: %d" % sum(refused.values()), file=sys.stderr)
    if given.verbose:
        for text, count in refused.most_common(100):
            print("  %d x %s" % (count, text), file=sys.stderr)
    store.save(given.file, {
        "seed": given.seed, "cases": cases,
        "peer": "TensorFlow %s, Keras %s" % (tf.__version__,
                                             tf.keras.__version__)})


main()
