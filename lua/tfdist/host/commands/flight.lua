--- `tfdist flight FILES...`: what several processes did together, from their
--- flight recorders, and where they part.
local errors = require "tfdist.base.errors"
local pairs = require "tfdist.base.pairs"
local records = require "tfdist.host.records"

local USAGE = [[
usage: tfdist flight FILE...    where the processes of a run part
FILE is what a process recorded, or a folder of such files: `tfdist run` keeps
them beside its logs, TFDIST_FLIGHT=FOLDER asks any worker for one.]]

-- Comparing ---------------------------------------------------------------------

local function clock(us)
  return os.date("%H:%M:%S", math.floor(us / 1e6))
    .. (".%06d"):format(us % 1e6)
end

local function show(flight)
  print(("process %d of %d (pid %s on %s)"):format(flight.process,
    flight.processes, flight.pid, flight.host))
  local last, number = records.last_of(flight)
  if last == nil then
    print "  no collective"
  else
    print(("  collective %d, %s: begun %s, %s"):format(number, records.calls(last),
      clock(last.begun), last.state == "begun" and "not ended"
        or last.state .. " " .. clock(last.ended)))
  end
  if flight.cause ~= "" then
    print("  failed: " .. flight.cause)
  end
end

-- The numbers of a group that any record has and all reach back to.
local function numbers_of(flights, id)
  local from, seen, list = 1, {}, {}
  for _, flight in ipairs(flights) do
    from = math.max(from, flight.groups[id] and flight.groups[id].first or 1)
  end
  for _, flight in ipairs(flights) do
    for _, number in ipairs(records.numbers_of(flight.groups[id] or {})) do
      if number >= from and not seen[number] then
        seen[number] = true
        list[#list + 1] = number
      end
    end
  end
  table.sort(list)
  return list
end

-- What is gathered or scattered may have any size, wherever it is called.
local RAGGED = { all_gather = true, gather = true, scatter = true }

local function without_size(words)
  return RAGGED[words:match "^[%w_]*"] and words:gsub("%[%d+%]", "", 1) or words
end

-- Where collective `number` is not the same for all: lines of words, else nil.
local function differences(flights, id, number)
  local lines, seen, n, open = {}, {}, 0, 0
  for _, flight in ipairs(flights) do
    local group = flight.groups[id]
    local record = group and group[number]
    local words = record and without_size(record.words) or ""
    if not seen[words] then
      seen[words], n = true, n + 1
    end
    open = open + (record and record.state ~= "done" and 1 or 0)
    lines[#lines + 1] = ("  process %d %s"):format(flight.process,
      record == nil and "has not come to it"
        or ("calls %s (%s)"):format(records.calls(record), record.state == "begun"
          and "not ended" or record.state))
  end
  return (n > 1 or open > 0) and lines or nil, n > 1
end

local function group_ids(flights)
  local ids, seen = {}, {}
  for _, flight in ipairs(flights) do
    for id in pairs(flight.groups) do
      if not seen[id] then
        seen[id] = true
        ids[#ids + 1] = id
      end
    end
  end
  table.sort(ids)
  return ids
end

-- Say where a group's processes part; were they together?
local function compare(flights, id, name)
  local numbers = numbers_of(flights, id)
  for _, number in ipairs(numbers) do
    local lines, apart = differences(flights, id, number)
    if lines ~= nil then
      print(("%s at collective %d%s:"):format(apart and "they part"
        or "all came to it, not all ended it,", number, name))
      print(table.concat(lines, "\n"))
      return false
    end
  end
  if #numbers == 0 then
    print(("no collective is in all of the records%s"):format(name))
    return false
  end
  print(("they did the same%s, collectives %d to %d"):format(name, numbers[1],
    numbers[#numbers]))
  return true
end

-- "2, 4 to 7": the processes without a record; how many there are may be
-- damaged.
local function missing(flights)
  local list, next_one = {}, 0
  local function absent(from, to)
    if from <= to then
      list[#list + 1] = from == to and from or from .. " to " .. to
    end
  end
  for _, flight in ipairs(flights) do
    absent(next_one, flight.process - 1)
    next_one = flight.process + 1
  end
  absent(next_one, flights[1].processes - 1)
  if #list > 0 then
    print("no record of process " .. table.concat(list, ", "))
  end
end

-- One start of a run; were all together?
local function tell(flights)
  local ids, together = group_ids(flights), true
  for _, flight in ipairs(flights) do
    show(flight)
  end
  missing(flights)
  for _, id in ipairs(ids) do
    together = compare(flights, id, #ids > 1 and " of group " .. id or "")
      and together
  end
  return together
end

-- The records of each start of a run, in the order of starts.
local function starts_of(flights)
  local lists, by_start = {}, {}
  for _, flight in ipairs(flights) do
    local list = by_start[flight.start]
    if list == nil then
      list = {}
      by_start[flight.start] = list
      lists[#lists + 1] = list
    end
    list[#list + 1] = flight
  end
  table.sort(lists, function(a, b)
    return a[1].start < b[1].start
  end)
  return lists
end

--- 0 when all did the same and ended it, 1 when not, 2 for other files.
return function(...)
  if (... or "-"):sub(1, 1) == "-" then
    io.stderr:write(USAGE, "\n")
    return errors.EXIT_USAGE
  end
  local flights, why = records.read_all(records.files_of { ... })
  if flights == nil then
    io.stderr:write("tfdist flight: ", tostring(why), "\n")
    return errors.EXIT_USAGE
  end
  if #flights == 0 then
    io.stderr:write("tfdist flight: no records in ", table.concat({ ... }, ", "),
      "\n")
    return errors.EXIT_USAGE
  end
  local starts, together = starts_of(flights), true
  for _, list in ipairs(starts) do
    if #starts > 1 then
      print(list[1].start == 0 and "the first start:"
        or ("restart %d:"):format(list[1].start))
    end
    together = tell(list) and together
  end
  return together and 0 or 1
end
