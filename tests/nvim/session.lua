-- One developer's session in a real Neovim: select, fill, hint, accept, undo, stale, redo, check, health.
local t = dofile(vim.env.DICE_TEST_SUPPORT)
local step, wait, hint_at, text = t.step, t.wait, t.hint_at, t.text
local seen = t.seen
seen.statusline, seen.progress = {}, {}

local function run()
  vim.api.nvim_create_autocmd("LspProgress", {
    callback = function(event)
      seen.progress[#seen.progress + 1] = event.data.params.value.kind
      seen.statusline[#seen.statusline + 1] = require("dice_lsp").statusline()
    end,
  })
  local drawn = {}
  vim.api.nvim_create_autocmd("User", {
    pattern = "DiceCandidate",
    callback = function(event)
      drawn[#drawn + 1] = #event.data.candidates
    end,
  })

  require("dice_lsp").setup({ pick_when_done = false })
  t.open({ candidates = 4 })
  local original = text()
  local kernel = vim.fn.search("^__global__")
  step("filetype", vim.bo.filetype)
  local client = assert(t.client())
  step("encoding", client.offset_encoding)
  wait("the kernel is verified", function()
    return hint_at(kernel):find("  verified") ~= nil
  end)
  local checked = hint_at(kernel)
  step("checked", checked)

  -- Select the body by lines and fill it.
  vim.cmd(("normal! %dGV%dG\27"):format(kernel + 1, kernel + 3))
  vim.cmd("'<,'>DiceFill")
  wait("candidates are shown at the region", function()
    return hint_at(kernel + 1):find("^A ") ~= nil
  end)
  wait("the fill has ended", function()
    return vim.tbl_contains(seen.progress, "end") and t.phrase():find("filling") == nil
  end)
  step("filled", hint_at(kernel + 1))
  step("candidate events", #drawn)

  -- Pick the first candidate, look at its diff, and take it.
  local rows
  vim.ui.select = function(items, options, on_choice)
    rows = vim.tbl_map(options.format_item, items)
    on_choice(items[1], 1)
  end
  vim.api.nvim_win_set_cursor(0, { kernel + 1, 0 })
  vim.cmd.DiceCandidates()
  local preview = require("dice_lsp.candidates")
  wait("the diff is open", function()
    return preview.current ~= nil
  end)
  step("rows", rows)
  step("tabs", #vim.api.nvim_list_tabpages())
  local windows = vim.api.nvim_tabpage_list_wins(0)
  step("diff windows", #vim.tbl_filter(function(window)
    return vim.wo[window].diff
  end, windows))
  step("winbar", vim.wo[preview.current.window].winbar)
  step("keys", vim.wo[preview.current.list_window].winbar)
  step("list", vim.api.nvim_buf_get_lines(preview.current.list, 0, -1, false))
  local offered = table.concat(vim.api.nvim_buf_get_lines(preview.current.scratch, 0, -1, false), "\n")
  preview.current.next()
  preview.current.previous()
  -- Leaving the tab closes it and leaves nothing of the diff behind.
  vim.cmd.tabprevious()
  wait("the diff is closed", function()
    return #vim.api.nvim_list_tabpages() == 1
  end, 2000)
  step("diff left", vim.wo.diff or vim.wo.winbar ~= "")
  preview.current = nil
  vim.cmd.DiceCandidates()
  wait("the diff is open again", function()
    return preview.current ~= nil
  end)
  vim.api.nvim_feedkeys("a", "xt", false)
  wait("the candidate is applied", function()
    return text() == offered
  end)
  step("tabs after", #vim.api.nvim_list_tabpages())
  step("diff after", vim.wo.diff)
  step("applied", text())
  wait("the accepted kernel is checked", function()
    local label = hint_at(kernel)
    return label:find("  verified") ~= nil and hint_at(kernel + 1) == ""
  end)
  step("hint after apply", hint_at(kernel))

  -- Undo, redo: evidence is bound to the text.
  vim.cmd("silent undo")
  assert(text() == original, "one undo takes a candidate back")
  wait("the old evidence holds again", function()
    return hint_at(kernel) == checked and hint_at(kernel + 1):find("^A ") ~= nil
  end, 5000)
  vim.cmd("silent redo")
  assert(text() == offered, "redo brings it again")
  wait("no candidates are offered for accepted text", function()
    return hint_at(kernel + 1) == ""
  end, 5000)

  -- Stale at once, and not after undo.
  vim.fn.setline(kernel + 1, vim.fn.getline(kernel + 1) .. " n += 0;")
  wait("the hint is stale", function()
    return hint_at(kernel):find("^stale: ") ~= nil
  end, 5000)
  step("stale", hint_at(kernel))
  vim.cmd("silent undo")
  wait("undo ends that", function()
    local label = hint_at(kernel)
    return label:find("regs") ~= nil and label:find("stale") == nil and label:find("checking") == nil
  end, 5000)

  -- A directive is completed in its comment and written by a command; a command line is asked for before it runs.
  local before = text()
  vim.fn.append(kernel - 1, "//dice: ")
  local place = { textDocument = { uri = vim.uri_from_bufnr(0) }, position = { line = kernel - 1, character = 8 } }
  local offered_words = assert(client:request_sync("textDocument/completion", place, 30000, vim.api.nvim_get_current_buf())).result
  step("completion", vim.tbl_map(function(item)
    return item.label
  end, offered_words.items))
  vim.cmd("silent undo")
  vim.api.nvim_win_set_cursor(0, { kernel, 0 })
  vim.cmd("Dice directive")
  wait("the directive is written", function()
    return vim.fn.getline(kernel):find("^//dice: ") ~= nil
  end)
  step("directive", vim.fn.getline(kernel))
  vim.cmd("silent undo")
  assert(text() == before, "one undo takes a directive back")
  local asked
  vim.ui.input = function(options, on_input)
    asked = options.prompt
    on_input(nil)
  end
  vim.cmd("Dice capture")
  wait("a command line is asked for", function()
    return asked ~= nil
  end)
  step("asked", asked)

  -- A broken kernel is told at its line after the save, and only until it changes.
  vim.api.nvim_win_set_cursor(0, { kernel, 0 })
  local last = vim.fn.search("^}", "nW")
  vim.fn.append(last - 1, "    nonsense;")
  vim.cmd("silent write")
  wait("the error is shown", function()
    return #vim.diagnostic.get(0) > 0
  end)
  local diagnostic = vim.diagnostic.get(0)[1]
  step(
    "diagnostic",
    { line = diagnostic.lnum + 1, expected = last, source = diagnostic.source, message = diagnostic.message }
  )
  wait("the hint says so", function()
    return hint_at(kernel):find("^does not compile: 1 error") ~= nil
  end, 5000)
  vim.cmd("silent undo")
  wait("the error is gone", function()
    return #vim.diagnostic.get(0) == 0
  end, 5000)

  -- The same through the code action that every editor has.
  vim.cmd("silent undo")
  assert(text() == original, "back at the start")
  seen.progress = {}
  vim.lsp.buf.code_action({
    range = { start = { kernel + 1, 4 }, ["end"] = { kernel + 3, 10 } },
    apply = true,
    filter = function(action)
      return action.title == "DICE: fill selection"
    end,
  })
  wait("the second fill has begun", function()
    return vim.tbl_contains(seen.progress, "begin")
  end)
  vim.cmd.DiceCancel()
  wait("it is stopped", function()
    return vim.tbl_contains(seen.progress, "end")
  end, 10000)

  -- A selection made by character means just those characters.
  seen.progress = {}
  vim.fn.cursor(kernel + 3, 1)
  vim.fn.search("a \\* x")
  vim.cmd("normal! vt;\27")
  vim.cmd("'<,'>DiceFill")
  wait("the selection is being filled", function()
    return vim.tbl_contains(seen.progress, "begin")
  end)
  local selected
  client:request("dice/candidates", { uri = vim.uri_from_bufnr(0) }, function(_, fills)
    selected = vim.tbl_filter(function(fill)
      return fill.running
    end, fills or {})
  end, 0)
  wait("the server says what is being filled", function()
    return selected ~= nil
  end, 5000)
  step(
    "selected",
    vim.tbl_map(function(fill)
      return fill.text
    end, selected)
  )
  vim.cmd.DiceCancel()
  wait("that is stopped too", function()
    return vim.tbl_contains(seen.progress, "end")
  end, 10000)

  vim.cmd("silent checkhealth dice_lsp")
  step("health", table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), "\n"))
  client:stop()
  wait("the server has stopped", function()
    return client:is_stopped()
  end, 10000)
end

t.main(run)
