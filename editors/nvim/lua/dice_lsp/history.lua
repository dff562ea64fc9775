--- What a kernel was worth over time, in a float.
local M = {}

local BAR_CELLS = 24

local function duration(microseconds)
  for _, scale in ipairs({ { 1, 1e3, "ns" }, { 1e3, 1, "us" }, { 1e6, 1e-3, "ms" } }) do
    if microseconds < scale[1] then
      return ("%.3g %s"):format(microseconds * scale[2], scale[3])
    end
  end
  return ("%.3g s"):format(microseconds * 1e-6)
end

local function when(stamp)
  return (stamp:gsub("T", " "):sub(1, 16))
end

--- The lines of a history as `dice/history` returns it: newest first, with a bar for each.
function M.lines(history)
  local measurements = history.measurements or {}
  local timed = vim.iter(measurements):any(function(item)
    return item.median_us ~= nil
  end)
  -- Without a GPU nothing is timed: registers are what there is to see.
  local figure = timed and "median_us" or "registers"
  local longest = 0
  for _, item in ipairs(measurements) do
    longest = math.max(longest, item[figure] or 0)
  end
  local lines = {}
  local baseline = history.baseline
  if baseline then
    local figures = baseline.registers and ("%d regs"):format(baseline.registers) or ""
    if baseline.median_us then
      figures = duration(baseline.median_us) .. ", " .. figures
    end
    local origin = baseline.origin == "first" and "first verified" or "accepted"
    lines[#lines + 1] = ("Baseline: %s, %s %s on %s"):format(
      figures,
      origin,
      when(baseline.when or ""),
      baseline.device or ""
    )
  else
    lines[#lines + 1] = "No baseline: :Dice accept-baseline takes this version"
  end
  if type(history.problem) == "string" and history.problem ~= "" then
    lines[#lines + 1] = history.problem
  end
  if #measurements == 0 then
    lines[#lines + 1] = "Nothing was measured yet: save the file"
    return lines
  end
  lines[#lines + 1] = ""
  for index = #measurements, 1, -1 do
    local item = measurements[index]
    local value = item[figure]
    local cells = value and longest > 0 and math.max(1, math.floor(BAR_CELLS * value / longest + 0.5)) or 0
    local row = ("%s  %4s regs  %-12s"):format(when(item.when or ""), item.registers or "", item.verdict or "")
    if timed then
      row = ("%s  %8s"):format(row, value and duration(value) or "")
    end
    row = row .. "  " .. ("█"):rep(cells)
    lines[#lines + 1] = (row:gsub("%s+$", ""))
  end
  return lines
end

--- Show the history of a kernel. Any movement closes it, as it does a hover.
function M.show(bufnr, kernel)
  local dice = require("dice_lsp")
  dice.request(bufnr, "dice/history", { uri = vim.uri_from_bufnr(bufnr), kernel = kernel }, function(history)
    M.float = vim.lsp.util.open_floating_preview(M.lines(history), "", {
      title = (" %s "):format(kernel),
      border = "rounded",
      focus_id = "dice_history",
      wrap = false,
    })
  end)
end

return M
