--- Random tensor programs as Lua text. A program is made line by line: each is
--- run eagerly at once, so that the next ones know dtypes and shapes.
local errors = require "tfdist.base.errors"
local flows = require "spec.support.programs.flows"
local helpers = require "spec.support.programs.helpers"
local moves = require "spec.support.programs.moves"
local raw = require "tfdist.core.raw"
local rng = require "spec.fuzz.rng"
local tf = require "tfdist"

local M = {}

local load = rawget(_G, "loadstring") or load -- luacheck: ignore 143 113
local unpack = table.unpack or unpack -- luacheck: ignore 143 113

local names, total = {}, 0
for name in pairs(moves.weights) do names[#names + 1] = name end
table.sort(names)
for _, name in ipairs(names) do total = total + moves.weights[name] end

local function move_of(r)
  local at = r:int(1, total)
  for _, name in ipairs(names) do
    at = at - moves.weights[name]
    if at <= 0 then return moves.moves[name] end
  end
end

-- Text -----------------------------------------------------------------------

local function left_side(defs)
  local parts = {}
  for i, id in ipairs(defs) do parts[i] = ("v[%d]"):format(id) end
  return #parts > 0 and table.concat(parts, ", ") .. " = " or ""
end

--- The lines of a list of statements.
function M.render(statements, lines, indent)
  lines, indent = lines or {}, indent or ""
  for _, s in ipairs(statements) do
    if s.body ~= nil then
      lines[#lines + 1] = indent .. s.open
      M.render(s.body, lines, indent .. "  ")
      lines[#lines + 1] = indent .. s.close
    else
      lines[#lines + 1] = indent .. left_side(s.defs) .. s.text
    end
  end
  return lines
end

local HEAD = "local tf, H, V, v, unpack = ...\n"

function M.compile(source)
  local chunk, e = load(HEAD .. source)
  return chunk or error(e .. "\n" .. source, 0)
end

-- Making ---------------------------------------------------------------------

-- One step: nil when it cannot be made.
local function attempt(g, s)
  local chunk = M.compile(table.concat(M.render { s }, "\n"))
  return pcall(function()
    chunk(tf, helpers, g.V, g.v, unpack)
    helpers.settle()
  end)
end

local function note(g, id)
  local t = g.v[id]
  g.values[id] = { dtype = raw.tensor_dtype(t), dims = raw.tensor_dims(t) }
  g.visible[#g.visible + 1] = id
end

-- Values that a statement's results have become; too large ones are dropped.
local function accept(g, s)
  for _, id in ipairs(s.defs) do
    local t = g.v[id]
    if not helpers.is_tensor(t) then return false end
    if moves.numel(raw.tensor_dims(t)) > 3000 then return false end
  end
  for _, id in ipairs(s.defs) do note(g, id) end
  return true
end

local function new_ids(g, n)
  local ids = {}
  for i = 1, n do
    g.last = g.last + 1
    ids[i] = g.last
  end
  return ids
end

-- A case gives as many values as it gives.
local function case_outputs(g, text)
  local before = g.last
  local probe = { defs = {}, text = "v[0] = {" .. text .. "}" }
  if not attempt(g, probe) then return nil end
  local list = g.v[0]
  g.v[0] = nil
  for i = 1, #list do
    if not helpers.is_tensor(list[i]) then return nil end
  end
  g.last = before
  return #list
end

local function simple(g, statements)
  local text, n = move_of(g.rng)(g)
  -- A branch that does not run draws no numbers line by line.
  if text == nil or g.in_flow and (text:find "random" or text:find "dropout") then
    return
  end
  if n < 0 then
    n = case_outputs(g, text)
    if n == nil then return end
  end
  local s = { defs = new_ids(g, n), text = text }
  local ok, e = attempt(g, s)
  if ok then ok = accept(g, s) end
  if ok then
    statements[#statements + 1] = s
  elseif errors.kind(e) ~= nil and not g.in_flow and g.rng:one_in(25) then
    -- It ends the program: both ways must fail alike.
    statements[#statements + 1], g.failed = s, true
  end
end

local statements_of

-- Values of the list that fit, in the order of their numbers.
local function choose(g, most, fits)
  local list, seen = {}, {}
  for _ = 1, most do
    local id = moves.find(g, fits)
    if id ~= nil and not seen[id] then
      seen[id], list[#list + 1] = true, id
    end
  end
  return list
end

local function texts(list)
  local out = {}
  for i, id in ipairs(list) do out[i] = ("v[%d]"):format(id) end
  return out
end

local function float_of(x)
  return moves.FLOAT[x.dtype] and moves.numel(x.dims) > 0
end

local flow

-- The lines of a tape; where there are flows one of them is, of the sources.
local function taped_lines(g, sources, depth)
  if g.flows ~= "taped" then
    return statements_of(g, g.rng:int(2, 6), depth - 1)
  end
  local body = statements_of(g, g.rng:int(0, 2), depth - 1)
  g.prefer = sources
  for _ = 1, 4 do
    if not g.failed and flow(g, body, depth) then break end
  end
  g.prefer = nil
  for _, s in ipairs(g.failed and {} or statements_of(g, g.rng:int(0, 2),
    depth - 1)) do
    body[#body + 1] = s
  end
  return body
end

-- A tape around some lines, and gradients of what they made.
local function tape(g, statements, depth)
  local given = choose(g, 2, float_of)
  local sources = texts(given)
  for i, variable in ipairs(g.variables) do
    if moves.FLOAT[variable.dtype] then sources[#sources + 1] = ("V[%d]")
      :format(i) end
  end
  if #sources == 0 then return end
  local first = #g.visible
  local outer = g.in_tape
  g.in_tape = true
  local body = taped_lines(g, given, depth)
  g.in_tape = outer
  if g.failed then
    for _, s in ipairs(body) do statements[#statements + 1] = s end
    return
  end
  local targets = {}
  for i = first + 1, #g.visible do
    local id = g.visible[i]
    if float_of(g.values[id]) then targets[#targets + 1] = id end
  end
  if #targets == 0 then targets = choose(g, 1, float_of) end
  local list, defs = table.concat(sources, ", "), new_ids(g, #sources)
  local s = { open = ("local t%d = tf.GradientTape(function(t) t:watch({%s})")
    :format(defs[1], list), body = body, defs = defs,
    close = ("end)\n%sH.gradients(t%d, {%s}, {%s})"):format(left_side(defs),
      defs[1], table.concat(texts(targets), ", "), list) }
  -- What lies before holds without the tape too.
  if not attempt(g, { open = "do", body = { s }, close = "end" })
    or not accept(g, s) then
    for _, inner in ipairs(body) do statements[#statements + 1] = inner end
    return
  end
  statements[#statements + 1] = { open = "do", body = { s }, close = "end",
    defs = s.defs }
  g.has_tape = true
  if g.flows == "taped" then g.flowed = defs end
end

-- Values that are tensors of their own: tapes tell tensors by identity, and a
-- graph's inputs are all their own.
local function apart(g, list)
  local out, seen = {}, {}
  for _, id in ipairs(list) do
    local tensor = raw.tensor_id(g.v[id])
    if not seen[tensor] then
      seen[tensor], out[#out + 1] = true, id
    end
  end
  return out
end

-- Lines of a function that sees what it is given, and nil or: their head, the
-- lines, what their generator has.
local function function_of(g, given, depth, fields)
  local inner = { rng = g.rng, variables = g.variables, V = g.V, v = {},
    values = g.values, visible = {}, last = g.last, flows = g.flows,
    in_flow = g.in_flow, in_tape = g.in_tape, in_replica = g.in_replica }
  for name, value in pairs(fields or {}) do inner[name] = value end
  local names_in, list = {}, {}
  for i, id in ipairs(given) do
    inner.v[id], inner.visible[i] = g.v[id], id
    names_in[i] = ("a%d"):format(i)
    list[i] = ("[%d] = a%d"):format(id, i)
  end
  local body = statements_of(inner, g.rng:int(1, 5), depth - 1)
  g.last = inner.last
  g.has_tape = g.has_tape or inner.has_tape
  g.has_run = g.has_run or inner.has_run
  if inner.failed or #inner.visible == #given then return end
  return ("function(%s) local v = {%s}"):format(table.concat(names_in, ", "),
    table.concat(list, ", ")), body, inner
end

-- A traced function inside: it sees the variables, too.
local function inner_function(g, statements, depth)
  local given = apart(g, choose(g, 3))
  if #given == 0 then return end
  local head, body, inner = function_of(g, given, depth)
  if head == nil then return end
  local back = choose(inner, 2)
  local defs = new_ids(g, #back)
  local s = { open = ("%sH.inner(%s"):format(left_side(defs), head),
    body = body, defs = defs, close = ("return %s end)(%s)"):format(
      table.concat(texts(back), ", "), table.concat(texts(given), ", ")) }
  if attempt(g, s) and accept(g, s) then
    statements[#statements + 1], g.has_inner = s, true
  end
end

-- A run over two replicas, of which it has one sum or the like. What a tape
-- around follows is none of the replicas' work, but all of a traced call's.
local function over_replicas(g, statements, depth)
  local given = apart(g, choose(g, 3))
  if #given == 0 then return end
  local head, body, inner = function_of(g, given, depth, { variables = {},
    V = {}, in_replica = true })
  local back = head ~= nil and choose(inner, 1, float_of) or {}
  if #back == 0 then return end
  local defs = new_ids(g, 1)
  local s = { open = ("%sH.over(%q, %s, %s"):format(left_side(defs),
      g.rng:pick { "SUM", "MEAN", "MAX", "MIN" }, g.rng:one_in(2) and "true"
      or "false", head),
    body = body, defs = defs, close = ("return %s end, %s)"):format(
      texts(back)[1], table.concat(texts(given), ", ")) }
  if attempt(g, s) and accept(g, s) then
    statements[#statements + 1], g.has_run = s, true
  end
end

local function on_device(g, statements, depth)
  local s = { open = ("tf.device(\"CPU:%d\", function()"):format(
      g.rng:int(0, g.devices - 1)),
    body = statements_of(g, g.rng:int(1, 4), depth - 1), close = "end)",
    defs = {} }
  statements[#statements + 1] = s
end

local function custom(g, statements)
  local id = moves.find(g, float_of)
  if id == nil then return end
  local s = { defs = new_ids(g, 1), text = ("H.custom(v[%d])"):format(id) }
  if attempt(g, s) and accept(g, s) then
    statements[#statements + 1] = s
  end
end

-- A branch or a loop. Gradients of variables in it are summed in another order:
-- it sees variables where the program takes no gradients. Those of gradients are
-- too: of a tape around it and one in it there is one.
flow = function(g, statements, depth)
  local function preferred(fits)
    local list = {}
    for _, id in ipairs(g.prefer or {}) do
      if fits(g.values[id]) then list[#list + 1] = id end
    end
    return list[1] and g.rng:pick(list)
  end
  local tools = setmetatable({
    choose = function(n)
      local first, list = preferred(float_of), choose(g, n)
      local out = { first }
      for _, id in ipairs(list) do
        if id ~= first and #out < n then out[#out + 1] = id end
      end
      return out
    end,
    preferred = preferred,
    new_ids = function(n) return new_ids(g, n) end,
    prepare = function(s) return (attempt(g, { open = "do", body = s.body,
      close = "end" })) end,
    inside = function()
      local free = g.flows == "variables"
      return { rng = g.rng, variables = free and g.variables or {},
        V = free and g.V or {}, v = {}, values = g.values, visible = {},
        last = g.last, flows = g.flows, in_flow = true, in_tape = g.in_tape }
    end,
    lines = statements_of,
  }, { __index = g, __newindex = g })
  local s = flows.statement(tools, depth)
  if s ~= nil and attempt(g, s) and accept(g, s) then
    statements[#statements + 1], g.flowed = s, s.defs
    return true
  end
end

local function may_run(g)
  return g.devices ~= nil and g.devices > 1 and not g.in_flow and not g.in_tape
    and not g.in_replica
end

statements_of = function(g, n, depth)
  local statements = {}
  local tries = 0
  while #statements < n and tries < 8 * n and not g.failed do
    tries = tries + 1
    local way = depth > 0 and g.rng:int(1, 40) or 40
    local tapes = not g.flows or g.flows == "taped" and not g.in_tape
    if way <= 4 and tapes then
      tape(g, statements, depth)
    elseif way <= 4 then
      flow(g, statements, depth)
    elseif way <= 6 then
      inner_function(g, statements, depth)
    elseif way == 7 and g.devices ~= nil and g.devices > 1 then
      on_device(g, statements, depth)
    elseif way == 8 then
      custom(g, statements)
    elseif way == 9 and may_run(g) then
      over_replicas(g, statements, depth)
    else
      simple(g, statements)
    end
  end
  return statements
end

-- Programs -------------------------------------------------------------------

local function declare(g)
  for i = 1, g.rng:int(1, 4) do
    g.inputs[i] = { dtype = moves.dtype(g.rng), dims = moves.shape(g.rng) }
  end
  if g.rng:one_in(3) then g.inputs[#g.inputs + 1] = g.inputs[1] end
  for i = 1, g.rng:int(0, 3) do
    local like = g.inputs[g.rng:int(1, #g.inputs)]
    g.variables[i] = g.rng:one_in(2) and moves.FLOAT[like.dtype] and like
      or { dtype = g.rng:pick { "float32", "float64", "float32", "bfloat16" },
           dims = moves.shape(g.rng) }
  end
end

local function results_of(g)
  local list, seen = {}, {}
  for _ = 1, g.rng:int(1, 6) do
    local id = moves.find(g)
    if not seen[id] or g.rng:one_in(5) then
      list[#list + 1], seen[id] = id, true
    end
  end
  for _, id in ipairs(g.flowed or {}) do list[#list + 1] = id end
  return list
end

local function stream(seed, number)
  local r = rng.new(seed, number)
  for _ = 1, 3 do r:unit() end
  return r
end

--- The program of a seed.
---@param options table  devices
function M.program(seed, options)
  local g = { rng = stream(seed, 31), inputs = {}, variables = {},
    values = {}, visible = {}, v = {}, V = {}, last = 0, failed = false,
    devices = options.devices,
    -- Programs with loops have one tape around, tapes inside or variables in
    -- the loops.
    flows = stream(seed, 91):pick { "around", "taped", "taped", "variables",
      false, false, false, false } }
  declare(g)
  tf.random.set_seed(1)
  local given = helpers.inputs(g.inputs, 1)
  g.V = helpers.variables(g.variables)
  for i = 1, #g.inputs do
    g.v[i], g.last = given[i], i
    note(g, i)
  end
  local statements = statements_of(g, g.rng:int(2, 22), 2)
  return { seed = seed, inputs = g.inputs, variables = g.variables,
    statements = statements, results = results_of(g),
    failed = g.failed, has_inner = g.has_inner, has_tape = g.has_tape,
    around = (not g.flows or g.flows == "around") and not g.has_run,
    taped = g.flows == "taped",
    -- Loops of the graph do not let shapes change.
    open = g.rng:int(1, 3) == 1 and not g.flows }
end

--- The whole as Lua: a chunk that gets tf, H, V, v and returns the results.
function M.source(program)
  local lines = M.render(program.statements)
  lines[#lines + 1] = "return " .. table.concat(texts(program.results), ", ")
  return table.concat(lines, "\n")
end

return M
