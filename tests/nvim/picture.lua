-- A session in a real Neovim, and the cells of its screen at five moments, for the README's pictures.
local t = dofile(vim.env.DICE_TEST_SUPPORT)
local seen, wait, hint_at = t.seen, t.wait, t.hint_at
seen.screens = {}

-- The cells of windows that float: without a user interface nobody lays them over the others.
local function floating()
  local over = {}
  for _, window in ipairs(vim.api.nvim_list_wins()) do
    if vim.api.nvim_win_get_config(window).relative ~= "" then
      local grid = 2
      -- Grids are numbered as they are made; a float's has the window's size and its border's.
      local function cell(row, column)
        local ok, found = pcall(vim.api.nvim__inspect_cell, grid, row, column)
        return ok and found[1] and found or nil
      end
      while grid < 1000 and not cell(0, 0) do
        grid = grid + 1
      end
      local top, left = unpack(vim.api.nvim_win_get_position(window))
      for row = 0, vim.o.lines do
        for column = 0, vim.o.columns do
          over[(top + row) .. "," .. (left + column)] = cell(row, column)
        end
      end
    end
  end
  return over
end

-- Every cell of the screen as { text, foreground, background, style }.
local function screen(name)
  -- The first look at a cell makes Neovim number its highlights anew, which a redraw then takes in.
  vim.api.nvim__inspect_cell(1, 0, 0)
  vim.wait(200)
  vim.cmd("redraw!")
  local normal = vim.api.nvim_get_hl(0, { name = "Normal" })
  local over = floating()
  local rows = {}
  for row = 0, vim.o.lines - 1 do
    local cells = {}
    for column = 0, vim.o.columns - 1 do
      local cell = over[row .. "," .. column] or vim.api.nvim__inspect_cell(1, row, column)
      local look = cell[2] or {}
      local front, back = look.foreground or normal.fg, look.background or normal.bg
      if look.reverse then
        front, back = back, front
      end
      cells[#cells + 1] = { cell[1] or "", front, back, (look.bold and "b" or "") .. (look.italic and "i" or "") }
    end
    rows[#rows + 1] = cells
  end
  seen.screens[name] = { rows = rows, foreground = normal.fg, background = normal.bg }
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

local function run()
  vim.o.termguicolors = true
  vim.o.columns, vim.o.lines = 114, 28
  vim.o.number, vim.o.laststatus, vim.o.showtabline, vim.o.ruler = true, 2, 0, false
  vim.o.signcolumn = "yes"
  vim.o.statusline = " %t %=%{%v:lua.require'dice_lsp'.statusline()%} "
  vim.cmd("syntax on")
  vim.cmd("highlight DiceHint guifg=#8fbf6f gui=italic")
  vim.cmd("highlight DiceHintError guifg=#ff8f8f gui=italic")
  vim.cmd("highlight DiceHintWarn guifg=#e0c060 gui=italic")
  vim.diagnostic.config({ signs = { text = { "E", "W", "I", "H" } } })
  require("dice_lsp").setup({ picker = "tab", pick_when_done = false })
  t.open({ candidates = 16, decode = { temperature = 1.0 } })
  save()
  version("    if (i < n) y[i] = fmaf(a, x[i], y[i]);")
  version(
    "    __shared__ float tile[256];",
    "    if (i < n) tile[threadIdx.x] = x[i];",
    "    __syncthreads();",
    "    if (i < n) y[i] += a * tile[threadIdx.x];"
  )
  version("    double wide = i < n ? x[i] : 0.0;", "    if (i < n) y[i] += (float)(a * wide);")
  version("    if (i >= n) return;", "    double wide = (double)a * x[i];", "    y[i] = (float)(wide + y[i]);")
  local relu = vim.fn.search("^__global__ void relu", "nw")
  vim.fn.cursor(relu + 1, 1)
  vim.fn.winrestview({ topline = 1 })
  vim.cmd("echo ''")
  screen("hints")

  -- The hover of a kernel with its history.
  vim.fn.cursor(vim.fn.search("^__global__ void saxpy", "nw"), 1)
  vim.o.lines = 44
  vim.lsp.buf.hover({ border = "rounded" })
  local function float()
    return vim.iter(vim.api.nvim_list_wins()):find(function(window)
      return vim.api.nvim_win_get_config(window).relative ~= ""
    end)
  end
  wait("the hover is open", function()
    return float() ~= nil
  end)
  vim.wait(300)
  screen("hover")
  vim.api.nvim_win_close(float(), true)
  vim.cmd("Dice history")
  wait("the history is open", function()
    return float() ~= nil
  end)
  vim.o.lines = 28
  vim.wait(300)
  screen("history")
  vim.api.nvim_win_close(float(), true)

  -- A fill, with the list that grows while candidates are judged.
  vim.o.columns, vim.o.number, vim.o.signcolumn = 132, false, "no"
  vim.fn.cursor(relu + 1, 1)
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
  screen("filling")
  wait("the fill has ended", function()
    return not picker.current.fill.running
  end)
  vim.wait(300)
  vim.cmd("echo ''")
  screen("candidates")
  picker.current.close()
end

t.main(run)
