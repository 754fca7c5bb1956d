--- Every block of README.md runs: `lua` blocks on both hosts, `sh` blocks in
--- a shell with the documented folder layout, those of `sh srun` under a Slurm of
--- two nodes and those of `sh mpirun` where MPI is. A `c` block is part of a program:
--- it compiles.

local mpi = require "spec.support.mpi"
local process = require "spec.support.process"

local DEADLINE = 1200 -- seconds; some blocks train for an epoch

-- The set-up commands are what runs this spec.
local SET_UP = { "^scripts/demo", "^scripts/check" }

-- What a `c` block stands in; "…" is what it leaves out.
local C_PROGRAM = [[
#include <tfdist.h>
void block(tfd_device *const *devices, tfd_object *start, tfd_tensor *batch,
           tfd_variable **copies, tfd_object **gradients);
void block(tfd_device *const *devices, tfd_object *start, tfd_tensor *batch,
           tfd_variable **copies, tfd_object **gradients) {
  tfd_strategy *strategy;
  tfd_object *w;
  tfd_value *x;
  tfd_tensor *y;
  tfd_run *run;
  tfd_run_event event;
  int replica, n;
%s}
]]

-- What blocks are run by that others start, and why they cannot be.
local STARTERS = {
  ["sh srun"] = { by = "spec/support/slurm.sh sh", who = "Slurm",
    lacks = function()
      local r = process.run "spec/support/slurm.sh true"
      return r.code ~= 0 and "no Slurm on this machine: " .. r.err
    end },
  ["sh mpirun"] = { by = "env -u OMPI_ALLOW_RUN_AS_ROOT "
    .. "-u OMPI_ALLOW_RUN_AS_ROOT_CONFIRM "
    .. "OMPI_MCA_rmaps_base_oversubscribe=1 sh",
    who = "MPI", lacks = function()
      return mpi.all[1] == nil and mpi.why
    end },
}

local function blocks()
  local list, line = {}, 0
  local language, at, text
  for s in io.lines "README.md" do
    line = line + 1
    local fence = s:match "^```(.*)$"
    if s:find "^prints `" then
      list[#list].prints = s:match "^prints `([^`]*)`"
    end
    if fence and text then
      list[#list + 1] = { language = language, line = at,
        text = table.concat(text, "\n") .. "\n" }
      text = nil
    elseif fence then
      language, at, text = fence, line, {}
    elseif text then
      text[#text + 1] = s
    end
  end
  assert(text == nil, "README.md: a block is not closed")
  return list
end

local function is_set_up(text)
  for _, pattern in ipairs(SET_UP) do
    if text:find(pattern) then return true end
  end
  return false
end

describe("README.md #once", function()
  for _, block in ipairs(blocks()) do
    local where = "line " .. block.line
    if block.language == "lua" then
      for _, host in ipairs(process.hosts) do
        it(("%s runs on %s"):format(where, host.name), function()
          local path = process.file(block.text, ".lua")
          local r = process.run(host.path .. " " .. path, nil, DEADLINE)
          os.remove(path)
          assert.equal(0, r.code, r.err)
          if block.prints then assert.equal(block.prints .. "\n", r.out) end
        end)
      end
    elseif block.language == "sh" and not is_set_up(block.text) then
      it(where .. " runs in the shell", function()
        -- What it installs for a user goes into a home of its own.
        local path = process.file("set -e\n" .. block.text, ".sh")
        local r = process.run("HOME=$(mktemp -d) && export HOME && "
          .. "PATH=\"$PWD/build:$PATH\" sh " .. path
          .. " && rm -rf \"$HOME\"", nil, DEADLINE)
        os.remove(path)
        assert.equal(0, r.code, r.out .. r.err)
      end)
    elseif STARTERS[block.language] then
      it(where .. " runs where processes are started: " .. block.language,
        function()
          local starter = STARTERS[block.language]
          local why = starter.lacks()
          if why then
            pending(why)
            return
          end
          local path = process.file("set -e\n" .. block.text, ".sh")
          local r = process.run(("PATH=\"$PWD/build:$PATH\" %s %s"):format(
            starter.by, path), nil, DEADLINE)
          os.remove(path)
          assert.equal(0, r.code, r.err)
          assert.is_truthy(r.err:find("cluster from " .. starter.who
            .. ": 2 workers", 1, true), r.err)
          assert.is_truthy(r.out:find("I am worker 1 of 2 workers", 1, true),
            r.out)
        end)
    elseif block.language == "c" then
      it(where .. " compiles", function()
        local r = process.run("gcc -std=c11 -Wall -Wextra -Werror -Isrc "
          .. "-fsyntax-only -x c -", C_PROGRAM:format(block.text:gsub("…", "")))
        assert.equal(0, r.code, r.err)
      end)
    end
  end

  it("has blocks of these kinds only, and says what the first prints",
    function()
      local seen = {}
      for _, block in ipairs(blocks()) do seen[block.language] = true end
      assert.same({ lua = true, sh = true, c = true, text = true,
        ["sh srun"] = true, ["sh mpirun"] = true }, seen)
      assert.is_string(blocks()[1].prints)
    end)
end)

describe("src/README.md #once", function()
  it("names files that are there", function()
    local file = assert(io.open "src/README.md")
    local text, seen = file:read "*a", 0
    file:close()
    for path in text:gmatch "`([%l_]+/[%w_./]+)`" do
      if not path:find "^build/" and not path:find "%u%u" then
        local found = io.open(path)
        assert.truthy(found, path)
        found:close()
        seen = seen + 1
      end
    end
    assert.is_true(seen > 10)
  end)
end)
