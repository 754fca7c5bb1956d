--- What processes recorded of their collectives (flight records), as tables.
local pairs = require "tfdist.base.pairs"
local raw = require "tfdist.core.raw"

local M = {}

-- What no process counts to, and no clock shows.
local MAX_NUMBER = 2 ^ 53

local function fields(line)
  local list = {}
  for field in (line .. "\t"):gmatch "([^\t]*)\t" do
    list[#list + 1] = field
  end
  return list
end

-- A number of a record; nil for what damage has made of one.
local function number_of(text)
  local n = tonumber(text)
  return n and n >= 0 and n < MAX_NUMBER and n or nil
end

--- Which start of a run a file is of: 0, or the number of the restart.
function M.start_of(path)
  return tonumber(path:match "%.restart%-(%d+)%.flight$") or 0
end

-- Add a collective to its group, unless it is damaged or its writing has not got
-- far.
local function add(flight, order, f)
  local id, number = tonumber(f[1]), number_of(f[2])
  local begun, ended = number_of(f[4]), number_of(f[5])
  if f[3] == "none" or not (number and begun and ended) then
    return
  end
  local group = flight.groups[id] or { first = number, last = number }
  flight.groups[id] = group
  group.first = math.min(group.first, number)
  group.last = math.max(group.last, number)
  group[number] = { state = f[3], begun = begun, ended = ended, words = f[6],
    place = f[7], order = order }
end

--- One record: { path, start, process, processes, pid, host, cause, groups = {
--- [group] = { first, last, [number] = { state, begun, ended, words, place,
--- order } } } }; times are microseconds since 1970, start counts from 0 how
--- often all were started again. What is damaged is left out: numbers may have
--- any gaps.
--- Errors: what cannot be read, and what is no record.
function M.read(path)
  local flight, order = nil, 0
  for line in raw.flight_read(path):gmatch "[^\n]+" do
    local f = fields(line)
    if flight == nil then
      flight = { path = path, start = M.start_of(path),
        process = tonumber(f[1]), processes = tonumber(f[2]), pid = f[3],
        host = f[4], cause = f[5], groups = {} }
    else
      add(flight, order, f)
      order = order + 1
    end
  end
  return flight
end

--- The numbers of a group's collectives, ascending.
function M.numbers_of(group)
  local list = {}
  for number in pairs(group) do
    if type(number) == "number" then
      list[#list + 1] = number
    end
  end
  table.sort(list)
  return list
end

--- The records among paths: files as they are, and those of folders; sorted.
function M.files_of(paths)
  local list = {}
  for _, path in ipairs(paths) do
    local _, is_folder = raw.file_stat(path)
    if is_folder then
      for name in raw.folder_list(path):gmatch "[^%z]+" do
        if name:find "%.flight$" then
          list[#list + 1] = path .. "/" .. name
        end
      end
    else
      list[#list + 1] = path
    end
  end
  table.sort(list)
  return list
end

--- Those of several files, in the order of processes; nil and why when one is
--- none.
function M.read_all(paths)
  local flights = {}
  for _, path in ipairs(paths) do
    local done, flight = pcall(M.read, path)
    if not done then
      return nil, flight
    end
    flights[#flights + 1] = flight
  end
  table.sort(flights, function(a, b)
    return a.process < b.process
  end)
  return flights
end

--- A process's last collective, its number and its group's: of all its groups;
--- nil when it had none.
function M.last_of(flight)
  local last, number, id
  for key, group in pairs(flight.groups) do
    local record = group[group.last]
    if last == nil or record.order > last.order then
      last, number, id = record, group.last, key
    end
  end
  return last, number, id
end

--- "all_reduce sum of float32[4] at train.lua:7"
function M.calls(record)
  return record.words .. (record.place ~= "" and " at " .. record.place or "")
end

return M
