--- Neovim's side of dice_lsp: commands, hints and the status line. All work is done by the server.
local M = {}

local NAME = "dice_lsp"

--- Options of this plugin; those of the server belong into vim.lsp.config("dice_lsp", { settings = { dice = ... } }).
M.options = {
  inlay_hints = true,
  code_lens = false,
  --- Open the picker as soon as a fill that :DiceFill started has ended.
  pick_when_done = false,
}

local running = {} -- progress token -> { title, message, percentage }
local order = {} -- tokens, oldest first
local status = { state = "idle" }

--- Change options; may be called before or after the server has started.
function M.setup(options)
  M.options = vim.tbl_deep_extend("force", M.options, options or {})
end

local function notify(message, level)
  vim.notify("DICE: " .. message, level or vim.log.levels.INFO)
end

--- The client of a buffer, or nil after a message that says what to do.
function M.client(bufnr)
  local client = vim.lsp.get_clients({ name = NAME, bufnr = bufnr or 0 })[1]
  if not client then
    notify("no server is attached to this buffer; see :checkhealth dice_lsp", vim.log.levels.WARN)
  end
  return client
end

--- Run one of the server's commands; `on_result(result)` is called unless it failed.
function M.execute(bufnr, command, arguments, on_result)
  bufnr = vim._resolve_bufnr and vim._resolve_bufnr(bufnr) or bufnr
  local client = M.client(bufnr)
  if not client then
    return
  end
  local function done(err, result)
    if err then
      -- A request that was cancelled, or whose text moved on, is nothing to report.
      if err.code ~= -32800 and err.code ~= -32801 then
        notify(err.message or vim.inspect(err), vim.log.levels.ERROR)
      end
    elseif on_result then
      on_result(result)
    end
  end
  client:exec_cmd({ title = command, command = command, arguments = { arguments } }, { bufnr = bufnr }, done)
end

local function target(bufnr)
  return { uri = vim.uri_from_bufnr(bufnr), version = vim.lsp.util.buf_versions[bufnr] }
end

local function filled(bufnr)
  return function(result)
    local candidates = result and result.candidates or {}
    if #candidates == 0 then
      return -- the server has said why
    end
    if M.options.pick_when_done then
      require("dice_lsp.candidates").pick(bufnr)
    else
      notify(("%d candidates, :DiceCandidates to choose"):format(#candidates))
    end
  end
end

--- Fill a range. Positions are (1,0)-indexed and inclusive, as marks are.
function M.fill(bufnr, from, to)
  local client = M.client(bufnr)
  if not client then
    return
  end
  local params = vim.lsp.util.make_given_range_params(from, to, bufnr, client.offset_encoding)
  local arguments = vim.tbl_extend("force", target(bufnr), { range = params.range })
  M.execute(bufnr, "dice.fill", arguments, filled(bufnr))
end

--- Fill the body of a kernel, by default the one at the cursor.
function M.fill_body(bufnr, kernel)
  local client = M.client(bufnr)
  if not client then
    return
  end
  if kernel then
    M.execute(bufnr, "dice.fill", vim.tbl_extend("force", target(bufnr), { kernel = kernel }), filled(bufnr))
    return
  end
  -- The server knows where kernels begin and end: its own code action names the one at the cursor.
  local params = vim.lsp.util.make_range_params(0, client.offset_encoding)
  params.context = { diagnostics = {}, only = { "refactor.rewrite" } }
  client:request("textDocument/codeAction", params, function(err, actions)
    for _, action in ipairs(not err and actions or {}) do
      if action.title == "DICE: fill kernel body" then
        M.execute(bufnr, "dice.fill", action.command.arguments[1], filled(bufnr))
        return
      end
    end
    notify("there is no kernel at the cursor", vim.log.levels.WARN)
  end, bufnr)
end

--- Check the kernels of a buffer, or one of them.
function M.check(bufnr, kernel)
  M.execute(bufnr, "dice.check", { uri = vim.uri_from_bufnr(bufnr), kernel = kernel })
end

--- Stop what runs for a buffer.
function M.cancel(bufnr)
  M.execute(bufnr, "dice.cancel", { uri = vim.uri_from_bufnr(bufnr) }, function(result)
    notify(result.cancelled > 0 and "stopped" or "nothing is running")
  end)
end

local function selection(command)
  local line1, line2 = command.line1, command.line2
  local from, to = vim.api.nvim_buf_get_mark(0, "<"), vim.api.nvim_buf_get_mark(0, ">")
  -- A command sees only lines; the marks know the columns of a selection that was made by character.
  if vim.fn.visualmode() == "v" and from[1] == line1 and to[1] == line2 then
    return from, to
  end
  local last = vim.api.nvim_buf_get_lines(0, line2 - 1, line2, false)[1] or ""
  return { line1, 0 }, { line2, math.max(#last - 1, 0) }
end

--- Called when the server attaches to a buffer.
function M.attach(client, bufnr)
  if M.options.inlay_hints then
    vim.lsp.inlay_hint.enable(true, { bufnr = bufnr })
  end
  if M.options.code_lens then
    vim.lsp.codelens.refresh({ bufnr = bufnr })
    vim.api.nvim_create_autocmd({ "BufEnter", "CursorHold", "InsertLeave" }, {
      buffer = bufnr,
      group = vim.api.nvim_create_augroup("dice_lsp_lens_" .. bufnr, {}),
      callback = function()
        vim.lsp.codelens.refresh({ bufnr = bufnr })
      end,
    })
  end
  local function command(name, run, options)
    vim.api.nvim_buf_create_user_command(bufnr, name, run, options)
  end
  command("DiceFill", function(given)
    if given.range == 0 then
      M.fill_body(bufnr)
    else
      local from, to = selection(given)
      M.fill(bufnr, from, to)
    end
  end, { range = true, desc = "Fill the selection, or the body of the kernel at the cursor" })
  command("DiceFillBody", function(given)
    M.fill_body(bufnr, given.args ~= "" and given.args or nil)
  end, { nargs = "?", desc = "Fill the body of a kernel, by default the one at the cursor" })
  command("DiceCandidates", function()
    require("dice_lsp.candidates").pick(bufnr)
  end, { desc = "Choose among the candidates" })
  command("DiceCheck", function(given)
    M.check(bufnr, given.args ~= "" and given.args or nil)
  end, { nargs = "?", desc = "Compile, run and time the kernels of this file" })
  command("DiceCancel", function()
    M.cancel(bufnr)
  end, { desc = "Stop what runs for this file" })
end

--- One phrase for the status line, empty when nothing runs: %{v:lua.require'dice_lsp'.statusline()}
function M.statusline()
  local token = order[#order]
  local shown = token and running[token]
  if shown then
    local percentage = shown.percentage and (" %d%%"):format(shown.percentage) or ""
    local message = shown.message and (" " .. shown.message) or ""
    return (shown.title .. percentage .. message):gsub("%%", "%%%%")
  end
  return status.state == "checking" and "DICE: checking" or ""
end

function M._on_progress(params)
  local token, value = params.token, params.value
  if value.kind == "end" then
    running[token] = nil
    order = vim.tbl_filter(function(known)
      return known ~= token
    end, order)
  else
    if not running[token] then
      order[#order + 1] = token
    end
    running[token] = vim.tbl_extend("force", running[token] or {}, {
      title = value.title,
      message = value.message,
      percentage = value.percentage,
    })
  end
  vim.cmd.redrawstatus()
end

function M._on_status(params)
  status = params
  vim.cmd.redrawstatus()
end

function M._on_candidate(params)
  vim.api.nvim_exec_autocmds("User", { pattern = "DiceCandidate", modeline = false, data = params })
end

return M
