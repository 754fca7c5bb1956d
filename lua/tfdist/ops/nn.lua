--- Names of products, convolution, pooling, normalisation and recurrence.
local M = {}

M.functions = {
  matmul = "matmul linalg.matmul",
  bias_add = "nn.bias_add",
}

M.methods = {
  matmul = "matmul",
}

return M
