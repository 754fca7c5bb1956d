--- JSON: what values become, and what is refused, with its place.
local json = require "tfdist.core.json"
local raw = require "tfdist.core.raw"

local function failure(fn, ...)
  local ok, e = pcall(fn, ...)
  assert.is_false(ok)
  return ("%s: %s"):format(e.kind, e.message)
end

local function refuses(source, where)
  assert.matches("^ValueError: x: not JSON at " .. where,
    failure(json.decode, source, "x"))
end

describe("JSON that is read", function()
  it("gives tables, lists with n, texts, numbers, null", function()
    assert.same({ a = { 1, -2500, true, n = 3 }, b = "é\n\0", c = {},
      d = { n = 0 } }, json.decode([[{"a": [1, -2.5e3, true],
        "b": "\u00e9\n\u0000", "c": {}, "d": []}]]))
    assert.equal(json.null, json.decode " null ")
    assert.equal("😀", json.decode '"\\ud83d\\ude00"')
    assert.equal(false, json.decode "false")
    assert.equal(9007199254740993 / 3, json.decode "9007199254740993" / 3)
    assert.equal(1e-5, json.decode "1E-5")
  end)

  it("is told where it goes wrong", function()
    refuses("", "line 1, column 0")
    refuses("{\n  \"a\": 1,\n  \"a\": 2}", "line 3")
    refuses("[1,]", "line 1, column 4")
    refuses("[1] 2", "line 1, column 5")
    refuses("[01]", "line 1")
    refuses("[\"a\tb\"]", "line 1")
    refuses("[\"\\ud800\"]", "line 1")
    refuses("[\"\255\"]", "line 1")
    refuses("[1e400]", "line 1")
    refuses("[9223372036854775808]", "line 1")
    refuses("\n" .. ("["):rep(65), "line 2, column 65: nested deeper than 64")
    assert.equal("TypeError: x: expected JSON text, got nil",
      failure(json.decode, nil, "x"))
  end)

  it("may have brackets in its texts and 64 levels", function()
    assert.equal(("["):rep(100), json.decode(('"%s"'):format(("["):rep(100))))
    assert.equal('"]', json.decode '"\\"]"')
    local deep = json.decode(("["):rep(64) .. ("]"):rep(64))
    for _ = 1, 63 do deep = deep[1] end
    assert.equal(0, deep.n)
  end)
end)

describe("JSON that is written", function()
  it("has its keys sorted, lists where keys are positions", function()
    assert.equal('{"a":[1,2.5,"x\\n"],"b":{},"c":[],"d":null,"e":[null,true]}',
      json.encode { e = { n = 2, nil, true }, d = json.null, c = { n = 0 },
        b = {}, a = { 1, 2.5, "x\n" } })
    assert.equal('{\n  "a": [\n    1\n  ],\n  "b": {}\n}',
      json.encode({ a = { 1 }, b = {} }, true))
    -- objects may have a key n
    assert.equal('{"a":1,"n":2}', json.encode(json.decode '{"n":2,"a":1}'))
    assert.matches("^ValueError: json.encode: a list of 9e%+15 with 0 elements",
      failure(json.encode, json.decode '{"n":9e15}'))
    assert.equal("[0,-7,9007199254740991]", json.encode { 0, -7.0, 2 ^ 53 - 1 })
    assert.equal('"\\u0000\\u0001é/"', json.encode "\0\1é/")
  end)

  it("gives doubles back to the last bit", function()
    for _, x in ipairs { 0.1, 1 / 3, 1e300, 5e-324, 2 ^ 53, -2 ^ 70, 1e22 } do
      assert.equal(x, json.decode(json.encode { x })[1])
    end
  end)

  it("refuses what JSON cannot say", function()
    local own = {}
    own[1] = own
    assert.matches("^ValueError: .*contains itself", failure(json.encode, own))
    assert.matches("^ValueError: .*no NaN", failure(json.encode, { 0 / 0 }))
    assert.matches("^ValueError: .*no %-inf", failure(json.encode, -math.huge))
    assert.matches("^ValueError: .*UTF%-8", failure(json.encode, { "\255" }))
    assert.matches("^ValueError: .*UTF%-8",
      failure(json.encode, { ["\255"] = 1 }))
    assert.matches("^ValueError: .*zero", failure(json.encode, { ["a\0"] = 1 }))
    assert.matches("^TypeError: .*a key must be a string, got",
      failure(json.encode, { [true] = 1 }))
    assert.matches("^TypeError: .*a key must be a string, got",
      failure(json.encode, { 1, 2, a = 3 }))
    assert.matches("^TypeError: .*cannot write a function",
      failure(json.encode, { print }))
  end)
end)

describe("JSON without memory", function()
  after_each(function() raw.test_fail_allocation(0) end)

  -- Fails the n-th allocation alone, then all from the n-th on.
  local function each_failure(fn, want)
    for sign = -1, 1, 2 do
      local n, failed = 1, 0
      while true do
        raw.test_fail_allocation(sign * n)
        local ok, got = pcall(fn)
        raw.test_fail_allocation(0)
        if ok then
          assert.equal(want, got)
        else
          failed = failed + 1
          assert.equal("ResourceExhausted", got.kind)
        end
        assert.equal(want, fn())
        if ok and sign < 0 or n == 60 then break end
        n = n + 1
      end
      assert.is_true(sign > 0 or failed > 3)
    end
  end

  it("is ResourceExhausted, and works once there is some", function()
    local source = '{"a":["text",1.5,{"b":null}],"c":"\\u00e9"}'
    each_failure(function() return json.decode(source).a[1] end, "text")
    local value = json.decode(source)
    each_failure(function() return json.encode(value) end,
      '{"a":["text",1.5,{"b":null}],"c":"é"}')
  end)
end)
