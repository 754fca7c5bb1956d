"""TensorFlow's side of the benchmarks of strategies and of fit.

usage: python tf_peer.py DEVICES [BATCHES]
                                     answers requests from stdin, a line each;
                                     DEVICES logical CPU devices, each of which
                                     takes so many batches (1) in a step
       python tf_peer.py workers     the same as one of the workers that
                                     TF_CONFIG names (see cluster.py)
       python tf_peer.py first       one training step, then the end
  step NAME             wall s of a training step of the networks of steps.c, a
                        traced function under MirroredStrategy
  fit NAME IMAGES       wall s of an epoch of model.fit over so many images of
                        Fashion-MNIST, and its accuracy
  input NAME IMAGES     wall s of a batch of the same input alone
  quit
One device: the default strategy.
"""
import functools
import os
import sys
import time
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import tensorflow as tf  # noqa: E402
from tensorflow.python.eager import context  # noqa: E402

import fashion  # noqa: E402

warnings.filterwarnings("ignore")
tf.get_logger().setLevel("ERROR")
layers = tf.keras.layers
BATCH = 128
WARM = 3
batches = 1  # of a device in a step


def setup(devices):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * devices)
    if devices == 1:
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy(
        ["CPU:%d" % i for i in range(devices)])


def network(name):
    if name == "mlp":
        return tf.keras.Sequential([
            layers.Input((784,)),
            layers.Dense(512, activation="relu"),
            layers.Dense(512, activation="relu"), layers.Dense(10)])
    if name == "cnn":
        return tf.keras.Sequential([
            layers.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D(),
            layers.Flatten(), layers.Dense(64, activation="relu"),
            layers.Dense(10)])
    if name == "lenet":
        return tf.keras.Sequential([
            layers.Input((28, 28, 1)),
            layers.Conv2D(6, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 5, activation="relu"), layers.MaxPooling2D(),
            layers.Flatten(), layers.Dense(120, activation="relu"),
            layers.Dense(84, activation="relu"), layers.Dense(10)])
    if name == "lstm":
        return tf.keras.Sequential([
            layers.Input((50, 512)),
            layers.LSTM(512, return_sequences=True),
            layers.LSTM(512, return_sequences=True), layers.Dense(65)])
    raise ValueError("no network called " + name)


def data(name):
    if name == "lstm":
        rows = 50 * batches
        return (tf.random.normal((rows, 50, 512)),
                tf.random.uniform((rows, 50), 0, 65, tf.int32))
    rows = 64 * batches
    shape = (rows, 784) if name == "mlp" else (rows, 28, 28, 1)
    return tf.random.normal(shape), tf.random.uniform((rows,), 0, 10, tf.int32)


# --- steps ---------------------------------------------------------------------

steps = {}


def make_step(strategy, name):
    replicas = strategy.num_replicas_in_sync
    with strategy.scope():
        model = network(name)
        optimizer = tf.keras.optimizers.SGD(1e-4)
        optimizer.build(model.trainable_variables)
    inputs = strategy.run(lambda: data(name))

    def replica(x, y):
        with tf.GradientTape() as tape:
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(
                y, model(x, training=True))
            loss = tf.reduce_mean(each) / replicas
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function
    def step():
        return strategy.run(replica, args=inputs)

    return lambda: strategy.experimental_local_results(step())[0]


def time_step(strategy, name):
    if name not in steps:
        steps[name] = make_step(strategy, name)
        for _ in range(WARM):
            steps[name]().numpy()
    step, times = steps[name], 2 if name == "lstm" else 30
    step().numpy()
    start = time.monotonic()
    for _ in range(times):
        loss = step()
    loss.numpy()
    return ((time.monotonic() - start) / times,)


# --- fit -----------------------------------------------------------------------

images, models = {}, {}


def dataset(name, limit):
    if limit not in images:
        images[limit] = fashion.load(limit)

    def scale(x, y):
        x = tf.cast(x, tf.float32) / 255
        shape = (-1, 784) if name == "mlp" else (-1, 28, 28, 1)
        return tf.reshape(x, shape), y

    return tf.data.Dataset.from_tensor_slices(images[limit]).shuffle(
        limit).batch(BATCH).map(scale).prefetch(tf.data.AUTOTUNE)


def fit(strategy, name, limit):
    if name not in models:
        with strategy.scope():
            model = network(name)
            model.compile(
                optimizer=tf.keras.optimizers.Adam(1e-3),
                loss=tf.keras.losses.SparseCategoricalCrossentropy(
                    from_logits=True), metrics=["accuracy"])
        models[name] = model, dataset(name, limit)
        model.fit(models[name][1], verbose=0)
    model, train = models[name]
    start = time.monotonic()
    history = model.fit(train, verbose=0)
    spent = time.monotonic() - start
    return spent, history.history["accuracy"][-1]


def read_input(name, limit):
    train = dataset(name, limit)
    start, count = time.monotonic(), 0
    for _ in train:
        count += 1
    return ((time.monotonic() - start) / count,)


def answer(strategy, what, name, limit):
    if what == "step":
        return time_step(strategy, name)
    if what == "fit":
        return fit(strategy, name, limit)
    if what == "input":
        return read_input(name, limit)
    raise ValueError("no such request: " + what)


def main():
    if sys.argv[1] == "first":
        print(make_step(setup(1), "mlp")().numpy())
        return
    global batches
    if sys.argv[1] == "workers":
        # While others are asked it is stopped, and must not be taken for dead.
        own = context.context()
        own.configure_coordination_service = functools.partial(
            own.configure_coordination_service,
            heartbeat_timeout_in_ms=3600 * 1000)
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    else:
        strategy = setup(int(sys.argv[1]))
    batches = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    for line in sys.stdin:
        words = line.split()
        if words[0] == "quit":
            break
        try:
            limit = int(words[2]) if len(words) > 2 else 0
            values = answer(strategy, words[0], words[1], limit)
            print(" ".join("%.9g" % v for v in values), flush=True)
        except Exception as error:  # the driver prints it and goes on
            print("failed:", str(error).replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
