--- The answering side of the benchmarks: one request on each line of stdin, its
--- name and arguments, one line of numbers for each.
local M = {}

--- Answer until "quit" or the end of input. answer(name, argument, second)
--- returns one number or two; what it raises becomes "failed: ...".
function M.serve(answer)
  for line in io.lines() do
    local name, argument, second = line:match "^(%S+)%s*(%S*)%s*(%S*)"
    if name == "quit" then
      break
    end
    local ok, value, more = pcall(answer, name, argument, second)
    if not ok then
      print("failed: " .. tostring(value):gsub("\n.*", ""))
    elseif more then
      print(("%.9g %.9g"):format(value, more))
    else
      print(("%.9g"):format(value))
    end
    io.stdout:flush()
  end
end

return M
