"""What a peer of the parity tests is asked for, and where its answers go.

FOLDER/plan.json lists the cases as spec/parity/cases.lua has them; an object
of Keras is {"class": path, "args": [...], "options": {...}}. Images and labels
are FOLDER/images.npy (bytes, n x 28 x 28) and labels.npy (bytes).

FOLDER/I/w0.npy, w1.npy ... take the first weights of the case with id I to the
other side and FOLDER/I/N-f0.npy ... the last ones after training on N replicas.
FOLDER/answers.json maps a case's name and number of replicas to its numbers,
or to {"error": text}.
"""
import json
import os

import numpy as np


class Plan:
    def __init__(self, folder):
        self.folder = folder
        with open(os.path.join(folder, "plan.json")) as file:
            plan = json.load(file)
        self.cases = plan["cases"]
        self.replicas = plan["replicas"]
        self.images = np.load(os.path.join(folder, "images.npy"))
        self.labels = np.load(os.path.join(folder, "labels.npy"))
        self.weights = np.load(os.path.join(folder, "weights.npy"))
        for case in self.cases:
            case["folder"] = os.path.join(folder, str(case["id"]))
            os.makedirs(case["folder"], exist_ok=True)
        self.answers = {}

    def answer(self, case, replicas, what):
        self.answers.setdefault(case["name"], {})[str(replicas)] = what

    def finish(self, peer):
        path = os.path.join(self.folder, "answers.json")
        with open(path, "w") as file:
            json.dump({"peer": peer, "answers": self.answers}, file)

    def examples(self, form, first, count):
        """x of the rows from first on; see spec/parity/cases.lua."""
        images = self.images[first:first + count]
        if form == "tokens":
            return images[:, 14, :].astype(np.int32)
        if form == "ids":
            place = (first + np.arange(count)) % 16 * 4
            place = place[:, None] + np.arange(4)[None, :]
            return (place * 8 + images[:, 14, ::7] // 32).astype(np.int32)
        pixels = images.astype(np.float32) / np.float32(255)
        shape = {"flat": (-1, 784), "image": (-1, 28, 28, 1),
                 "rows": (-1, 28, 28)}[form]
        return pixels.reshape(shape)

    def targets(self, form, first, count):
        """y of the rows from first on; a list for several outputs."""
        if isinstance(form, list):
            return [self.targets(each, first, count) for each in form]
        if isinstance(form, dict):
            return {name: self.targets(each, first, count)
                    for name, each in form.items()}
        labels = self.labels[first:first + count]
        if form == "classes":
            return labels.astype(np.int32)
        if form == "onehot":
            return np.eye(10, dtype=np.float32)[labels]
        if form == "upper":
            return (labels >= 5).astype(np.float32)[:, None]
        return self.examples("flat", first, count)


SHAPES = {"flat": (784,), "image": (28, 28, 1), "rows": (28, 28),
          "tokens": (28,), "ids": (4,)}


def save(case, prefix, arrays):
    for k, array in enumerate(arrays):
        np.save(os.path.join(case["folder"], f"{prefix}{k}.npy"),
                np.ascontiguousarray(array))


def numbers(x):
    """Arrays and NumPy numbers as JSON knows them."""
    return np.asarray(x, dtype=np.float64).tolist()
