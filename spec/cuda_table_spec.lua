--- README names every kernel that a GPU has not, and what those it has refuse.
local function text(path)
  local file = assert(io.open(path))
  local all = file:read "*a"
  file:close()
  return all
end

-- What streams of the CPU alone run, or run as several.
local INSIDE = { row_blocks = true, sum_parts = true, updates = true }

-- By the conditions of table.def, in README's words; false: that is for sizes
-- and mixtures of types which no program has.
local REFUSED = {
  few_rows = "`shuffle` of more than 4096 rows",
  few_halves = "`add_n` of more than 16 of half types",
  one_copy = false,
  small_alike_2_3 = false,
  small_alike_3_4 = false,
  small = false,
  small_out = false,
  small_second = false,
  float_second = false,
  -- What the libraries refuse.
  has_product = false,
  has_conv = false,
  has_conv_input = false,
  has_conv_filter = false,
}

describe("the table of a GPU's kernels #once", function()
  local table_def = text "src/backend/cuda/table.def"
  local said = assert(text "README.md":match
    "\nA GPU has no kernels for (.-)%."):gsub("%s+", " ")

  it("lacks what README says", function()
    local there = {}
    for name in table_def:gmatch "\n[HI][AF]S?%(([%w_]+), " do
      there[name] = true
    end
    local missing, n = {}, 0
    for family in text "src/backend/kernels/all.def":gmatch '"([^"]+)"' do
      for name in text("src/" .. family):gmatch "KERNEL%(([%w_]+)%)" do
        n = n + 1
        if not there[name] and not INSIDE[name] then
          missing[#missing + 1] = name
        end
      end
    end
    assert.is_true(n > 200, n .. " kernels")
    table.sort(missing)
    local named = {}
    for name in said:match "^[^;]*":gmatch "`([%w_]+)`" do
      named[#named + 1] = name
    end
    assert.same(missing, named)
  end)

  it("refuses what README says", function()
    local used = {}
    for condition in table_def:gmatch "\nIF%([%w_]+, [%w_]+, ([%w_]+)%)" do
      used[condition] = true
    end
    for condition, words in pairs(REFUSED) do
      if words then
        assert.equal(used[condition] or false,
          said:find(words, 1, true) ~= nil, words)
      end
      used[condition] = nil
    end
    assert.same({}, used)
  end)
end)
