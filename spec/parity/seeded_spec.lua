-- Cases drawn from a seed give what TensorFlow gave: recorded.npz has a few of
-- every family, `make parity` draws thousands.
local listed = require "spec.parity.listed"
local seeded = require "spec.parity.seeded"
local tf = require "tfdist"

local plan = assert(seeded.load "spec/parity/recorded.npz")

-- What is wrong with the cases of a family, a text; nil when nothing is.
local function faults(family)
  local list = {}
  for _, case in ipairs(plan.cases) do
    for _, n in ipairs(case.family == family and seeded.replicas(case) or {}) do
      local row = seeded.compare(plan, case, n)
      if row.outside then
        list[#list + 1] = ("%s, %s, %d replicas: %s"):format(row.id, row.name,
          n, row.message or row.over)
      end
    end
  end
  return list[1] and table.concat(list, "\n")
end

describe("recorded numbers of " .. plan.peer, function()
  local families, seen = {}, {}
  for _, case in ipairs(plan.cases) do
    if not seen[case.family] then
      seen[case.family] = true
      families[#families + 1] = case.family
    end
  end

  for _, family in ipairs(families) do
    it("are ours too: " .. family, function()
      assert.is_nil(faults(family))
    end)
  end

  it("come from every family", function()
    assert.same({ "math", "array", "nn", "losses", "metrics", "optimizers",
      "layers", "data", "fit" }, families)
  end)
end)

describe("a comparison with recorded numbers", function()
  -- The first case of a family whose first output has floats.
  local function case_of(family)
    for _, case in ipairs(plan.cases) do
      local place = case.outputs[1] and case.outputs[1][2]
      if case.family == family and type(place) == "table"
        and place[1] == "float32" and place[3][1] ~= 0 then
        return case
      end
    end
  end

  local function copy(case, fields)
    local other = {}
    for key, value in pairs(case) do other[key] = value end
    for key, value in pairs(fields) do other[key] = value end
    return other
  end

  it("sees a number that is another", function()
    local case = case_of "math"
    assert.is_false(seeded.compare(plan, case, 1).outside)
    local moved = {}
    for i, place in ipairs(case.outputs) do moved[i] = place end
    local dtype, first, shape = moved[1][2][1], moved[1][2][2], moved[1][2][3]
    moved[1] = { moved[1][1], { dtype, first + 7, shape } }
    assert.is_true(seeded.compare(plan, copy(case, { outputs = moved }),
      1).outside)
  end)

  it("sees another shape, another dtype and a missing output", function()
    local case = case_of "losses"
    local label, place = case.outputs[1][1], case.outputs[1][2]
    for _, other in ipairs {
      { { label, { place[1], place[2], { 1, 1, 1, 1 } } } },
      { { label, { "float64", 0, place[3] } } }, {} } do
      local row = seeded.compare(plan, copy(case, { outputs = other }), 1)
      assert.is_true(row.outside)
    end
  end)

  it("does not hide behind a listed difference what is not listed", function()
    local own = { vectors = { int64 = tf.constant({ -2, 1, 5 },
      { dtype = "int64" }) } }
    local function compare(count, other)
      return seeded.compare(own, { family = "data", name = "range unique",
        id = "data-0", inputs = {}, program = {
          { as = "cardinality", emit = 1 }, { as = "elements", emit = count },
          { as = "sum", emit = other } },
        outputs = { { "cardinality", { "int64", 0, {} } },
          { "elements", { "int64", 1, {} } }, { "sum", { "int64", 2, {} } } } },
        1)
    end
    local row = compare(1, 5)
    assert.is_false(row.outside)
    assert.truthy(row.listed)
    row = compare(1, 6)
    assert.is_true(row.outside)
    assert.equal("sum: element 0 is 6, not 5", row.message)
    -- A number of elements that is not true is no better than none.
    assert.is_true(compare(2, 5).outside)
  end)

  it("may differ for a reason that the case has, not for its name", function()
    local function reason(shape, message)
      return listed.reason({ family = "losses", inputs = { { "float32", 0, shape },
        { "float32", 0, shape } }, program = {},
        name = "Poisson none, weights of rank 0 of 1" }, message, math.huge, {})
    end
    assert.truthy(reason({ 1, 3 }, "value: shape {1}, not {}"))
    assert.is_nil(reason({ 2, 3 }, "value: shape {1}, not {}"))
    assert.is_nil(reason({ 1, 3 }, "value: element 0 is 1, not 2"))
  end)

  it("sees a program that fails", function()
    local row = seeded.compare(plan, copy(case_of "math", { program = {
      { emit = { call = "no_such_op", args = {}, options = {} },
        as = "value" } } }), 1)
    assert.is_true(row.outside)
    assert.truthy(row.message)
  end)
end)
