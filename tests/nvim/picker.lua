-- The command, its completion, the maps and the picker, as they are used.
local t = dofile(vim.env.DICE_TEST_SUPPORT)
local picker = require("dice_lsp.candidates")
local complete = require("dice_lsp.command").complete

local function keys(text)
  vim.api.nvim_feedkeys(vim.keycode(text), "xt", false)
end

local function fills()
  return t.ask("dice/candidates", { uri = vim.uri_from_bufnr(0) }).result or {}
end

local function list()
  return vim.api.nvim_buf_get_lines(picker.current.list, 0, -1, false)
end

local function shown()
  return table.concat(vim.api.nvim_buf_get_lines(picker.current.scratch, 0, -1, false), "\n")
end

t.main(function()
  t.open({ candidates = 8, decode = { temperature = 1.0 }, checkOnOpen = false })
  local kernel = vim.fn.search("^__global__")
  local original = t.text()
  t.step("subcommands", vim.fn.getcompletion("Dice ", "cmdline"))
  t.step("completed", vim.fn.getcompletion("Dice ac", "cmdline"))
  t.step("kernels", vim.fn.getcompletion("Dice body ", "cmdline"))
  t.step("nothing after that", complete("", "Dice cancel "))
  vim.cmd("Dice nonsense")
  vim.cmd("Dice cancel everything")
  t.step(
    "maps",
    vim.tbl_map(function(name)
      return vim.fn.mapcheck(("<Plug>(dice-%s)"):format(name), "n") ~= ""
    end, { "fill", "body", "candidates", "apply-best", "check", "cancel", "accept-baseline", "history" })
  )

  -- The menu of `:Dice` runs what is chosen. Here it fills, with the cursor in the kernel.
  local menu
  vim.ui.select = function(items, options, on_choice)
    menu = vim.tbl_map(options.format_item, items)
    on_choice("body", 2)
  end
  vim.fn.cursor(kernel + 1, 1)
  vim.cmd("Dice")
  t.step("menu", menu)
  t.wait("the fill runs", function()
    return t.running() == 1
  end)

  -- The list opens while the fill runs and grows as candidates are judged; the best so far is shown until one is chosen.
  keys(":Dice candidates<CR>")
  t.wait("the list is open and has candidates", function()
    return picker.current ~= nil and #picker.current.fill.candidates >= 1
  end)
  local first = #list()
  t.step("bar while it runs", vim.wo[picker.current.list_window].winbar)
  t.wait("the fill has ended", function()
    return picker.current.fill.running == false
  end)
  t.step("grown", #picker.current.fill.candidates >= first and #list() == #picker.current.fill.candidates)
  t.step("bar at the end", vim.wo[picker.current.list_window].winbar)
  t.step("no second list", #vim.api.nvim_list_tabpages())
  t.step("best is shown", picker.current.index)

  -- Moving through the list moves the diff.
  local seen_texts = { [shown()] = true }
  for _ = 2, #list() do
    keys("j")
    vim.api.nvim_exec_autocmds("CursorMoved", { buffer = picker.current.list })
    seen_texts[shown()] = true
  end
  t.step("rows", #list())
  t.step("texts", vim.tbl_count(seen_texts))
  t.step("at the last", picker.current.index)
  keys("n")
  t.step("around", picker.current.index)
  keys("p")
  t.step("and back", picker.current.index)

  -- An edit above moves the region, and the diff with it.
  local bufnr = picker.current.bufnr
  vim.api.nvim_buf_set_lines(bufnr, 0, 0, false, { "// above" })
  vim.api.nvim_exec_autocmds("TextChanged", { buffer = bufnr })
  t.wait("the diff has the edit", function()
    return shown():find("^// above") ~= nil
  end)
  keys("<Esc>")
  t.step("closed by Escape", #vim.api.nvim_list_tabpages() == 1 and picker.current == nil)
  t.step("the text is as it was", t.text() == "// above\n" .. original)
  t.step("no buffer is left", #vim.tbl_filter(function(buf)
    return vim.api.nvim_buf_get_name(buf):find("^dice://") ~= nil
  end, vim.api.nvim_list_bufs()))

  -- Accept with Enter in the list.
  require("dice_lsp").setup({ picker = "tab" })
  vim.cmd("let &undolevels = &undolevels")
  vim.fn.cursor(kernel + 2, 1)
  keys(":Dice candidates<CR>")
  t.wait("the list is open again", function()
    return picker.current ~= nil
  end)
  local offered = shown()
  local applied
  local apply = picker.apply
  picker.apply = function(buf, fill, candidate)
    apply(buf, fill, candidate, function(done)
      applied = done
    end)
  end
  keys("<CR>")
  t.wait("the candidate is applied", function()
    return applied == true
  end)
  t.step("taken", t.text() == offered)
  vim.cmd("silent undo")
  t.step("undone", t.text() == "// above\n" .. original)

  -- The best one, without looking.
  t.wait("they are on offer again", function()
    return #fills() >= 1 and not t.hint_at(kernel + 2):find("^$")
  end)
  applied = nil
  vim.keymap.set("n", "gb", "<Plug>(dice-apply-best)")
  vim.api.nvim_feedkeys("gb", "xtm", false)
  t.wait("the best is applied", function()
    return applied == true
  end)
  t.step("the best is taken", t.text() ~= "// above\n" .. original)
  vim.cmd("silent undo")

  -- The region is edited while its diff is open: the offer ends, and so does the diff.
  t.wait("they are on offer once more", function()
    return #fills() >= 1
  end)
  keys(":Dice candidates<CR>")
  t.wait("the list is open once more", function()
    return picker.current ~= nil
  end)
  vim.api.nvim_buf_set_lines(bufnr, kernel + 1, kernel + 2, false, {})
  vim.api.nvim_exec_autocmds("TextChanged", { buffer = bufnr })
  t.wait("the diff is gone", function()
    return picker.current == nil and #vim.api.nvim_list_tabpages() == 1
  end)
  t.step("said why", t.said("no longer on offer"))
  vim.cmd("silent undo")
  t.wait("undo brings the offer back", function()
    return #fills() >= 1
  end)

  -- The code action that every editor has opens the same list when its fill has ended.
  vim.fn.cursor(kernel + 2, 1)
  vim.lsp.buf.code_action({
    apply = true,
    filter = function(action)
      return action.title == "DICE: fill kernel body"
    end,
  })
  t.wait("the list opens by itself", function()
    return picker.current ~= nil
  end)
  t.step("opened by the action", #list() >= 1)
  keys("d")
  t.wait("all are dropped", function()
    return #fills() == 0
  end)

  -- The same map fills a selection, and another stops it.
  vim.keymap.set("x", "gz", "<Plug>(dice-fill)")
  vim.keymap.set("n", "gc", "<Plug>(dice-cancel)")
  vim.fn.cursor(kernel + 3, 1)
  vim.api.nvim_feedkeys("Vjgz", "xtm", false)
  t.wait("the selected lines are being filled", function()
    return t.running() == 1
  end)
  t.step("selected", fills()[1].text)
  vim.api.nvim_feedkeys("gc", "xtm", false)
  t.wait("it is stopped", function()
    return t.running() == 0 and t.said("stopped")
  end)

  -- Whoever is typing is not interrupted.
  vim.lsp.buf.code_action({
    apply = true,
    filter = function(action)
      return action.title == "DICE: fill kernel body"
    end,
  })
  t.wait("another fill runs", function()
    return t.running() == 1
  end)
  vim.cmd("enew")
  t.wait("the fill has ended elsewhere", function()
    return t.said("candidates, :Dice candidates to choose")
  end)
  t.step("no list", picker.current == nil)
  t.step("nothing to say here", t.phrase())
  vim.cmd("helptags " .. vim.env.DICE_TEST_DOC)
  vim.opt.runtimepath:prepend(vim.fs.dirname(vim.env.DICE_TEST_DOC))
  vim.cmd("help :Dice")
  t.step("help", vim.fn.expand("%:t") .. " " .. vim.fn.expand("<cword>"))
end)
