"""TensorFlow's side of the benchmarks of strategies and of fit.

usage: python tf_peer.py DEVICES [BATCHES]
                                     answers requests from stdin, a line each;
                                     DEVICES logical CPU devices, each of which
                                     takes so many batches (1) in a step
       python tf_peer.py workers     the same as one of the workers that
                                     TF_CONFIG names (see cluster.py)
       python tf_peer.py first       one training step, then the end
  step NAME             wall s of a training step of the networks of steps.c
                        and resnet, a traced function under
                        MirroredStrategy
  xla NAME              the same, compiled by XLA
  first NAME            wall s of a step's first call beyond the next
  xla_first NAME        the same, compiled by XLA
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
TIMES = {"lstm": 2, "gpt": 2, "tiny": 1000, "resnet": 4}  # else 30
batches = 1  # of a device in a step


def setup(devices):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * devices)
    if devices == 1:
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy(
        ["CPU:%d" % i for i in range(devices)])


class Gpt(tf.Module):
    """4 layers, 256 wide, 4 heads, 128 tokens out of 256; none looks ahead."""

    def __init__(self):
        super().__init__()
        kernel, zeros, ones = self.kernel, self.zeros, self.ones
        self.embedding, self.places = kernel(256, 256), kernel(128, 256)
        self.blocks = [
            [ones(), zeros(256), kernel(256, 768), zeros(768),
             kernel(256, 256), zeros(256), ones(), zeros(256),
             kernel(256, 1024), zeros(1024), kernel(1024, 256), zeros(256)]
            for _ in range(4)]
        self.last = [ones(), zeros(256), kernel(256, 256)]

    @staticmethod
    def kernel(rows, columns):
        return tf.Variable(tf.random.normal((rows, columns), 0, 0.02))

    @staticmethod
    def zeros(size):
        return tf.Variable(tf.zeros(size))

    @staticmethod
    def ones():
        return tf.Variable(tf.ones(256))

    @staticmethod
    def norm(x, scale, offset):
        centered = x - tf.reduce_mean(x, -1, True)
        variance = tf.reduce_mean(tf.square(centered), -1, True)
        return centered * tf.math.rsqrt(variance + 1e-5) * scale + offset

    @staticmethod
    def attend(x, kernel, bias, outer, outer_bias):
        parts = tf.reshape(x @ kernel + bias, (-1, 128, 3, 4, 64))
        q, k, v = tf.unstack(tf.transpose(parts, (2, 0, 3, 1, 4)))
        mask = (1 - tf.linalg.band_part(tf.ones((128, 128)), -1, 0)) * -1e9
        shares = tf.nn.softmax(
            tf.matmul(q, k, transpose_b=True) / 8 + mask)
        y = tf.transpose(shares @ v, (0, 2, 1, 3))
        return tf.reshape(y, (-1, 256)) @ outer + outer_bias

    def __call__(self, x, training=False):
        h = tf.reshape(tf.gather(self.embedding, x) + self.places, (-1, 256))
        for w in self.blocks:
            h = h + self.attend(self.norm(h, w[0], w[1]), *w[2:6])
            inner = self.norm(h, w[6], w[7]) @ w[8] + w[9]
            h = h + tf.nn.gelu(inner, approximate=True) @ w[10] + w[11]
        return self.norm(h, self.last[0], self.last[1]) @ self.last[2]


def convolved(x, filters, size, strides):
    x = layers.Conv2D(filters, size, strides, "same", use_bias=False)(x)
    return layers.BatchNormalization()(x)


def resnet_20():
    x = entry = layers.Input((32, 32, 3))
    x = layers.ReLU()(convolved(x, 16, 3, 1))
    for filters in (16, 32, 64):
        for block in range(3):
            strides = 2 if block == 0 and filters > 16 else 1
            y = layers.ReLU()(convolved(x, filters, 3, strides))
            y = convolved(y, filters, 3, 1)
            x = convolved(x, filters, 1, strides) if strides > 1 else x
            x = layers.ReLU()(layers.Add()([x, y]))
    x = layers.GlobalAveragePooling2D()(x)
    return tf.keras.Model(entry, layers.Dense(10)(x))


def network(name):
    if name == "gpt":
        return Gpt()
    if name == "resnet":
        return resnet_20()
    if name == "tiny":
        return tf.keras.Sequential([
            layers.Input((4,)), layers.Dense(64, activation="relu"),
            layers.Dense(64, activation="relu"), layers.Dense(2)])
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
    if name == "gpt":
        tokens = tf.random.uniform((2, 16 * batches, 128), 0, 256, tf.int32)
        return tokens[0], tf.reshape(tokens[1], (-1,))
    if name == "tiny":
        rows = 4 * batches
        return (tf.random.normal((rows, 4)),
                tf.random.uniform((rows,), 0, 2, tf.int32))
    rows = 64 * batches
    shape = ((784,) if name == "mlp" else (32, 32, 3) if name == "resnet"
             else (28, 28, 1))
    return tf.random.normal((rows,) + shape), tf.random.uniform((rows,), 0, 10, tf.int32)


# --- steps ---------------------------------------------------------------------

steps, firsts = {}, {}


def make_step(strategy, name, xla=None):
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

    @tf.function(jit_compile=xla)
    def step():
        return strategy.run(replica, args=inputs)

    return lambda: strategy.experimental_local_results(step())[0]


def ready_step(strategy, name, xla=None):
    key = name, xla
    if key not in steps:
        step = make_step(strategy, name, xla)
        begun = [time.monotonic()]
        for _ in range(1 + WARM):
            step().numpy()
            begun.append(time.monotonic())
        firsts[key] = max(begun[1] - begun[0] - (begun[2] - begun[1]), 0)
        steps[key] = step
    return steps[key]


def time_step(strategy, name, xla=None):
    step, times = ready_step(strategy, name, xla), TIMES.get(name, 30)
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
    if what == "xla":
        return time_step(strategy, name, True)
    if what in ("first", "xla_first"):
        xla = True if what == "xla_first" else None
        ready_step(strategy, name, xla)
        return (firsts[name, xla],)
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
