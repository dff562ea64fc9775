--- `:Dice` and its subcommands.
local M = {}

local function dice()
  return require("dice_lsp")
end

local function picker()
  return require("dice_lsp.candidates")
end

-- name -> { what it does, run(bufnr, argument, given), complete(bufnr) }
local subcommands = {}
local order = {}

local function add(name, description, run, complete)
  subcommands[name] = { description = description, run = run, complete = complete }
  order[#order + 1] = name
end

local function kernels(bufnr)
  -- Only for completion: what is a kernel is for the server to say.
  local text = table.concat(vim.api.nvim_buf_get_lines(bufnr, 0, -1, false), "\n")
  local names = {}
  for head in text:gmatch("__global__([^{;]*)") do
    local name = head:gsub("__launch_bounds__%s*%b()", ""):match("([%w_]+)%s*%(")
    if name and not vim.list_contains(names, name) then
      names[#names + 1] = name
    end
  end
  return names
end

add("fill", "Fill the selection, or the body of the kernel at the cursor", function(bufnr, _, given)
  if given.range == 0 then
    dice().fill_body(bufnr)
  else
    dice().fill_range(bufnr, given.line1, given.line2)
  end
end)
add("body", "Fill the whole body of a kernel", function(bufnr, kernel)
  dice().fill_body(bufnr, kernel)
end, kernels)
add("candidates", "Choose among the candidates at the cursor", function(bufnr)
  picker().pick(bufnr)
end)
add("apply-best", "Apply the best candidate at the cursor", function(bufnr)
  picker().apply_best(bufnr)
end)
add("discard", "Drop the candidates at the cursor", function(bufnr)
  picker().discard_here(bufnr)
end)
add("check", "Compile, run and time the kernels of this file, or one", function(bufnr, kernel)
  dice().check(bufnr, kernel)
end, kernels)
add("cancel", "Stop what runs for this file", function(bufnr)
  dice().cancel(bufnr)
end)
add("accept-baseline", "Hold later versions of a kernel against this one", function(bufnr, kernel)
  dice().accept_baseline(bufnr, kernel)
end, kernels)
add("forget-baseline", "Forget the baseline of a kernel", function(bufnr, kernel)
  dice().forget_baseline(bufnr, kernel)
end, kernels)
add("history", "Show what a kernel was worth over time", function(bufnr, kernel)
  dice().history(bufnr, kernel)
end, kernels)
add("directive", "Write what is known of a kernel's launch above it", function(bufnr, kernel)
  dice().write_directive(bufnr, kernel)
end, kernels)
add("directives", "Write what is known of every launch above its kernel", function(bufnr)
  dice().write_directives(bufnr)
end)
add("capture", "Run a program and record what it launches", function(bufnr, _, given)
  dice().capture(bufnr, (given.args or ""):match("^%s*capture%s+(.+)$"))
end)
add("hints", "Turn hints on or off in this buffer", function(bufnr)
  vim.lsp.inlay_hint.enable(not vim.lsp.inlay_hint.is_enabled({ bufnr = bufnr }), { bufnr = bufnr })
end)
add("status", "Say what the server, the model and the judge are doing", function(bufnr)
  dice().status(bufnr)
end)
add("start", "Start the server", function()
  dice().start()
end)
add("restart", "End the server and start it anew", function()
  dice().restart()
end)
add("log", "Open the log of the server", function()
  dice().log()
end)
add("doctor", "Look at Neovim, the server, the compilers and the GPU", function()
  vim.cmd.checkhealth("dice_lsp")
end)

--- Names of the subcommands, in the order of the menu.
function M.names()
  return vim.deepcopy(order)
end

local function menu(bufnr, given)
  vim.ui.select(order, {
    prompt = "DICE",
    kind = "dice_command",
    format_item = function(name)
      return ("%-16s %s"):format(name, subcommands[name].description)
    end,
  }, function(name)
    if name then
      subcommands[name].run(bufnr, nil, given)
    end
  end)
end

--- Run `:Dice`; `given` is what nvim_create_user_command() passes.
function M.run(given)
  local bufnr = vim.api.nvim_get_current_buf()
  local name, argument = given.fargs[1], given.fargs[2]
  if not name then
    menu(bufnr, given)
  elseif not subcommands[name] then
    local known = table.concat(order, ", ")
    dice().notify(("there is no :Dice %s; there are %s"):format(name, known), vim.log.levels.WARN)
  elseif name == "capture" then
    subcommands[name].run(bufnr, nil, given) -- all that follows is a command line
  elseif #given.fargs > 2 or (argument and not subcommands[name].complete) then
    dice().notify((":Dice %s takes no %q"):format(name, given.fargs[#given.fargs]), vim.log.levels.WARN)
  else
    subcommands[name].run(bufnr, argument, given)
  end
end

--- Completion of `:Dice`.
function M.complete(lead, line)
  local words = vim.split(line:gsub("^.-Dice!?%s+", "", 1), "%s+")
  local offered = {}
  if #words <= 1 then
    offered = order
  elseif #words == 2 and subcommands[words[1]] and subcommands[words[1]].complete then
    offered = subcommands[words[1]].complete(vim.api.nvim_get_current_buf())
  end
  return vim.tbl_filter(function(word)
    return vim.startswith(word, lead)
  end, offered)
end

--- The commands of one word each, in a buffer that the server serves.
function M.attach(bufnr)
  local function alias(name, subcommand, options)
    vim.api.nvim_buf_create_user_command(bufnr, name, function(given)
      subcommands[subcommand].run(bufnr, given.fargs[1], given)
    end, vim.tbl_extend("force", options or {}, { desc = subcommands[subcommand].description }))
  end
  local function complete(lead)
    return vim.tbl_filter(function(name)
      return vim.startswith(name, lead)
    end, kernels(bufnr))
  end
  alias("DiceFill", "fill", { range = true })
  alias("DiceFillBody", "body", { nargs = "?", complete = complete })
  alias("DiceCandidates", "candidates")
  alias("DiceCheck", "check", { nargs = "?", complete = complete })
  alias("DiceCancel", "cancel")
end

return M
