--- Linear algebra by LAPACK: what the case table cannot say. Sizes at which
--- blocks and tiles count, cores, devices, what is not read, what is missing.
local tf = require "tfdist"
local leaks = require "spec.support.leaks"
local process = require "spec.support.process"

local function failure(fn, ...)
  local args = { ... }
  local ok, e = pcall(function()
    fn(args[1], args[2])
    tf.sync_devices()
  end)
  assert.is_false(ok)
  return e.kind .. ": " .. e.message
end

-- Whole numbers from -4 to 4.
local function whole(dims, dtype)
  local n = 1
  for _, d in ipairs(dims) do n = n * d end
  local x = tf.range(0, n, 1, { dtype = "int64" }) * 7919 % 9 - 4
  return tf.cast(tf.reshape(x, dims), dtype)
end

-- Differences of neighbours: 2 on the diagonal, -1 beside it. Eigenvalue k of
-- n is 2 - 2 cos(pi k / (n + 1)); the determinant is n + 1.
local function differences(n, dtype)
  local row = tf.range(n)
  local distance = tf.abs(tf.expand_dims(row, 1) - row)
  local zero = tf.zeros({ n, n }, dtype)
  return tf.where(distance:equal(0), zero + 2,
    tf.where(distance:equal(1), zero - 1, zero))
end

local function furthest(a, b)
  return tf.reduce_max(tf.abs(a - b)):item()
end

-- Sums of small whole numbers are exact, in float32 for some thousands of them:
-- int64 products are the reference. Sizes are m, k, n.
local function is_exact(dtype, sizes)
  for _, size in ipairs(sizes) do
    local m, k, n = size[1], size[2], size[3]
    it(("is that of the definition: %d x %d x %d"):format(m, k, n), function()
      for turn = 0, 3 do
        local turn_a, turn_b = turn % 2 == 1, turn > 1
        local function product(of)
          return tf.matmul(whole(turn_a and { k, m } or { m, k }, of),
            whole(turn_b and { n, k } or { k, n }, of), turn_a, turn_b)
        end
        assert.equal(0, furthest(product(dtype),
          tf.cast(product "int64", dtype)))
      end
    end)
  end
end

describe("a float32 product", function()
  leaks(before_each, after_each)

  -- Lines that lie 512 or 1,024 elements apart, of either operand or both; and
  -- tiles of own products with rows and columns left over.
  is_exact("float32", { { 1024, 90, 64 }, { 512, 300, 128 }, { 64, 80, 1024 },
    { 256, 130, 512 }, { 1024, 40, 256 }, { 1024, 33, 1024 }, { 2048, 70, 50 },
    { 4, 64, 64 }, { 1, 9, 17 }, { 7, 5, 33 }, { 5, 300, 16 }, { 13, 40, 48 } })

  it("takes columns of what is wider", function()
    local a, b = whole({ 96, 1024 }, "int64"), whole({ 96, 2048 }, "int64")
    local function product(dtype)
      return tf.matmul(tf.cast(a, dtype)[{ {}, { 101, 613 } }],
        tf.cast(b, dtype)[{ {}, { 7, 71 } }], true)
    end
    assert.same({ 512, 64 }, product "float32".shape)
    assert.equal(0, furthest(product "float32",
      tf.cast(product "int64", "float32")))
  end)
end)

describe("a large float64 product", function()
  leaks(before_each, after_each)

  is_exact("float64", { { 150, 70, 300 }, { 40, 1700, 60 }, { 1100, 40, 1000 },
    { 300, 600, 33 } })

  it("takes views: parts, batches, every other row", function()
    local a, b = whole({ 2, 200, 160 }, "int64"), whole({ 160, 400 }, "int64")
    local function parts(dtype)
      local x, y = tf.cast(a, dtype), tf.cast(b, dtype)
      return tf.matmul(x, y), tf.matmul(x[{ {}, { 1, 190 }, { 2, 160 } }],
        y[{ { 2, 160 }, { 3, 400 } }]), tf.matmul(x[{ 0, { 0, 200, 2 } }],
        y[{ {}, { 0, 400, 2 } }])
    end
    local got, want = { parts "float64" }, { parts "int64" }
    for i = 1, 3 do
      assert.equal(0, furthest(got[i], tf.cast(want[i], "float64")))
    end
  end)
end)

describe("a factorisation", function()
  leaks(before_each, after_each)

  for dtype, tolerance in pairs { float32 = 2e-4, float64 = 1e-11 } do
    it("has the values of closed forms, " .. dtype, function()
      local n = 200
      local a = differences(n, dtype)
      local k = tf.range(1, n + 1, 1, { dtype = dtype })
      local want = 2 - 2 * tf.cos(k * (math.pi / (n + 1)))
      local e, v = tf.linalg.eigh(a)
      local s, u, w = tf.linalg.svd(a)
      local q, r = tf.linalg.qr(a)
      local sign, log = tf.linalg.slogdet(a)
      local l = tf.linalg.cholesky(a)
      local one = tf.eye(n, { dtype = dtype })
      assert.is_true(furthest(e, want) < tolerance)
      assert.is_true(furthest(s, tf.reverse(want, { 0 })) < tolerance)
      assert.is_true(furthest(tf.matmul(v * e, v, false, true), a) < tolerance)
      assert.is_true(furthest(tf.matmul(u * s, w, false, true), a) < tolerance)
      assert.is_true(furthest(tf.matmul(q, r), a) < tolerance)
      assert.is_true(furthest(tf.matmul(q, q, true), one) < tolerance)
      assert.is_true(furthest(tf.matmul(l, l, false, true), a) < tolerance)
      assert.equal(1, sign:item())
      assert.is_true(math.abs(log:item() - math.log(n + 1)) < tolerance * 10)
    end)

    it("undoes itself for many right-hand sides, " .. dtype, function()
      local a = differences(130, dtype) + tf.eye(130, { dtype = dtype })
      a = tf.linalg.set_diag(a, tf.linalg.diag_part(a)[{ { 0, 129 } }] * 0 + 1,
        { k = 1 })
      local x = whole({ 130, 90 }, dtype)
      for _, adjoint in ipairs { false, true } do
        local b = tf.matmul(a, x, adjoint)
        assert.is_true(furthest(tf.linalg.solve(a, b, adjoint), x)
          < tolerance * 10)
        assert.is_true(furthest(tf.matmul(tf.linalg.inv(a, adjoint), b), x)
          < tolerance * 10)
      end
    end)
  end

  it("reads one triangle", function()
    local nan = 0 / 0
    local a = tf.constant { { 4, nan }, { 2, 5 } }
    assert.same({ { 2, 0 }, { 1, 2 } }, tf.linalg.cholesky(a):totable())
    local e = tf.linalg.eigvalsh(tf.constant { { 1, nan }, { 0, 3 } })
    assert.same({ 1, 3 }, e:totable())
    assert.same({ { 1 }, { 0 } }, tf.linalg.triangular_solve(a, { { 4 }, { 2 } })
      :totable())
  end)

  it("tells what is not finite", function()
    for _, bad in ipairs { 0 / 0, math.huge } do
      local a = tf.constant { { { 1, 0 }, { 0, 1 } }, { { bad, 0 }, { 0, 1 } } }
      assert.equal("InvalidArgument: self_adjoint_eig: matrix 1 of the batch "
        .. "has an element that is not finite", failure(tf.linalg.eigh, a))
      assert.equal("InvalidArgument: svd: matrix 1 of the batch has an element "
        .. "that is not finite", failure(tf.linalg.svd, a))
      assert.equal("InvalidArgument: cholesky: matrix 1 of the batch is not "
        .. "positive definite", failure(tf.linalg.cholesky, a))
    end
    assert.equal("InvalidArgument: matrix_inverse: the matrix is not "
      .. "invertible", failure(tf.linalg.inv, { { 0 / 0, 0 }, { 0, 1 } }))
  end)

  it("of nothing is nothing", function()
    local s, u, v = tf.linalg.svd(tf.zeros { 2, 0, 3 })
    assert.same({ 2, 0 }, { s.shape[1], s.shape[2] })
    assert.same({ 2, 0, 0 }, { u.shape[1], u.shape[2], u.shape[3] })
    assert.same({ 2, 3, 0 }, { v.shape[1], v.shape[2], v.shape[3] })
    assert.same({ 1, 1 }, tf.linalg.det(tf.zeros { 2, 0, 0 }):totable())
  end)
end)

describe("linear algebra", function()
  -- Prints every 37th element of what it computes, to the last bit.
  local BITS = [[
    local tf = require "tfdist"
    local function show(x)
      local flat = tf.reshape(x, { -1 })
      for i = 0, flat.shape[1] - 1, 37 do
        io.write(("%.17g "):format(flat:item(i)))
      end
    end
    local a = tf.random.stateless_normal({ 24, 40, 40 }, { 1, 2 },
      { dtype = "float64" })
    local b = tf.reshape(a, { 160, 240 })
    show(tf.matmul(b, b, true)) show(tf.matmul(b, b, false, true))
    show((tf.linalg.eigh(a))) show((tf.linalg.svd(a)))
    show(tf.linalg.inv(a)) show((tf.linalg.qr(a)))
  ]]

  it("gives the same bits whatever the number of cores", function()
    local path = process.file(BITS, ".lua")
    for _, host in ipairs(process.hosts) do
      local one = process.run(host.path .. " --threads=1 " .. path)
      local three = process.run(host.path .. " --threads=3 " .. path)
      assert.equal("", one.err .. three.err)
      assert.is_true(#one.out > 10000)
      assert.equal(one.out, three.out)
    end
    os.remove(path)
  end)

  local MANY = [[
    local tf = require "tfdist"
    local a = tf.random.stateless_normal({ 10, 60, 60 }, { 3, 4 },
      { dtype = "float64" })
    local b = tf.reshape(a, { 200, 180 })
    local function work(results)
      for i = 0, 3 do
        tf.device("/cpu:" .. i, function()
          results[#results + 1] = (tf.linalg.svd(a))
          results[#results + 1] = tf.matmul(b, b, true)
          results[#results + 1] = tf.linalg.inv(a)
        end)
      end
    end
    local results = {}
    for _ = 1, 5 do work(results) end
    for i = 4, #results do
      local first = results[(i - 1) % 3 + 1]
      assert(tf.reduce_all(tf.equal(first, results[i])):item() == true)
    end
    -- What OpenBLAS was told is not what a child is told.
    print(io.popen("env | grep -c OPENBLAS"):read "*n")
  ]]

  it("runs on several devices at once", function()
    local path = process.file(MANY, ".lua")
    for _, host in ipairs(process.hosts) do
      local r = process.run(("TFDIST_CPU_DEVICES=4 TFDIST_QUEUE=queued %s "
        .. "--threads=2 %s"):format(host.path, path))
      assert.equal("", r.err)
      assert.equal("0\n", r.out)
    end
    os.remove(path)
  end)

  local NONE = [[
    local tf = require "tfdist"
    local a = tf.ones({ 200, 200 }, "float64")
    assert(tf.matmul(a, a):item(7) == 200)
    for _ = 1, 2 do
      local ok, e = pcall(function() return tf.linalg.inv(tf.eye(2)):item(0) end)
      assert(not ok and e.kind == "Unavailable", tostring(e))
      print(e.message) print(e.hint)
    end
  ]]

  it("says which package is missing; products do without", function()
    local path = process.file(NONE, ".lua")
    for _, host in ipairs(process.hosts) do
      local r = process.run("TFDIST_LAPACK_LIBRARIES=/nonexistent "
        .. host.path .. " " .. path)
      assert.equal("", r.err)
      local text = "matrix_inverse: LAPACK is not there: "
        .. "/nonexistent/libopenblas.so.0: cannot open shared object file: "
        .. "No such file or directory\n"
        .. "apt-get install liblapacke libopenblas0\n"
      assert.equal(text .. text, r.out)
      for _, queue in ipairs { "inline", "queued" } do
        r = process.run(("TFDIST_LAPACK_LIBRARIES=/nonexistent "
          .. "TFDIST_QUEUE=%s %s doctor"):format(queue, host.path))
        assert.equal(0, r.code)
        assert.matches("no LAPACK for tf%.linalg%s+apt%-get install liblapacke "
          .. "libopenblas0", r.out)
      end
    end
    os.remove(path)
  end)
end)
