--- What the server is doing, in one phrase for the status line and in a few lines for `:Dice status`.
local M = {}

local LONGEST = 72 -- of a reason in the status line; `:Dice status` shows all of it

local sessions = {} -- client -> { status, progress = { token -> value }, order = { token, ... } }
local stopped = {} -- buffer -> true once its server ended without being asked to

local function session(client_id)
  sessions[client_id] = sessions[client_id] or { status = nil, progress = {}, order = {} }
  return sessions[client_id]
end

local function changed(client_id)
  vim.cmd.redrawstatus({ bang = true })
  vim.api.nvim_exec_autocmds("User", {
    pattern = "DiceStatus",
    modeline = false,
    data = { client_id = client_id, status = session(client_id).status },
  })
end

--- Handler of `dice/status`.
function M.on_status(params, client_id)
  session(client_id).status = params
  changed(client_id)
end

--- Handler of `$/progress`, through the autocommand LspProgress.
function M.on_progress(params, client_id)
  local known, token, value = session(client_id), params.token, params.value
  if value.kind == "end" then
    known.progress[token] = nil
    known.order = vim.tbl_filter(function(other)
      return other ~= token
    end, known.order)
  else
    if not known.progress[token] then
      known.order[#known.order + 1] = token
    end
    known.progress[token] = vim.tbl_extend("force", known.progress[token] or {}, {
      title = value.title,
      message = value.message,
      percentage = value.percentage,
    })
  end
  changed(client_id)
end

--- A server ended; `unasked` with the buffers that had it, when nobody wanted that.
function M.forget(client_id, unasked)
  sessions[client_id] = nil
  for bufnr in pairs(unasked or {}) do
    stopped[bufnr] = true
  end
  vim.cmd.redrawstatus({ bang = true })
end

--- A server serves a buffer.
function M.attached(bufnr)
  stopped[bufnr] = nil
end

--- The server's own words on what it does, or nil before it has said anything.
function M.of(client_id)
  return sessions[client_id] and sessions[client_id].status
end

local function short(text)
  text = text:gsub("%s+", " ")
  if vim.fn.strchars(text) <= LONGEST then
    return text
  end
  return vim.fn.strcharpart(text, 0, LONGEST - 2) .. ".."
end

local function progress_words(known)
  local shown = known.progress[known.order[#known.order] or ""]
  if not shown then
    return nil
  end
  local percentage = shown.percentage and (" %d%%"):format(shown.percentage) or ""
  local message = shown.message and (" " .. shown.message) or ""
  return (shown.title or "DICE: working") .. percentage .. message
end

local function reason(status)
  for _, part in ipairs({ status.judge or {}, status.model or {} }) do
    if part.state == "failed" and type(part.reason) == "string" and part.reason ~= "" then
      return part.reason
    end
  end
  return type(status.message) == "string" and status.message ~= "" and status.message or "see :Dice status"
end

local function ready_words(status)
  local words = {}
  local judge, model = status.judge or {}, status.model or {}
  if judge.state == "loading" then
    words[#words + 1] = "looking at the device"
  elseif type(judge.device) == "string" and judge.device ~= "" then
    words[#words + 1] = judge.device
  end
  if model.state == "loading" then
    words[#words + 1] = "model loading"
  end
  return #words > 0 and "DICE: " .. table.concat(words, ", ") or "DICE: ready"
end

--- The phrase for a buffer; empty where no server of ours is.
function M.phrase(bufnr)
  local client = vim.lsp.get_clients({ name = "dice_lsp", bufnr = bufnr, _uninitialized = true })[1]
  if not client then
    return stopped[bufnr] and "DICE: stopped, :Dice restart" or ""
  end
  local known = session(client.id)
  local status = known.status
  if not client.initialized then
    return "DICE: starting"
  end
  local working = progress_words(known)
  if working then
    return working
  end
  if not status then
    return "DICE: ready"
  elseif status.state == "starting" then
    return "DICE: starting"
  elseif status.state == "failed" then
    return "DICE: failed: " .. short(reason(status))
  elseif status.state == "filling" then
    local loading = status.model and status.model.state == "loading"
    return loading and "DICE: filling, the model is being loaded" or "DICE: filling"
  elseif status.state == "checking" then
    return "DICE: checking"
  end
  return ready_words(status)
end

local function part_line(what, part)
  local words = {}
  for _, field in ipairs({ "name", "device", "compiler", "driver" }) do
    if type(part[field]) == "string" and part[field] ~= "" then
      words[#words + 1] = field == "driver" and "driver " .. part[field] or part[field]
    end
  end
  local line = ("%s: %s"):format(what, part.state or "unknown")
  if #words > 0 then
    line = line .. ", " .. table.concat(words, ", ")
  end
  if type(part.reason) == "string" and part.reason ~= "" then
    line = line .. ": " .. part.reason
  end
  return line
end

--- All that a status says, one line per part.
function M.lines(status)
  local running = {}
  if (status.fills or 0) > 0 then
    running[#running + 1] = ("%d %s"):format(status.fills, status.fills == 1 and "fill" or "fills")
  end
  if (status.checks or 0) > 0 then
    running[#running + 1] = ("%d %s"):format(status.checks, status.checks == 1 and "check" or "checks")
  end
  local lines = { "server: " .. status.state .. (#running > 0 and ", " .. table.concat(running, ", ") or "") }
  if status.model then
    lines[#lines + 1] = part_line("model", status.model)
  end
  if status.judge then
    lines[#lines + 1] = part_line("judge", status.judge)
  end
  if type(status.message) == "string" and status.message ~= "" then
    lines[#lines + 1] = status.message
  end
  return lines
end

return M
