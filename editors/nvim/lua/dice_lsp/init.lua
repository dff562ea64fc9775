--- Neovim's side of dice_lsp: commands, hints, the picker and the status line. All work is done by the server.
local M = {}

local NAME = "dice_lsp"
local RESTARTS, RESTARTS_WITHIN_S = 3, 180 -- of a server that dies
local SIGTERM = 15
local STOP_PATIENCE_MS = 3000 -- for a server that was asked to end

--- Options of this plugin; those of the server belong into vim.lsp.config("dice_lsp", { settings = { dice = ... } }).
M.options = {
  inlay_hints = true,
  code_lens = false,
  --- Ghost text of the best candidate where Neovim has `vim.lsp.inline_completion` (0.12).
  inline_completion = true,
  --- Open the picker as soon as a fill has ended, unless you are typing or elsewhere by then.
  pick_when_done = true,
  --- How to choose: "select" asks vim.ui.select() first and then shows the diff, "tab" goes to the diff and its list.
  picker = "select",
  --- Start a server that died again, three times in three minutes at most.
  restart = true,
}

--- Change options; may be called before or after the server has started.
function M.setup(options)
  M.options = vim.tbl_deep_extend("force", M.options, options or {})
end

--- Tell the user something.
function M.notify(message, level)
  vim.notify("DICE: " .. message, level or vim.log.levels.INFO)
end

local function buffer(bufnr)
  return (bufnr == nil or bufnr == 0) and vim.api.nvim_get_current_buf() or bufnr
end

--- The client of a buffer, or nil after a message that says what to do.
function M.client(bufnr)
  local client = vim.lsp.get_clients({ name = NAME, bufnr = buffer(bufnr) })[1]
  if not client then
    M.notify("no server is attached to this buffer; see :checkhealth dice_lsp", vim.log.levels.WARN)
  end
  return client
end

local function complain(err)
  -- A request that was cancelled, or whose text moved on, is nothing to report.
  if err.code ~= -32800 and err.code ~= -32801 then
    M.notify(err.message or vim.inspect(err), vim.log.levels.ERROR)
  end
end

--- Send a request of ours; `on_result(result)` is called unless it failed.
function M.request(bufnr, method, params, on_result)
  bufnr = buffer(bufnr)
  local client = M.client(bufnr)
  if client then
    client:request(method, params, function(err, result)
      if err then
        complain(err)
      elseif on_result then
        on_result(result)
      end
    end, bufnr)
  end
end

--- Run one of the server's commands; `on_result(result)` is called unless it failed.
function M.execute(bufnr, command, arguments, on_result)
  local params = { command = command, arguments = { arguments } }
  M.request(bufnr, "workspace/executeCommand", params, on_result)
end

-- Fill

local function target(bufnr)
  return { uri = vim.uri_from_bufnr(bufnr), version = vim.lsp.util.buf_versions[bufnr] }
end

local function filled(bufnr)
  return function(result)
    local candidates = result and result.candidates or {}
    if #candidates == 0 or result.reason == "cancelled" then
      return -- the server has said why, or the user knows
    end
    local picker = require("dice_lsp.candidates")
    if picker.is_open(result.fill) then
      return
    end
    -- A list that opens under one's fingers would take the next keys as its own.
    local at_hand = vim.api.nvim_get_current_buf() == bufnr and vim.api.nvim_get_mode().mode == "n"
    if M.options.pick_when_done and at_hand then
      picker.pick(bufnr, result.fill)
    else
      M.notify(("%d candidates, :Dice candidates to choose"):format(#candidates))
    end
  end
end

--- The range of the server's terms from `from` to `to`, which are (1,0)-indexed and inclusive, as marks are.
local function range_of(bufnr, from, to, encoding)
  local function position(line, byte)
    local text = vim.api.nvim_buf_get_lines(bufnr, line - 1, line, false)[1] or ""
    return { line = line - 1, character = vim.str_utfindex(text, encoding, math.min(byte, #text), false) }
  end
  local last = vim.api.nvim_buf_get_lines(bufnr, to[1] - 1, to[1], false)[1] or ""
  local byte = math.min(to[2], #last)
  if vim.o.selection ~= "exclusive" and byte < #last then
    byte = byte + vim.str_utf_end(last, byte + 1) + 1
  end
  return { start = position(from[1], from[2]), ["end"] = position(to[1], byte) }
end

--- Fill a range. Positions are (1,0)-indexed and inclusive, as marks are.
function M.fill(bufnr, from, to)
  bufnr = buffer(bufnr)
  local client = M.client(bufnr)
  if client then
    local range = range_of(bufnr, from, to, client.offset_encoding)
    local arguments = vim.tbl_extend("force", target(bufnr), { range = range })
    M.execute(bufnr, "dice.fill", arguments, filled(bufnr))
  end
end

--- Fill the lines from `first` to `last`.
function M.fill_lines(bufnr, first, last)
  local text = vim.api.nvim_buf_get_lines(buffer(bufnr), last - 1, last, false)[1] or ""
  M.fill(bufnr, { first, 0 }, { last, math.max(#text - 1, 0) })
end

--- Fill what a command's range means: the selection that was made by character, if it spans these lines, else the lines.
function M.fill_range(bufnr, line1, line2)
  local from, to = vim.api.nvim_buf_get_mark(0, "<"), vim.api.nvim_buf_get_mark(0, ">")
  -- A command sees only lines; the marks know the columns of a selection that was made by character.
  if vim.fn.visualmode() == "v" and from[1] == line1 and to[1] == line2 then
    M.fill(bufnr, from, to)
  else
    M.fill_lines(bufnr, line1, line2)
  end
end

--- 'operatorfunc' of <Plug>(dice-fill).
function M.operator(kind)
  local from, to = vim.api.nvim_buf_get_mark(0, "["), vim.api.nvim_buf_get_mark(0, "]")
  if kind == "char" then
    M.fill(0, from, to)
  else
    M.fill_lines(0, from[1], to[1])
  end
end

--- Call `on_kernel(id)` with the kernel at the cursor. The server knows where kernels begin and end.
local function kernel_at_cursor(bufnr, on_kernel)
  local client = M.client(bufnr)
  if not client then
    return
  end
  local params = vim.lsp.util.make_range_params(0, client.offset_encoding)
  params.context = { diagnostics = {}, only = { "refactor.rewrite" } }
  M.request(bufnr, "textDocument/codeAction", params, function(actions)
    for _, action in ipairs(actions or {}) do
      if action.title == "DICE: fill kernel body" and action.command then
        on_kernel(action.command.arguments[1].kernel)
        return
      end
    end
    M.notify("there is no kernel at the cursor", vim.log.levels.WARN)
  end)
end

--- Run a command for a kernel, by default the one at the cursor.
local function for_kernel(bufnr, kernel, command, on_result)
  bufnr = buffer(bufnr)
  local function run(id)
    M.execute(bufnr, command, { uri = vim.uri_from_bufnr(bufnr), kernel = id }, function(result)
      on_result(result, id)
    end)
  end
  if kernel then
    run(kernel)
  else
    kernel_at_cursor(bufnr, run)
  end
end

--- Fill the body of a kernel, by default the one at the cursor.
function M.fill_body(bufnr, kernel)
  bufnr = buffer(bufnr)
  for_kernel(bufnr, kernel, "dice.fill", filled(bufnr))
end

-- Checks and baselines

--- Check the kernels of a buffer, or one of them.
function M.check(bufnr, kernel)
  M.execute(bufnr, "dice.check", { uri = vim.uri_from_bufnr(buffer(bufnr)), kernel = kernel })
end

--- Stop what runs for a buffer.
function M.cancel(bufnr)
  M.execute(bufnr, "dice.cancel", { uri = vim.uri_from_bufnr(buffer(bufnr)) }, function(result)
    M.notify(result.cancelled > 0 and "stopped" or "nothing is running")
  end)
end

--- Hold later versions of a kernel against the one that stands there now.
function M.accept_baseline(bufnr, kernel)
  for_kernel(bufnr, kernel, "dice.acceptBaseline", function(result, id)
    if result.accepted then -- otherwise the server has said why
      M.notify(("this version of %s is its baseline now"):format(id))
    end
  end)
end

--- Forget the baseline of a kernel.
function M.forget_baseline(bufnr, kernel)
  for_kernel(bufnr, kernel, "dice.forgetBaseline", function(result, id)
    M.notify(result.forgotten and ("%s has no baseline any more"):format(id) or ("%s had no baseline"):format(id))
  end)
end

--- Write what is known of a kernel's launch above it, as `//dice:` lines.
function M.write_directive(bufnr, kernel)
  for_kernel(bufnr, kernel, "dice.writeDirective", function() end)
end

--- The same for every kernel of a buffer.
function M.write_directives(bufnr)
  M.execute(bufnr, "dice.writeDirective", { uri = vim.uri_from_bufnr(buffer(bufnr)) })
end

--- Run a program of the user's and record what it launches. Without a command the user is asked for one, and shown that
--- of the file's `//dice: run` line.
function M.capture(bufnr, command)
  bufnr = buffer(bufnr)
  local uri = vim.uri_from_bufnr(bufnr)
  local function run(line)
    if line and vim.trim(line) ~= "" then
      M.execute(bufnr, "dice.capture", { uri = uri, run = line }) -- the server says what came of it
    end
  end
  if command and command ~= "" then
    run(command)
    return
  end
  M.execute(bufnr, "dice.captureLine", { uri = uri }, function(found)
    local line = found.run ~= vim.NIL and found.run or nil
    vim.ui.input({ prompt = "Run and record: ", default = line or "", completion = "shellcmd" }, run)
  end)
end

--- Show what a kernel was worth over time.
function M.history(bufnr, kernel)
  bufnr = buffer(bufnr)
  if kernel then
    require("dice_lsp.history").show(bufnr, kernel)
  else
    kernel_at_cursor(bufnr, function(id)
      require("dice_lsp.history").show(bufnr, id)
    end)
  end
end

-- The server

--- One phrase for the status line, empty in buffers that have no server: %{%v:lua.require'dice_lsp'.statusline()%}
function M.statusline()
  return (require("dice_lsp.status").phrase(vim.api.nvim_get_current_buf()):gsub("%%", "%%%%"))
end

--- Ask the server what it does; `on_lines(list of strings)`, by default shown as a message.
function M.status(bufnr, on_lines)
  M.request(bufnr, "dice/status", vim.empty_dict(), function(status)
    local lines = require("dice_lsp.status").lines(status)
    if on_lines then
      on_lines(lines)
    else
      M.notify(table.concat(lines, "\n"))
    end
  end)
end

local function enable()
  vim.lsp.enable(NAME)
end

local restarting = false
local deaths = {} -- when servers died, in seconds

--- Start the server for every CUDA buffer.
function M.start()
  enable()
end

--- End the server, for every buffer, and start it anew. Asking again meanwhile changes nothing.
function M.restart()
  if restarting then
    return
  end
  restarting = true
  deaths = {}
  local clients = vim.lsp.get_clients({ name = NAME, _uninitialized = true })
  for _, client in ipairs(clients) do
    client:stop()
  end
  local timer, waited = assert(vim.uv.new_timer()), 0
  timer:start(
    0,
    50,
    vim.schedule_wrap(function()
      local left = vim.tbl_filter(function(client)
        return not client:is_stopped()
      end, clients)
      if #left > 0 and waited < STOP_PATIENCE_MS then
        waited = waited + 50
        return
      end
      if not restarting then
        return
      end
      for _, client in ipairs(left) do
        client:stop(true)
      end
      restarting = false
      timer:stop()
      timer:close()
      -- Neovim forgets an ended client only once its other callbacks have run.
      vim.schedule(enable)
    end)
  )
end

--- A server ended. One that was not asked to is started again.
function M._on_exit(code, signal, client_id)
  vim.schedule(function()
    local client = vim.lsp.get_client_by_id(client_id)
    local buffers = vim.deepcopy(client and client.attached_buffers or {})
    -- Neovim ends a server with `exit`, or with SIGTERM when it is forced to.
    local asked = restarting or vim.v.exiting ~= vim.NIL or (code == 0 and signal == 0) or signal == SIGTERM
    for bufnr in pairs(buffers) do
      require("dice_lsp.hints").clear(bufnr)
    end
    require("dice_lsp.status").forget(client_id, not asked and buffers or nil)
    if asked then
      return
    end
    local now = vim.uv.now() / 1000
    deaths = vim.tbl_filter(function(when)
      return now - when < RESTARTS_WITHIN_S
    end, deaths)
    deaths[#deaths + 1] = now
    local ended = signal ~= 0 and ("was ended by signal %d"):format(signal) or ("ended with code %d"):format(code)
    if not M.options.restart or #deaths > RESTARTS then
      M.notify(("the server %s; :Dice log says why, :Dice restart starts it"):format(ended), vim.log.levels.ERROR)
      return
    end
    M.notify(("the server %s and is started again"):format(ended), vim.log.levels.WARN)
    vim.defer_fn(enable, 100)
  end)
end

--- Open the log that holds what the server wrote to its stderr.
function M.log()
  vim.cmd.tabedit(vim.fn.fnameescape(vim.lsp.log.get_filename()))
  vim.cmd("silent! normal! G")
end

-- Neovim calls these

--- A code action of the server that fills is the same as our own command: the picker follows.
function M._on_fill_command(command, context)
  M.execute(context.bufnr, "dice.fill", command.arguments[1], filled(buffer(context.bufnr)))
end

function M._on_candidate(params)
  vim.api.nvim_exec_autocmds("User", { pattern = "DiceCandidate", modeline = false, data = params })
end

local function show_lenses(bufnr)
  if vim.lsp.codelens.enable then
    vim.lsp.codelens.enable(true, { bufnr = bufnr })
  else
    vim.lsp.codelens.refresh({ bufnr = bufnr })
  end
end

--- The server's lenses have changed (only Neovim 0.11 needs us for that).
function M._on_lens_refresh(client_id)
  local client = vim.lsp.get_client_by_id(client_id)
  for bufnr in pairs(M.options.code_lens and client and client.attached_buffers or {}) do
    vim.lsp.codelens.refresh({ bufnr = bufnr })
  end
end

--- Called when the server attaches to a buffer.
function M.attach(client, bufnr)
  local status = require("dice_lsp.status")
  status.attached(bufnr)
  client:request("dice/status", vim.empty_dict(), function(err, result)
    if not err and result and not status.of(client.id) then
      status.on_status(result, client.id)
    end
  end, bufnr)
  if M.options.inlay_hints then
    vim.lsp.inlay_hint.enable(true, { bufnr = bufnr })
  end
  if M.options.inline_completion and vim.lsp.inline_completion and vim.lsp.inline_completion.enable then
    vim.lsp.inline_completion.enable(true, { bufnr = bufnr })
  end
  if M.options.code_lens then
    show_lenses(bufnr)
  end
  require("dice_lsp.command").attach(bufnr)
end

--- Called when the server leaves a buffer.
function M.detach(bufnr)
  require("dice_lsp.hints").clear(bufnr)
end

--- Take the ghost text that is shown; returns false when there is none (always before Neovim 0.12).
function M.accept_inline()
  return vim.lsp.inline_completion ~= nil and vim.lsp.inline_completion.get() == true
end

return M
