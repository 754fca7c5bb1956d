--- What processes recorded of their collectives (flight records), as tables.
local raw = require "tfdist.core.raw"

local M = {}

local function fields(line)
  local list = {}
  for field in (line .. "\t"):gmatch "([^\t]*)\t" do
    list[#list + 1] = field
  end
  return list
end

--- One record: { path, process, processes, pid, host, cause, groups = { [group]
--- = { first, last, [number] = { state, begun, ended, words, place, order } } }
--- }; times are microseconds since 1970.
--- Errors: what cannot be read, and what is no record.
function M.read(path)
  local flight, order = nil, 0
  for line in raw.flight_read(path):gmatch "[^\n]+" do
    local f = fields(line)
    if flight == nil then
      flight = { path = path, process = tonumber(f[1]),
        processes = tonumber(f[2]), pid = f[3], host = f[4], cause = f[5],
        groups = {} }
    else
      local number = tonumber(f[2])
      local group = flight.groups[tonumber(f[1])] or { first = number }
      order = order + 1
      flight.groups[tonumber(f[1])] = group
      group.last = number
      group[number] = { state = f[3], begun = tonumber(f[4]),
        ended = tonumber(f[5]), words = f[6], place = f[7], order = order }
    end
  end
  return flight
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
