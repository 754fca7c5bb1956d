--- What is said when a feed has fewer batches than were asked for.
local errors = require "tfdist.base.errors"
local notice = require "tfdist.base.notice"

local M = {}

--- Say once of a feed that it has fewer batches than were asked for.
function M.note(what, source, count, wanted)
  if wanted ~= nil and count < wanted and not source.noted_short then
    source.noted_short = true
    notice.warn(("%s: Your input ran out of data after step %d of %d"):format(
      what, count, wanted))
  end
end

--- Data sets begin anew, which is said once; functions have no more to give.
function M.ran_out(run, count)
  local anew = run.source.restarts and count > 0
  if anew and run.noted_short then
    return
  end
  run.noted_short, run.ran_out = true, not anew
  run.progress:interrupt()
  notice.warn(("Your input ran out of data; %s after %s. Make sure that your "
    .. "dataset can generate at least `steps_per_epoch * epochs` batches "
    .. "(dataset:repeat_())"):format(anew and "it begins anew"
    or "interrupting training", run.limit
    and ("step %d of %d"):format(count, run.limit) or count .. " steps"))
end

--- Errors: ValueError.
function M.no_data(run)
  errors.raise("ValueError", ("fit: the %s gave no element"):format(
    run.source.restarts and "dataset" or "function"))
end

return M
