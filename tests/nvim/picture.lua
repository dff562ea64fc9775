-- A session in a real Neovim that stops where a picture is taken, for the README. It is a coroutine: while it waits,
-- Neovim runs as it does for a user, and draws.
local t = dofile(vim.env.DICE_TEST_SUPPORT)
local hint_at = t.hint_at

-- Come back after some time. Only bounds a failure, as in the other scripts.
local function pause(milliseconds)
  local session = coroutine.running()
  vim.defer_fn(function()
    assert(coroutine.resume(session))
  end, milliseconds)
  coroutine.yield()
end

local function wait(what, condition)
  local last = vim.uv.now() + tonumber(vim.env.DICE_TEST_PATIENCE_MS or "180000")
  while not condition() do
    assert(vim.uv.now() < last, "waited in vain until " .. what)
    pause(20)
  end
end

-- Have the screen kept once it shows these words; the keys are typed after that.
local function picture(name, words, keys)
  vim.rpcnotify(1, "picture", { name = name, words = words, keys = keys or "" })
  wait("the picture " .. name .. " is taken", function()
    return vim.g.dice_picture == name
  end)
end

local function resize(columns, lines)
  vim.rpcnotify(1, "resize", columns, lines)
  wait("the screen has its size", function()
    return vim.o.columns == columns and vim.o.lines == lines
  end)
end

local function settled(name)
  local line = vim.fn.search("^__global__ void " .. name, "nw")
  local label = hint_at(line)
  return label ~= "" and not (label:find("checking") or label:find("stale"))
end

local function save()
  vim.cmd("silent write")
  for _, name in ipairs({ "saxpy", "copy", "relu" }) do
    wait(name .. " is checked", function()
      return settled(name)
    end)
  end
end

local INDEX = "    int i = blockIdx.x * blockDim.x + threadIdx.x;"

-- Another body of the first kernel, saved: one more measurement.
local function version(...)
  local first = vim.fn.search("^__global__ void saxpy", "nw")
  vim.fn.cursor(first, 1)
  local last = vim.fn.search("^}", "nW")
  vim.cmd("let &undolevels = &undolevels")
  vim.api.nvim_buf_set_lines(0, first, last - 1, false, { INDEX, ... })
  wait("the change is seen", function()
    return not settled("saxpy")
  end)
  save()
end

local function look_like_a_users()
  vim.o.termguicolors = true
  vim.o.number, vim.o.laststatus, vim.o.showtabline, vim.o.ruler = true, 2, 0, false
  vim.o.signcolumn, vim.o.showmode, vim.o.showcmd = "yes", false, false
  vim.o.statusline = " %t %=%{%v:lua.require'dice_lsp'.statusline()%} "
  vim.opt.fillchars:append({ msgsep = "─" })
  vim.cmd("highlight! link MsgSeparator LineNr")
  vim.cmd("syntax on")
  vim.cmd("highlight DiceHint guifg=#8fbf6f gui=italic")
  vim.cmd("highlight DiceHintError guifg=#ff8f8f gui=italic")
  vim.cmd("highlight DiceHintWarn guifg=#e0c060 gui=italic")
  vim.diagnostic.config({ signs = { text = { "E", "W", "I", "H" } } })
  require("dice_lsp").setup({ picker = "tab", pick_when_done = false })
end

local function go_to_body(name)
  vim.fn.cursor(vim.fn.search("^__global__ void " .. name, "nw") + 1, 1)
end

-- The keys of a user: lines are selected, and `gra` asks for the actions.
local function menu()
  go_to_body("relu")
  vim.cmd("echo ''")
  vim.api.nvim_input("Vj$gra")
  picture("menu", "Type number", "<Esc>")
  vim.api.nvim_input("<Esc>")
  wait("the menu is closed", function()
    return vim.api.nvim_get_mode().mode == "n"
  end)
end

local function run()
  look_like_a_users()
  t.open({ candidates = 16, decode = { temperature = 1.0 } })
  save()
  menu()
  if vim.env.DICE_TEST_ONLY == "menu" then
    return
  end
  version("    if (i < n) y[i] = fmaf(a, x[i], y[i]);")
  version(
    "    __shared__ float tile[256];",
    "    if (i < n) tile[threadIdx.x] = x[i];",
    "    __syncthreads();",
    "    if (i < n) y[i] += a * tile[threadIdx.x];"
  )
  version("    double wide = i < n ? x[i] : 0.0;", "    if (i < n) y[i] += (float)(a * wide);")
  version("    if (i >= n) return;", "    double wide = (double)a * x[i];", "    y[i] = (float)(wide + y[i]);")
  go_to_body("relu")
  vim.fn.winrestview({ topline = 1 })
  vim.cmd("echo ''")
  picture("hints", "wrong: y[0]")

  -- The hover of a kernel with its history.
  vim.fn.cursor(vim.fn.search("^__global__ void saxpy", "nw"), 1)
  resize(114, 40)
  vim.lsp.buf.hover({ border = "rounded" })
  local function float()
    return vim.iter(vim.api.nvim_list_wins()):find(function(window)
      return vim.api.nvim_win_get_config(window).relative ~= ""
    end)
  end
  wait("the hover is open", function()
    return float() ~= nil
  end)
  picture("hover", "checks since")
  vim.api.nvim_win_close(float(), true)
  vim.cmd("Dice history")
  wait("the history is open", function()
    return float() ~= nil
  end)
  resize(114, 28)
  picture("history", "Baseline:")
  vim.api.nvim_win_close(float(), true)

  -- A fill, with the list that grows while candidates are judged.
  resize(132, 28)
  vim.o.number, vim.o.signcolumn = false, "no"
  go_to_body("relu")
  vim.cmd("Dice body")
  local picker = require("dice_lsp.candidates")
  wait("it runs", function()
    return t.phrase():find("filling") ~= nil and t.running() == 1
  end)
  vim.cmd("Dice candidates")
  wait("the diff is open and has some candidates", function()
    return picker.current ~= nil and #picker.current.fill.candidates >= 2
  end)
  vim.cmd("echo ''")
  picture("filling", "more are being judged")
  wait("the fill has ended", function()
    return not picker.current.fill.running
  end)
  vim.cmd("echo ''")
  picture("candidates", "[a] apply")
  picker.current.close()
end

coroutine.wrap(t.main)(run)
