--- Lines on the terminal, and everything again as JSON.
local M = {}

local record = { limits = {}, rows = {}, notes = {} }
local current

--- Statistics -----------------------------------------------------------------

function M.percentile(list, share)
  local sorted = { table.unpack(list) }
  table.sort(sorted)
  local i = math.floor(share * (#sorted - 1) + 0.5) + 1
  return sorted[i]
end

function M.median(list)
  return M.percentile(list, 0.5)
end

--- Text -----------------------------------------------------------------------

local UNITS = { { 1, "s" }, { 1e-3, "ms" }, { 1e-6, "us" }, { 0, "ns" } }

--- A time for people; other units are printed as they are.
function M.value(x, unit)
  if x == nil then
    return "-"
  elseif unit ~= "s" then
    return ("%.4g %s"):format(x, unit or "")
  end
  for _, u in ipairs(UNITS) do
    if x >= u[1] then
      return ("%.4g %s"):format(x / (u[1] > 0 and u[1] or 1e-9), u[2])
    end
  end
end

local function out(...)
  io.stdout:write(string.format(...), "\n")
  io.stdout:flush()
end

function M.note(...)
  local text = string.format(...)
  record.notes[#record.notes + 1] = text
  out("  %s", text)
end

local LINE = "  %-34s %10s %10s %8s %-13s %-10s %s"

function M.section(name, title, load)
  current = { name = name, lines = {}, other_cores = load }
  record.rows[#record.rows + 1] = current
  out("")
  out("%s: %s  [others: %.1f cores]", name, title, load)
  out(LINE, "", "ours", "reference", "ratio", "p10-p90", "goal", "")
end

-- { at_most = 1.1 } or { at_least = 5 }; `of` names what the goal is about.
local function goal_text(goal)
  if goal == nil then return "" end
  local bound = goal.at_most or goal.at_least
  local text = goal.unit and M.value(bound, goal.unit) or ("%.4g"):format(bound)
  return (goal.at_most and "<= " or ">= ") .. text
end

local function verdict(value, goal, inconclusive)
  if goal == nil or value == nil then return "" end
  if inconclusive then return "INCONCLUSIVE" end
  local ok
  if goal.at_most then
    ok = value <= goal.at_most
  else
    ok = value >= goal.at_least
  end
  return ok and "met" or "missed"
end

--- One line. r: result of bench.compare, or { ours = x } alone; goal is about
--- the ratio, or about ours when it has a unit; unit: "s" or a name.
function M.line(name, r, goal, unit)
  local subject = goal and goal.unit and r.ours or r.ratio
  local said = verdict(subject, goal, r.inconclusive)
  local range = r.low and ("%.3g-%.3g"):format(r.low, r.high) or ""
  out(LINE, name, M.value(r.ours, unit or "s"),
    M.value(r.reference, unit or "s"),
    r.ratio and ("%.2f"):format(r.ratio) or "", range, goal_text(goal), said)
  local line = { name = name, unit = unit or "s", goal = goal_text(goal),
                 verdict = said }
  for k, v in pairs(r) do line[k] = v end
  current.lines[#current.lines + 1] = line
  if r.apart then
    out("    does not count: the reference alone takes %s",
      M.value(r.alone, unit or "s"))
  end
end

--- A line that could not be measured.
function M.failed(name, why)
  out("  %-34s could not be measured: %s", name, why or "?")
  current.lines[#current.lines + 1] = { name = name, failed = why or "?" }
end

function M.limits()
  out("")
  out("limits: what this machine can do, best of five")
end

function M.limit(name, value, unit)
  record.limits[name] = value
  out("  %-34s %10s", name, M.value(value, unit))
end

--- JSON -----------------------------------------------------------------------

local function json(value, indent)
  local kind = type(value)
  if kind == "number" then
    return value == value and math.abs(value) < math.huge
      and ("%.9g"):format(value) or "null"
  elseif kind == "string" then
    return '"' .. value:gsub('[%c"\\]', function(c)
      return ("\\u%04x"):format(c:byte())
    end) .. '"'
  elseif kind ~= "table" then
    return tostring(value)
  end
  local inner, parts = indent .. "  ", {}
  local is_list = #value > 0 or next(value) == nil
  if is_list then
    for i, v in ipairs(value) do parts[i] = inner .. json(v, inner) end
  else
    local names = {}
    for k in pairs(value) do names[#names + 1] = k end
    table.sort(names)
    for i, k in ipairs(names) do
      parts[i] = inner .. json(k, inner) .. ": " .. json(value[k], inner)
    end
  end
  local open, shut = is_list and "[" or "{", is_list and "]" or "}"
  if #parts == 0 then return open .. shut end
  return open .. "\n" .. table.concat(parts, ",\n") .. "\n" .. indent .. shut
end

function M.open(fields)
  for k, v in pairs(fields) do record[k] = v end
  record.date = os.date "!%Y-%m-%dT%H:%M:%SZ"
end

--- Write everything to `path` and count the verdicts.
function M.close(path, bench)
  local counts = {}
  for _, row in ipairs(record.rows) do
    for _, line in ipairs(row.lines) do
      local said = line.verdict or ""
      counts[said] = (counts[said] or 0) + 1
    end
  end
  record.broken = bench.broken
  out("")
  out("goals: %d met, %d missed, %d inconclusive; numbers in %s",
    counts.met or 0, counts.missed or 0, counts.INCONCLUSIVE or 0, path)
  local file = assert(io.open(path, "w"))
  file:write(json(record, ""), "\n")
  file:close()
end

return M
