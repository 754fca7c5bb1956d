--- What differs from TensorFlow on purpose, or is TensorFlow's own fault.
---
--- An entry: the names of cases it is for (a pattern), what the message says (a
--- pattern, where only that is meant), how many bounds the difference may be
--- (any, where not given), and why.
local M = {}

M.list = {
  { name = "^data: ", message = "^cardinality: element 0 is 0, not %-2",
    why = "a pipeline that must be empty says so, TensorFlow does not know" },
  { name = "^nn: image%.resize bicubic", most = 100,
    why = "TensorFlow reads cubic weights from a table of 1,024 places" },
}

--- Why a case may differ; nil when it may not.
function M.reason(case, row)
  for _, entry in ipairs(M.list) do
    if (case.family .. ": " .. case.name):find(entry.name)
      and (row.message or ""):find(entry.message or "")
      and row.over <= (entry.most or math.huge) then
      return entry.why
    end
  end
  return nil
end

return M
