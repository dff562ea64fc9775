-- Chinese comments with emoji above, before and in the selection, tabs, CRLF: what is filled, and where it lands.
local t = dofile(vim.env.DICE_TEST_SUPPORT)
local picker = require("dice_lsp.candidates")

local function fill_of(selected)
  local found
  for _, fill in ipairs(t.ask("dice/candidates", { uri = vim.uri_from_bufnr(0) }).result or {}) do
    if fill.text == selected and not fill.running and #fill.candidates > 0 then
      found = fill
    end
  end
  return found
end

-- Select from the pattern to the end of its match, as a user does, and fill that.
local function fill(pattern, length)
  vim.fn.cursor(1, 1)
  assert(vim.fn.search(pattern) > 0, "there is " .. pattern)
  vim.cmd(("normal! v%dl\27"):format(length - 1))
  local from, to = vim.fn.getpos("'<"), vim.fn.getpos("'>")
  local selected = table.concat(vim.fn.getregion(from, to, { type = "v" }), "\r\n")
  vim.cmd("'<,'>Dice fill")
  local found
  t.wait("there are candidates for " .. selected, function()
    found = fill_of(selected)
    return found ~= nil
  end)
  return selected, found
end

local function apply(found)
  vim.cmd("let &undolevels = &undolevels") -- what was typed before is one change, the candidate another
  local applied
  picker.apply(0, found, found.candidates[1], function(done)
    applied = done
  end)
  t.wait("the server has answered", function()
    return applied ~= nil
  end)
  return applied
end

t.main(function()
  require("dice_lsp").setup({ pick_when_done = false })
  t.open({ candidates = 2, checkOnOpen = false, verify = false })
  t.step("fileformat", vim.bo.fileformat)
  t.step("encoding", t.client().offset_encoding)

  -- One character more above the selection, and the candidate is taken at once: it lands where its region is by now.
  local selected, found = fill("{ \\zsy\\[i\\] = 2.0f \\* x\\[i\\];", 19)
  t.step("selected", selected)
  t.step("range", found.range)
  vim.api.nvim_buf_set_text(0, 0, #"// 归约", 0, #"// 归约", { "📌" })
  vim.api.nvim_buf_set_lines(0, 1, 1, false, { "// 又一行 🚀" })
  local before = t.text()
  t.step("applied after an edit above", apply(found))
  t.step("before", before)
  t.step("after", t.text())
  t.step("candidate", (found.candidates[1].newText:gsub("\r\n", "\n")))
  vim.cmd("silent undo")
  t.step("one undo takes it back", t.text() == before)

  -- The same on the very line of the region, before it: the columns move in every encoding.
  t.wait("the candidate is on offer again", function()
    return fill_of(selected) ~= nil
  end)
  local line = vim.fn.search("下标", "nw")
  local column = vim.fn.getline(line):find("下标", 1, true)
  vim.api.nvim_buf_set_text(0, line - 1, column - 1, line - 1, column - 1, { "✅数" })
  before = t.text()
  t.step("applied after an edit on its line", apply(found))
  t.step("before on its line", before)
  t.step("after on its line", t.text())
  vim.cmd("silent undo")
  t.step("back again", t.text() == before)

  -- A character typed into the region makes the candidate one of another text: it is refused, and nothing moves.
  t.wait("the candidate is on offer once more", function()
    return fill_of(selected) ~= nil
  end)
  line = vim.fn.search("{ y.i. = 2.0f", "nw")
  local place = vim.fn.getline(line):find("2.0f * x", 1, true)
  vim.api.nvim_buf_set_text(0, line - 1, place - 1, line - 1, place - 1, { "1" })
  before = t.text()
  t.step("applied after an edit in it", apply(found))
  t.step("the text stands", t.text() == before)
  vim.cmd("silent undo")

  -- A selection that ends with a character of four bytes is sent as a whole.
  vim.fn.cursor(1, 1)
  vim.fn.search("每个线程")
  vim.cmd("normal! vg_\27")
  local to = vim.fn.getpos("'>")
  t.step("last character", vim.fn.getregion(to, to, { type = "v" })[1])
  local asked
  local execute = require("dice_lsp").execute
  require("dice_lsp").execute = function(_, command, arguments)
    asked = { command = command, arguments = arguments }
  end
  vim.cmd("'<,'>Dice fill")
  require("dice_lsp").execute = execute
  t.step("asked", asked.arguments.range)
  t.step("its line", vim.fn.getline(asked.arguments.range.start.line + 1))

  -- The operator: what a motion covers, by lines.
  vim.keymap.set("n", "gz", "<Plug>(dice-fill)")
  vim.fn.search("int i = blockIdx")
  vim.api.nvim_feedkeys("gzj", "xtm", false)
  local operated
  t.wait("the motion's lines are filled", function()
    operated = vim.tbl_filter(function(item)
      return item.text:find("int i = blockIdx", 1, true) ~= nil
    end, t.ask("dice/candidates", { uri = vim.uri_from_bufnr(0) }).result)[1]
    return operated ~= nil and not operated.running and #operated.candidates > 0
  end)
  t.step("operated", operated.text)

  -- Blocks keep the tabs of their place.
  t.step("applied a block", apply(operated))
  t.step("block", vim.api.nvim_buf_get_lines(0, operated.range.start.line, operated.range["end"].line + 1, false))
  vim.cmd("silent write")
  t.stop()
end)
