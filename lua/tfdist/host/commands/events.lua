--- `tfdist events ls RUN...`, `tfdist events plot RUN [TAG...]`: event files
--- (tf.summary, TensorBoard) on the terminal. As in TensorBoard every folder
--- is a run, and runs keep their own curves.
local events = require "tfdist.io.events"
local text = require "tfdist.base.text"

local USAGE = [[
usage: tfdist events ls RUN...          tags, steps and last values
       tfdist events plot RUN [TAG...]  curves of scalars
RUN is an event file or a folder of them; each folder in it is a run of its
own, whose name comes first.]]

local WIDTH, HEIGHT = 64, 12

local printable = text.printable

-- The run of a file: its folder below `path`, "." for path itself.
local function run_of(file, path)
  return file:sub(#path + 2):match("^(.*)/[^/]*$") or "."
end

-- Series of all files below path: list of { run, tag, kind, points }, by run
-- and first use. Runs have no name when there is none but path itself.
local function collect(path)
  local order, by_run = {}, {}
  local files = events.files(path)
  local named = false
  for _, file in ipairs(files) do
    named = named or run_of(file, path) ~= "."
  end
  for _, file in ipairs(files) do
    local run = run_of(file, path)
    local by_tag = by_run[run] or {}
    by_run[run] = by_tag
    local cut = events.read(file, function(event)
      for _, value in ipairs(event.values) do
        local series = by_tag[value.tag]
        if series == nil then
          series = { run = run, name = named and printable(run),
            tag = printable(value.tag), at = #order + 1,
            kind = printable(value.kind or "tensor") }
          by_tag[value.tag] = series
          order[#order + 1] = series
        end
        series[#series + 1] = { event.step, value.value }
      end
    end)
    if cut ~= nil then
      io.stderr:write("tfdist events: ", printable(cut),
        " (still being written?)\n")
    end
  end
  for _, series in ipairs(order) do
    for i, point in ipairs(series) do
      point[3] = i
    end
    table.sort(series, function(a, b)
      if a[1] ~= b[1] then
        return a[1] < b[1]
      end
      return a[3] < b[3]
    end)
  end
  table.sort(order, function(a, b)
    if a.run ~= b.run then
      return a.run < b.run
    end
    return a.at < b.at
  end)
  return order
end

-- "2 runs": how many different values a field of the series has.
local function count(list, field)
  local seen, n = {}, 0
  for _, series in ipairs(list) do
    if not seen[series[field]] then
      seen[series[field]], n = true, n + 1
    end
  end
  return ("%d %s%s"):format(n, field, n == 1 and "" or "s")
end

local function number(x)
  return x and ("%.5g"):format(x) or "-"
end

local function pad(s, width)
  return s .. (" "):rep(width - #s)
end

local function ls(...)
  for _, path in ipairs { ... } do
    local list = collect(path)
    local width = 0
    for _, series in ipairs(list) do
      width = math.max(width, series.name and #series.name + 2 or 0)
    end
    print(("%s: %s%s"):format(printable(path), width > 0
      and count(list, "run") .. ", " or "", count(list, "tag")))
    for _, series in ipairs(list) do
      print(("  %s%-32s %-10s %6d values, steps %d..%d, last %s"):format(
        series.name and pad(series.name, width) or "", series.tag,
        series.kind, #series, series[1][1], series[#series][1],
        number(series[#series][2])))
    end
  end
  return 0
end

local function range(series)
  local low, high = math.huge, -math.huge
  for _, point in ipairs(series) do
    local y = point[2]
    if y ~= nil and y == y and y > -math.huge and y < math.huge then
      low, high = math.min(low, y), math.max(high, y)
    end
  end
  return low, high
end

-- Rows of a chart; the last value of each column is drawn.
local function chart(series)
  local low, high = range(series)
  if low > high then
    print("  no finite values")
    return
  end
  local first, last = series[1][1], series[#series][1]
  local span, height = math.max(last - first, 1), high - low
  local columns = {}
  for _, point in ipairs(series) do
    local y = point[2]
    if y ~= nil and y >= low and y <= high then
      local x = math.floor((point[1] - first) / span * (WIDTH - 1) + 0.5)
      columns[x] = height == 0 and 0
        or math.floor((y - low) / height * (HEIGHT - 1) + 0.5)
    end
  end
  for row = HEIGHT - 1, 0, -1 do
    local line = {}
    for x = 0, WIDTH - 1 do
      line[#line + 1] = columns[x] == row and "*" or " "
    end
    local label = row == HEIGHT - 1 and number(high) or row == 0 and number(low)
      or ""
    print((("%11s |%s"):format(label, table.concat(line)):gsub("%s+$", "")))
  end
  print((" "):rep(12) .. "+" .. ("-"):rep(WIDTH))
  local from, to = ("%d"):format(first), ("%d"):format(last)
  print((" "):rep(13) .. from .. (" "):rep(math.max(1, WIDTH - #from - #to))
    .. to)
end

local function plot(path, ...)
  local wanted, n, shown = {}, select("#", ...), 0
  for _, tag in ipairs { ... } do
    wanted[tag] = true
  end
  for _, series in ipairs(collect(path)) do
    if series.kind == "scalars" and (n == 0 or wanted[series.tag]) then
      shown = shown + 1
      print(("%s%s  (%d values, last %s)"):format(
        series.name and series.name .. "  " or "", series.tag, #series,
        number(series[#series][2])))
      chart(series)
    end
  end
  if shown == 0 then
    io.stderr:write("tfdist events: no such scalars in ", printable(path),
      "\n")
    return 1
  end
  return 0
end

return function(action, path, ...)
  if path == nil or (action ~= "ls" and action ~= "plot") then
    io.stderr:write(USAGE, "\n")
    return 2
  end
  return (action == "ls" and ls or plot)(path, ...)
end
