-- Fills a kernel in a real Neovim and writes the cells of two screens: the hints, and the diff of a candidate.
local seen = { screens = {} }

local function wait(what, condition)
  assert(vim.wait(120000, condition, 20), "waited in vain until " .. what)
end

local function hint_at(line)
  for _, hint in ipairs(vim.lsp.inlay_hint.get({ bufnr = 0 })) do
    if hint.inlay_hint.position.line + 1 == line then
      return hint.inlay_hint.label
    end
  end
  return ""
end

-- Every cell of the screen as { text, foreground, background, style }.
local function screen(name)
  -- The first look at a cell makes Neovim number its highlights anew, which a redraw then takes in.
  vim.api.nvim__inspect_cell(1, 0, 0)
  vim.wait(200)
  vim.cmd("redraw!")
  local normal = vim.api.nvim_get_hl(0, { name = "Normal" })
  local rows = {}
  for row = 0, vim.o.lines - 1 do
    local cells = {}
    for column = 0, vim.o.columns - 1 do
      local cell = vim.api.nvim__inspect_cell(1, row, column)
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

local function run()
  vim.o.termguicolors = true
  vim.o.columns, vim.o.lines = 108, 26
  vim.o.number, vim.o.laststatus, vim.o.showtabline, vim.o.ruler = true, 2, 0, false
  vim.o.statusline = " %t %=%{v:lua.require'dice_lsp'.statusline()} "
  vim.cmd("syntax on")
  vim.cmd("highlight LspInlayHint guifg=#8fbf6f gui=italic")
  vim.lsp.config("dice_lsp", {
    cmd = vim.json.decode(vim.env.DICE_TEST_CMD),
    settings = { dice = { candidates = 16, decode = { temperature = 1.0 } } },
  })
  local done = false
  vim.api.nvim_create_autocmd("LspProgress", {
    pattern = "end",
    callback = function()
      done = true
    end,
  })
  vim.cmd.edit(vim.env.DICE_TEST_FILE)
  local kernel = vim.fn.search("^__global__ void relu")
  for _, name in ipairs({ "saxpy", "copy", "relu" }) do
    local line = vim.fn.search("^__global__ void " .. name)
    wait(name .. " is checked", function()
      local label = hint_at(line)
      return label ~= "" and label:find("checking") == nil
    end)
  end
  vim.cmd("DiceFillBody relu")
  wait("the fill has ended", function()
    return done and hint_at(kernel + 1):find("^A ") ~= nil
  end)
  vim.wait(500)
  vim.api.nvim_win_set_cursor(0, { kernel + 1, 0 })
  vim.fn.winrestview({ topline = 1 })
  vim.cmd("echo ''")
  screen("hints")

  vim.o.columns = 132
  vim.o.number = false
  vim.ui.select = function(items, options, on_choice)
    on_choice(items[1], 1)
  end
  vim.cmd.DiceCandidates()
  local preview = require("dice_lsp.candidates")
  wait("the diff is open", function()
    return preview.current ~= nil
  end)
  vim.cmd("wincmd =")
  vim.cmd("echo ''")
  screen("candidates")
  preview.current.close()
end

local ok, failure = xpcall(run, debug.traceback)
seen.failure = not ok and failure or nil
local file = assert(io.open(vim.env.DICE_TEST_OUT, "w"))
file:write(vim.json.encode(seen))
file:close()
vim.cmd(ok and "qall!" or "cquit 1")
