--- EinsumDense: a product by Einstein's notation with a bias.
--- Source: tf.keras.layers.EinsumDense
local convert = require "tfdist.core.convert"
local define = require "tfdist.keras.layers.define"
local errors = require "tfdist.base.errors"
local support = require "tfdist.keras.layers.support"
local text = require "tfdist.base.text"
local tf = require "tfdist.core.functions"

local M = {}

local function bad(equation)
  errors.raise("ValueError", ("EinsumDense: equation %s; expected one like "
    .. "\"ab,bc->ac\" or \"...b,bc->...c\""):format(text.describe(equation)))
end

-- Letters of the input, the kernel and the output, without "...".
local function parse(equation)
  if type(equation) ~= "string" then
    bad(equation)
  end
  local input, kernel, output = equation:gsub("%s", ""):match(
    "^([%a.]+),(%a+)%->([%a.]+)$")
  if input == nil or (input:find "%." and input:sub(1, 3) ~= "...")
    or (output:find "%." and output:sub(1, 3) ~= "...") then
    bad(equation)
  end
  return { input = input:gsub("%.", ""), kernel = kernel,
    output = output:gsub("%.", ""), open = input:sub(1, 3) == "..." }
end

-- Size of every letter: from the input's last axes and from output_shape.
local function sizes_of(self, shape)
  local p, given = self._own.parts, self._own.given
  local sizes = {}
  for i = 1, #p.input do
    sizes[p.input:sub(i, i)] = shape[#shape - #p.input + i]
  end
  for i = 1, #given do
    local letter = p.output:sub(#p.output - #given + i, #p.output - #given + i)
    if given[i] >= 0 then
      sizes[letter] = given[i]
    end
  end
  return sizes
end

local function dims_for(self, letters, sizes, what)
  local dims = {}
  for i = 1, #letters do
    local n = sizes[letters:sub(i, i)]
    if n == nil or (n < 0 and what ~= "output") then
      support.ask_for_size(("%s: the size of %s of the %s is not known")
        :format(self.name, letters:sub(i, i), what), "give it in output_shape")
    end
    dims[i] = n
  end
  return dims
end

--- activation(einsum(equation, x, kernel) + bias).
--- output_shape: sizes of the output's last axes (-1: as the input);
--- bias_axes: the output's letters that the bias has, "d".
M.EinsumDense = define.layer("EinsumDense", "equation:s output_shape:l "
  .. "activation=nil bias_axes=nil " .. support.WEIGHTS, {
  setup = function(self, config)
    local own = self._own
    own.parts = parse(config.equation)
    own.given = convert.integers(config.output_shape, "EinsumDense",
      "output_shape")
    own.activation = support.activation(config.activation)
  end,
  build = function(self, shape)
    local own, p = self._own, self._own.parts
    local sizes = sizes_of(self, shape)
    support.add(self, "kernel", dims_for(self, p.kernel, sizes, "kernel"))
    local bias = own.config.bias_axes
    if bias ~= nil then
      local dims, first = {}, nil
      for i = 1, #p.output do
        local letter = p.output:sub(i, i)
        if bias:find(letter, 1, true) then
          first = first or i
          dims[#dims + 1] = dims_for(self, letter, sizes, "bias")[1]
        elseif first ~= nil then
          dims[#dims + 1] = 1
        end
      end
      support.add(self, "bias", dims)
    end
    self.input_spec = { min_ndim = #p.input }
  end,
  call = function(self, x)
    local own = self._own
    local y = tf.einsum(own.config.equation, x, self.kernel)
    if self.bias ~= nil then
      y = y + self.bias
    end
    return own.activation and own.activation(y) or y
  end,
  compute_output_shape = function(self, shape)
    local p = self._own.parts
    local out = dims_for(self, p.output, sizes_of(self, shape), "output")
    if p.open then
      for i = #shape - #p.input, 1, -1 do
        table.insert(out, 1, shape[i])
      end
    end
    return out
  end,
})

return M
