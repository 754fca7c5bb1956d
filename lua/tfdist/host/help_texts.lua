--- What the prompt says of names whose definition has no comment of its own: ops
--- made from the registry, classes made from tables. A line is "name ...: text",
--- those that begin with a space go on; case and underscores do not count.
return [==[
abs: Absolute values.
acos: Arc cosines, in radians.
acosh: Inverse hyperbolic cosines.
add_n: The sum of a list of tensors of one shape.
adjust_brightness: Images with delta added to all values.
adjust_contrast: Images with (x - mean) contrast_factor + mean per channel.
argmax: Positions of the largest values along axis, from 0; the first of equals.
argmin: Positions of the smallest values along axis, from 0; the first of
  equals.
as_dtype: The name of a dtype, checked.
asin: Arc sines, in radians.
asinh: Inverse hyperbolic sines.
assert_equal: Raises InvalidArgument unless x and y are equal everywhere.
assert_greater: Raises InvalidArgument unless x > y everywhere.
assert_greater_equal: Raises InvalidArgument unless x >= y everywhere.
assert_integer: Raises TypeError unless the dtype is an integer one.
assert_less: Raises InvalidArgument unless x < y everywhere.
assert_less_equal: Raises InvalidArgument unless x <= y everywhere.
assert_negative: Raises InvalidArgument unless x < 0 everywhere.
assert_non_negative: Raises InvalidArgument unless x >= 0 everywhere.
assert_non_positive: Raises InvalidArgument unless x <= 0 everywhere.
assert_none_equal: Raises InvalidArgument unless x and y differ everywhere.
assert_positive: Raises InvalidArgument unless x > 0 everywhere.
assert_rank: Raises ValueError unless the tensor has this many axes.
assert_rank_at_least: Raises ValueError unless it has this many axes or more.
assert_rank_in: Raises ValueError unless the number of axes is in the list.
assert_scalar: Raises ValueError unless the tensor has no axes.
assert_type: Raises TypeError unless the tensor has this dtype.
atan: Arc tangents, in radians.
atan2: Angles of the points (x, y), -pi to pi.
atanh: Inverse hyperbolic tangents.
bias_add: value + bias along the channel axis.
cast: The tensor in another dtype; floats are cut towards 0 for integers.
ceil: The least whole numbers not below x.
cholesky: Lower triangular L with L L' = input, for each matrix.
clip_by_value: Values kept in clip_value_min..clip_value_max.
concat: The tensors of a list joined along an axis that there is; the others
  are equal.
cos: Cosines of angles in radians.
cosh: Hyperbolic cosines.
count_nonzero: How many values are not 0, along axis.
crelu: relu(x) and relu(-x), one after the other along axis.
cross: Cross products of vectors of three along the last axis.
cumprod: Running products along axis.
cumsum: Running sums along axis; exclusive leaves the value itself out.
cumulative_logsumexp: log of the running sums of exp(x) along axis.
det: Determinants of the matrices in the last two axes.
digamma: The derivative of lgamma.
divide truediv: x / y; whole numbers become floats.
divide_no_nan: x / y, and 0 where y is 0.
embedding_lookup: Rows of params by ids, from 0.
equal: Where x and y are equal.
erf: The error function.
erfc: 1 - erf(x).
erfinv: The inverse of erf.
exp exponential: e to the power x.
expand_dims: The tensor with an axis of size 1 more, at position axis.
expm1: exp(x) - 1, exact near 0.
flip_left_right: Images mirrored left to right.
flip_up_down: Images turned upside down.
floor: The greatest whole numbers not above x.
floordiv floor_div: floor(x / y).
floormod mod: x - floor(x / y) y: the sign is that of y.
fold_in: Another seed from a seed and a number.
gather_nd: Slices of params at positions given along the last axis of indices.
gelu: x times the normal distribution's probability below x.
grayscale_to_rgb: Images of one channel with three equal ones.
greater: Where x > y.
greater_equal: Where x >= y.
identity: The tensor itself, as a result of an op; a variable's value.
igamma: The regularized lower incomplete gamma function.
igammac: The regularized upper incomplete gamma function.
in_top_k: Whether the prediction of each target is among the k largest.
inv: Inverses of the matrices in the last two axes.
invert_permutation: y with y[x[i]] = i.
is_finite: Where x is neither infinite nor NaN.
is_inf: Where x is infinite.
is_nan: Where x is NaN.
l2_loss: sum(x^2) / 2.
less: Where x < y.
less_equal: Where x <= y.
lgamma: log of the absolute value of the gamma function.
linear: x itself.
log: Natural logarithms.
log1p: log(1 + x), exact near 0.
log_sigmoid: log(sigmoid(x)), without overflow.
log_softmax: log(softmax(x)) along axis, without overflow.
logical_and: Where x and y are true.
logical_not: Where x is false.
logical_or: Where x or y is true.
logical_xor: Where just one of x and y is true.
matmul: Products of the matrices in the last two axes; others broadcast.
maximum: The greater of x and y, element by element.
minimum: The lesser of x and y, element by element.
mish: x tanh(softplus(x)).
multiply: x y, element by element.
multiply_no_nan: x y, and 0 where y is 0, even for infinite x.
ndtri: The inverse of the normal distribution function.
negative: -x.
nextafter: The next number after x1 towards x2 that the dtype has.
not_equal: Where x and y differ.
one_hot: Rows with on_value at the position indices says, from 0.
ones_like: Ones with the shape (and dtype) of the input.
pad_to_bounding_box: The image with zeros around, at offset_height,
  offset_width.
polygamma: The a-th derivative of digamma.
pow: x to the power y.
random_flip_left_right: Images mirrored, or not, by chance.
random_flip_up_down: Images turned upside down, or not, by chance.
reciprocal: 1 / x.
reduce_all: Whether all values are true, over axis (nil: over all axes).
reduce_any: Whether some value is true, over axis (nil: over all axes).
reduce_euclidean_norm: Square root of the sum of squares, over axis.
reduce_logsumexp: log of the sum of exp(x) over axis, without overflow.
reduce_max: The largest value, over axis (nil: over all axes).
reduce_mean: The mean, over axis (nil: over all axes); integers are cut.
reduce_min: The smallest value, over axis (nil: over all axes).
reduce_prod: The product, over axis (nil: over all axes).
reduce_std: The standard deviation, over axis.
reduce_sum: The sum, over axis: one, a list, or nil for all axes; from 0, -1 is
  the last. keepdims keeps them with size 1.
reduce_variance: The variance, over axis.
relu6: min(max(x, 0), 6).
resize_with_crop_or_pad: The middle of an image, or the image amid zeros.
reverse: The tensor with the order along the axes turned round.
rgb_to_grayscale: Images of three channels with one, their luma.
rint round: The nearest whole numbers; halves go to the even one.
roll: The tensor with elements shifted along axis, coming in at the other end.
rot90: Images turned by k right angles, against the clock.
rsqrt: 1 / sqrt(x).
scatter_nd: Zeros of a shape with updates added at positions.
searchsorted: Where values would go in sorted sequences, from 0.
selu: Scaled elu: activations keep mean 0 and variance 1.
sigmoid: 1 / (1 + exp(-x)).
sigmoid_cross_entropy_with_logits: Cross entropy of independent probabilities,
  sigmoid(logits), and labels of 0..1.
sign: -1, 0 or 1 by the sign.
silu swish: x sigmoid(x).
sin: Sines of angles in radians.
sinh: Hyperbolic sines.
slice: size elements along each axis, from begin; -1 takes all that follow.
slogdet: Sign and logarithm of the determinant.
softmax_cross_entropy_with_logits: Cross entropy of softmax(logits) and labels,
  one number per class, over axis.
softplus: log(1 + exp(x)).
softsign: x / (1 + |x|).
sparse_softmax_cross_entropy_with_logits: Cross entropy of softmax(logits) and
  class numbers, from 0.
sqrt: Square roots.
square: x^2.
squared_difference: (x - y)^2.
squeeze: The tensor without axes of size 1: those named, or all.
stack: The tensors of a list, all of one shape, along a new axis.
subtract: x - y.
tan: Tangents of angles in radians.
tanh: Hyperbolic tangents.
tensor_scatter_nd_add: The tensor with updates added at positions.
tensor_scatter_nd_max: The tensor with the greater of itself and updates.
tensor_scatter_nd_min: The tensor with the lesser of itself and updates.
tensor_scatter_nd_sub: The tensor with updates subtracted at positions.
tensor_scatter_nd_update: The tensor with updates in place of slices.
tile: The tensor repeated along each axis.
top_k: The k largest values along the last axis and their positions, from 0.
transpose: Axes in the order of perm; without it, the other way round.
truncatediv: x / y cut towards 0.
truncatemod: What x / y cut towards 0 leaves: the sign is that of x.
xdivy: x / y, and 0 where x is 0.
xlog1py: x log(1 + y), and 0 where x is 0.
xlogy: x log(y), and 0 where x is 0.
zeros_like: Zeros with the shape (and dtype) of the input.
zeta: The Hurwitz zeta function.
Adadelta: Steps scaled by running means of squares of gradients and of steps.
Adagrad: Steps scaled by 1 / sqrt of the sum of squares of all gradients.
Adam: Steps by running means of gradients and of their squares.
AdamW: Adam with weight decay apart from the gradient.
Adamax: Adam with the running maximum in place of the mean of squares.
Ftrl: Follow the regularized leader, with l1 and l2 penalties.
Nadam: Adam with Nesterov momentum.
RMSprop: Steps scaled by a running mean of squares of gradients.
SGD: w - learning_rate gradient, with momentum when asked.
BinaryCrossentropy: Cross entropy of labels 0..1 and probabilities (logits with
  from_logits).
BinaryFocalCrossentropy: Binary cross entropy that weighs easy examples less.
CategoricalCrossentropy: Cross entropy of rows with a number for each class.
CategoricalFocalCrossentropy: The same, with easy examples weighed less.
CategoricalHinge: max(1 + best wrong class - right class, 0).
Hinge: mean(max(1 - y_true y_pred, 0)), for labels -1 and 1.
Huber: Squared error below delta, linear above.
KLDivergence: sum(y_true log(y_true / y_pred)).
LogCosh: mean(log(cosh(y_pred - y_true))).
MeanAbsoluteError: mean(|y_true - y_pred|).
MeanAbsolutePercentageError: 100 mean(|y_true - y_pred| / |y_true|).
MeanSquaredError: mean((y_true - y_pred)^2).
MeanSquaredLogarithmicError: mean((log(1 + y_true) - log(1 + y_pred))^2).
Poisson: mean(y_pred - y_true log(y_pred)); for random.poisson: numbers of that
  distribution.
SparseCategoricalCrossentropy: Cross entropy of class numbers, from 0, and
  probabilities (logits with from_logits).
SquaredHinge: mean(max(1 - y_true y_pred, 0)^2).
GlorotNormal xavier_normal: Normal numbers, cut at two deviations, variance 2 /
  (fan_in + fan_out).
GlorotUniform xavier_uniform: Uniform numbers within sqrt(6 / (fan_in +
  fan_out)).
HeNormal: Normal numbers, cut at two deviations, variance 2 / fan_in.
HeUniform: Uniform numbers within sqrt(6 / fan_in).
LecunNormal: Normal numbers, cut at two deviations, variance 1 / fan_in.
LecunUniform: Uniform numbers within sqrt(3 / fan_in).
Orthogonal: Rows or columns that are orthogonal, times gain.
RandomNormal normal: Normal numbers of mean and standard deviation stddev.
RandomUniform uniform: Uniform numbers from minval up to maxval.
TruncatedNormal: Normal numbers; those beyond two deviations are drawn again.
VarianceScaling: Random numbers whose variance follows from the sizes.
categorical: Class numbers, from 0, drawn by logits.
gamma: Numbers of the gamma distribution.
L1: The penalty l1 sum(|x|).
L2: The penalty l2 sum(x^2).
L1L2 l1_l2: The penalty l1 sum(|x|) + l2 sum(x^2).
MaxNorm: Keeps norms along axis at max_value or less.
MinMaxNorm: Keeps norms along axis between two values.
NonNeg: Keeps weights at 0 or more.
UnitNorm: Keeps norms along axis at 1.
AveragePooling1D AvgPool1D AveragePooling2D AvgPool2D AveragePooling3D
  AvgPool3D: The mean of each window.
MaxPooling1D MaxPool1D MaxPooling2D MaxPool2D MaxPooling3D MaxPool3D: The
  largest value of each window.
GlobalAveragePooling1D GlobalAvgPool1D GlobalAveragePooling2D GlobalAvgPool2D
  GlobalAveragePooling3D GlobalAvgPool3D: The mean of each channel.
GlobalMaxPooling1D GlobalMaxPool1D GlobalMaxPooling2D GlobalMaxPool2D
  GlobalMaxPooling3D GlobalMaxPool3D: The largest value of each channel.
Cropping1D Cropping2D Cropping3D: Inputs without their borders.
ZeroPadding1D ZeroPadding2D ZeroPadding3D: Inputs with zeros around.
UpSampling1D UpSampling2D UpSampling3D: Inputs with every element repeated.
SpatialDropout1D SpatialDropout2D SpatialDropout3D: Dropout of whole channels.
Average: The mean of a list of inputs.
RandomBrightness RandomContrast RandomRotation RandomTranslation RandomZoom:
  Images changed by chance within factor, in training only.
add: x + y, element by element.
broadcast_to: The tensor in a larger shape; axes of size 1 are repeated.
gather: Slices of params along axis at positions, from 0.
random_crop: A piece of this size, from a place drawn by chance.
random_shuffle: Rows in an order drawn by chance.
reshape: The same elements in another shape; one size may be -1.
softmax: exp(x) / sum(exp(x)) along axis.
dropout: Elements are 0 with probability rate, the others grow by 1 / (1 - rate).
elu: x, and exp(x) - 1 below 0.
leaky_relu: x, and alpha x below 0.
relu: max(x, 0).
central_crop: The middle of an image.
crop_to_bounding_box: A piece of an image, from offset_height, offset_width.
]==]
