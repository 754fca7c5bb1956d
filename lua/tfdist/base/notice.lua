--- One-line notices on stderr: lower case, obeying TFDIST_LOG.
local M = {}

local LEVELS = { error = 0, warning = 1, info = 2, debug = 3 }

local function show(level, message, mark)
  -- A word that is no level stops the runtime's start, not a notice.
  local wish = os.getenv("TFDIST_LOG") or "warning"
  local limit = LEVELS[wish:lower():match "^%s*(.-)%s*$"] or 1
  if LEVELS[level] <= limit then
    -- One write: what others write at the same time comes before or after it.
    io.stderr:write(("tfdist: %s%s\n"):format(mark or level .. ": ", message))
  end
end

--- Something went on differently than asked.
function M.warn(message)
  show("warning", message)
end

--- What a program did that whoever started it wants to see.
function M.say(message)
  show("warning", message, "")
end

--- Something worth knowing once.
function M.info(message)
  show("info", message)
end

return M
