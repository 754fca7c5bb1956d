--- The prompt and the progress bar as they look in a terminal.
---
--- Golden files are spec/transcripts/*.txt; what differs from run to run
--- (times, versions) is masked. To write them anew, and look at the difference:
---   make && TFDIST_TRANSCRIPTS=write lua5.4 /usr/bin/busted \
---     spec/transcripts_spec.lua; git diff spec/transcripts
--- (with LUA_PATH and LUA_CPATH as in scripts/test.lua)
local process = require "spec.support.process"
local terminal = require "spec.transcripts.terminal"

local quote = process.quote
local writing = os.getenv "TFDIST_TRANSCRIPTS" == "write"
local NO_TMUX = "needs tmux (apt-get install tmux)"
local has_tmux = process.run("tmux -V").code == 0

local MASKS = {
  { "tfdist %d[%w.]* (%S+) Lua%S* %S+", "tfdist VERSION %1 ENGINE" },
  { "[━─]+", "BAR" },
  { "[%d:]+s? left", "TIME left" }, { "[%d.]+ [mu]?s/step", "TIME/step" },
  { "[%d.]+k? ex/s", "RATE ex/s" },
  { "(/%d+  )[%d.:]+ ?s?( · )", "%1TIME%2" },
}

local function masked(text)
  for _, mask in ipairs(MASKS) do
    text = text:gsub(mask[1], mask[2])
  end
  return text
end

local function read(path)
  local file = io.open(path, "rb")
  local text = file and file:read "*a"
  if file then file:close() end
  return text
end

-- Compare with a golden file; a difference is shown as diff shows it.
local function check(name, text)
  local path = ("spec/transcripts/%s.txt"):format(name)
  text = masked(text)
  if writing then
    local file = assert(io.open(path, "wb"))
    file:write(text)
    file:close()
  elseif read(path) ~= text then
    local got = process.file(text)
    local shown = process.run(("diff -u --label %s --label now %s %s"):format(
      path, path, got)).out
    os.remove(got)
    error(("not as in the transcript:\n%s"):format(shown), 0)
  end
end

describe("a transcript #once", function()
  local folder, screen

  before_each(function()
    folder = process.run("mktemp -d").out:gsub("%s+$", "")
  end)

  after_each(function()
    local gone = screen == nil or screen:close()
    screen = nil
    process.run("rm -r " .. quote(folder))
    assert.is_true(gone, "tmux goes on")
  end)

  local function open(command, columns)
    screen = terminal.open(command, { folder = folder, columns = columns })
  end

  for _, host in ipairs(process.hosts) do
    it("shows the prompt of " .. host.name, function()
      if not has_tmux then pending(NO_TMUX) end
      open(host.path .. " --cpu-devices=2", 100)
      screen:wait "\n>"
      for _, entry in ipairs {
        { "1 + 2, \"text\"" },
        { "local t = tf.constant { { 1, 2 }, { 3, 4 } }" },
        { "t" },
        { "for i = 0, 1 do", "\n>>" },
        { "  print(i, t[i]:sum())", "\n>>" },
        { "end" },
        { "tf.reduce_sum(t, { axis = 2 })" },
        { "x = = 2" },
        { "?tf.add" },
      } do
        screen:type(entry[1])
        -- The whole line after a prompt: an earlier one may contain it.
        screen:wait("\n>+ " .. entry[1]:gsub("%p", "%%%0") .. "%f[\n].*"
          .. (entry[2] or "\n>"))
      end
      screen:keys("-l", "half a line")
      screen:wait "half a line"
      screen:keys "C-c"
      screen:wait "half a line.*\n>"
      screen:type "print \"busy\" while true do tf.add(1, 1) end"
      screen:wait "\nbusy"
      screen:keys "C-c"
      screen:wait "busy\n.*\n>"
      screen:keys "C-d"
      screen:wait "exit status %d+"
      check("prompt", screen:text())
    end)
  end

  it("shows the bar of fit", function()
    if not has_tmux then pending(NO_TMUX) end
    local pipe = folder .. "/pipe"
    process.run("mkfifo " .. quote(pipe))
    open(("%s spec/transcripts/fit.lua %s"):format(process.hosts[1].path,
      pipe), 80)
    local shown = {}
    for epoch = 1, 2 do
      -- Up to its last digit, however the terminal takes it.
      screen:wait(("Epoch %d/2\n 6/8 .* loss %%d%%.%%d%%d%%d%%d"):format(epoch))
      shown[epoch] = screen:text()
      process.run(("echo on >%s"):format(quote(pipe)))
    end
    screen:wait "exit status %d+"
    check("bar", shown[1] .. "--- later\n" .. shown[2] .. "--- in the end\n"
      .. screen:text())
  end)

  it("shows lines of fit where there is no terminal", function()
    local result = process.run("LC_ALL=C.UTF-8 " .. process.hosts[1].path
      .. " spec/transcripts/fit.lua")
    assert.equal(0, result.code, result.err)
    assert.equal("", result.out)
    check("lines", result.err:gsub("\r", "<CR>"):gsub("\27", "<ESC>"))
  end)
end)
