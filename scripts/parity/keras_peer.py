"""TensorFlow's side of the parity tests: Keras trains what plan.json says.

usage: python keras_peer.py FOLDER      (see plan.py)
"""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

sys.dont_write_bytecode = True
import plan as plans  # noqa: E402


def make(x):
    """The object of Keras that a description stands for."""
    if isinstance(x, list):
        return [make(each) for each in x]
    if not isinstance(x, dict):
        return x
    if "class" not in x:
        return {key: make(value) for key, value in x.items()}
    found = keras
    for name in x["class"].split("."):
        found = getattr(found, name)
    options = {key: make(value) for key, value in x["options"].items()}
    return found(*[make(each) for each in x["args"]], **options)


def graph(case, x):
    outputs = [x]
    for entry in case["layers"]:
        inputs = [outputs[i] for i in entry["at"]] if "at" in entry \
            else [outputs[-1]]
        layer = make(entry)
        outputs.append(layer(*inputs) if len(inputs) == 1 or entry.get("each")
                       else layer(inputs))
    if "outputs" in case:
        chosen = case["outputs"]
        return keras.Model(x, {k: outputs[i] for k, i in chosen.items()}
                           if isinstance(chosen, dict)
                           else [outputs[i] for i in chosen])
    return keras.Model(x, outputs[-1])


def build(case):
    """The model with its first weights, the same in every strategy."""
    keras.utils.set_random_seed(1000 + case["id"])
    x = keras.Input(plans.SHAPES[case["x"]],
                    dtype="int32" if case["x"] in ("tokens", "ids")
                    else "float32")
    if case.get("graph"):
        model = graph(case, x)
    else:
        model = keras.Sequential([x] + make(case["layers"]))
    if "first" in case:
        model.set_weights(case["first"])
    else:
        case["first"] = model.get_weights()
        plans.save(case, "w", case["first"])
    return model


def stepper(case, model, optimizer, loss_fn, strategy):
    replicas = strategy.num_replicas_in_sync

    def replica(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(loss_fn(y, model(x, training=True)))
            loss = loss / case["batch"]
            if model.losses:
                loss += tf.add_n(model.losses) / replicas
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables))
        return loss

    @tf.function(reduce_retracing=True)
    def step(x, y):
        return strategy.reduce("SUM", strategy.run(replica, args=(x, y)),
                               axis=None)
    return step


def share(strategy, array):
    """Each replica's piece of a batch, in order."""
    n = strategy.num_replicas_in_sync
    size = len(array) // n

    def piece(context):
        i = context.replica_id_in_sync_group
        return tf.constant(array[i * size:(i + 1) * size])
    return strategy.experimental_distribute_values_from_function(piece)


def train(plan, case, strategy):
    with strategy.scope():
        model = build(case)
        optimizer = make(case["optimizer"])
        optimizer.build(model.trainable_variables)
        loss = dict(case["loss"])
        loss["options"] = dict(loss["options"], reduction="none")
        loss_fn = make(loss)
    step = stepper(case, model, optimizer, loss_fn, strategy)
    losses, batch = [], case["batch"]
    for i in range(case["steps"]):
        first = i * batch
        x = share(strategy, plan.examples(case["x"], first, batch))
        y = share(strategy, plan.targets(case["y"], first, batch))
        losses.append(float(step(x, y)))
    return model, {"losses": losses}


def callbacks(case):
    made = make(case.get("callbacks", []))
    if case.get("halve"):
        made.append(keras.callbacks.LearningRateScheduler(
            lambda epoch, rate: rate * 0.5))
    return made


def fit(plan, case, strategy):
    rows = case["rows"]
    x = plan.examples(case["x"], 0, rows)
    y = plan.targets(case["y"], 0, rows)
    options = dict(case["fit"])
    if "class_weight" in options:
        options["class_weight"] = {int(k): v for k, v
                                   in options["class_weight"].items()}
    if case.get("weights"):
        options["sample_weight"] = plan.weights[:rows]
    with strategy.scope():
        model = build(case)
        model.compile(make(case["optimizer"]), make(case["loss"]),
                      loss_weights=case.get("loss_weights"),
                      metrics=make(case.get("metrics")),
                      weighted_metrics=make(case.get("weighted_metrics")))
    history = model.fit(x, y, verbose=0, callbacks=callbacks(case), **options)
    found = model.evaluate(plan.examples(case["x"], rows, 300),
                           plan.targets(case["y"], rows, 300), verbose=0,
                           batch_size=100, return_dict=True)
    predicted = model.predict(plan.examples(case["x"], rows, 20), verbose=0)
    if isinstance(predicted, dict):
        predicted = predicted["kind"]
    elif isinstance(predicted, list):
        predicted = predicted[0]
    return model, {
        "history": {k: plans.numbers(v) for k, v in history.history.items()},
        "evaluate": {k: plans.numbers(v) for k, v in found.items()},
        "predict": plans.numbers(predicted[:, 0]),
    }


def strategies(counts):
    devices = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        devices[0], [tf.config.LogicalDeviceConfiguration()] * max(counts))
    return {n: tf.distribute.get_strategy() if n == 1 else
            tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(n)])
            for n in counts}


def main(folder):
    plan = plans.Plan(folder)
    by_count = strategies(plan.replicas)
    for case in plan.cases:
        counts = [1] if case.get("alone") else \
            case.get("replicas", plan.replicas)
        for n in counts:
            try:
                run = fit if "fit" in case else train
                model, found = run(plan, case, by_count[n])
                plans.save(case, f"{n}-f", model.get_weights())
            except Exception as error:  # the table shows it
                found = {"error": f"{type(error).__name__}: {error}"[:400]}
            plan.answer(case, n, found)
        print(case["name"], file=sys.stderr, flush=True)
        keras.backend.clear_session()
    plan.finish(f"TensorFlow {tf.__version__}, Keras {keras.__version__}")


main(sys.argv[1])
