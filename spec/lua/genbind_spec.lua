local process = require "spec.support.process"

local HEAD = [[
typedef enum tfd_handle_kind {
  TFD_HANDLE_TENSOR = 0,
  TFD_HANDLE_DEVICE,
  TFD_HANDLE_KINDS
} tfd_handle_kind;
typedef enum tfd_mode { TFD_MODE_FAST_ONE = 3, TFD_MODE_SLOW, TFD_MODE_END } tfd_mode;

typedef struct tfd_object tfd_object;
typedef struct tfd_tensor tfd_tensor;
typedef struct tfd_device tfd_device;
TFD_API tfd_object *tfd_retain(tfd_object *object);
TFD_API void tfd_release(tfd_object *object);
TFD_API const char *tfd_error_message(void);
TFD_API const char *tfd_error_hint(void);
TFD_API int tfd_error_replica(void);
TFD_API const char *tfd_error_where(void);
TFD_API const char *tfd_error_note(void);
TFD_API const char *tfd_error_op(void);
TFD_API const char *tfd_error_argument(void);
TFD_API int64_t tfd_error_bound(void);
TFD_API int tfd_error_exit_code(void);
TFD_API void tfd_context_set_position(const char *file, int line);
TFD_API int tfd_tensor_read(tfd_tensor *tensor, void *data, size_t data_bytes);
TFD_API int tfd_tensor_values(tfd_tensor *tensor, double *values, int64_t values_n);
TFD_API int tfd_tensor_data(tfd_tensor *tensor, void **data_p);
TFD_API int tfd_op_run(int op, tfd_object *const *inputs, int inputs_n,
                       tfd_tensor **outputs, int outputs_capacity);
TFD_API int tfd_op_call(const char *name, tfd_tensor **outputs,
                        int outputs_capacity, int *outputs_n_p);
]]

-- Run the generator on HEAD and more declarations; result and both texts.
local function generate(declarations, head)
  local folder = os.tmpname()
  os.remove(folder)
  os.execute("mkdir " .. folder)
  local header = process.file((head or HEAD) .. declarations, ".h")
  local r = process.run(("%s scripts/genbind.lua %s %s"):format(
    rawget(_G, "jit") and "luajit" or "lua5.4", header, folder))
  local c, lua = "", ""
  if r.code == 0 then
    local f = assert(io.open(folder .. "/bind_gen.c"))
    c = f:read("*a")
    f:close()
    f = assert(io.open(folder .. "/ffi_wrappers.lua"))
    lua = f:read("*a")
    f:close()
  end
  os.remove(header)
  os.execute("rm -r " .. folder)
  return r, c, lua
end

describe("the binding generator #once", function()
  it("reads functions, lists, strings, enums and results", function()
    local r, c, lua = generate [[
/** Doc. NULL = current. */
TFD_API int tfd_tensor_make(const int64_t *dims, int dims_n, tfd_mode mode,
                            const char *name, bool flag, tfd_device *device,
                            tfd_tensor **tensor_p);
TFD_API int64_t tfd_tensor_size(const tfd_tensor *tensor);
TFD_API int tfd_tensor_rank(const tfd_tensor *tensor);
TFD_API int tfd_stats(int64_t *a_p, double *b_p, tfd_mode *mode_p);
]]
    assert.equal("", r.err)
    assert.equal(0, r.code)
    assert.matches("{\"fast_one\", TFD_MODE_FAST_ONE}", c)
    assert.is_nil(c:find("TFD_MODE_END", 1, true))
    assert.matches("tfd__lua_handle_or_nil%(L, TFD_HANDLE_DEVICE", c)
    assert.matches("{\"tensor_make\", bind_tensor_make}", c)
    assert.matches("\"Tensor:size\"", c)
    -- A quantity is a result, a status is not.
    assert.matches("lua_pushinteger%(L, %(lua_Integer%)tfd_tensor_rank", c)
    assert.matches("TFD_LUA_TRY%(L, tfd_stats%(&a_p, &b_p, &mode_p%)%)", c)
    assert.matches("function M%.tensor_make%(dims, mode, name, flag, device%)",
      lua)
    assert.truthy((rawget(_G, "loadstring") or load)(lua))
  end)

  it("stops at what it cannot translate, naming it", function()
    for declaration, name in pairs {
      ["TFD_API int tfd_odd(void (*fn)(int));"] = "",
      ["TFD_API int tfd_odd(struct stat *s);"] = "tfd_odd",
      ["TFD_API int tfd_odd(char *buffer);"] = "buffer",
      ["TFD_API struct x tfd_odd(void);"] = "tfd_odd",
      ["TFD_API int tfd_odd(const float *xs, int xs_n);"] = "xs",
      ["TFD_API int tfd_odd(tfd_tensor **a_p, tfd_tensor **b_p);"] = "several",
    } do
      local r = generate(declaration .. "\n")
      assert.equal(1, r.code, declaration)
      assert.matches(name, r.err)
    end
  end)

  it("stops when a function on its skip list is gone", function()
    local r = generate("", (HEAD:gsub("TFD_API int tfd_tensor_data[^\n]*", "")))
    assert.equal(1, r.code)
    assert.matches("tfd_tensor_data", r.err)
  end)
end)
