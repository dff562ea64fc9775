-- How long a user waits in a real Neovim: for the menu, for the accepted text, for the first figures after a save.
local t = dofile(vim.env.DICE_TEST_SUPPORT)
local picker = require("dice_lsp.candidates")
local RUNS = tonumber(vim.env.DICE_TEST_RUNS)

t.main(function()
  t.seen.times_ms = { ["key press to menu"] = {}, ["accept to text"] = {}, ["save to first hint"] = {} }
  local times = t.seen.times_ms
  require("dice_lsp").setup({ pick_when_done = false })
  t.open({ candidates = 1 })
  local bufnr = vim.api.nvim_get_current_buf()
  local kernel = vim.fn.search("^__global__")
  local function verified()
    local label = t.hint_at(kernel)
    return label:find("verified") ~= nil and label:find("checking") == nil and label:find("stale") == nil
  end
  t.wait("the kernel is verified", verified)

  -- From `gra` over a selection to the list of actions that Neovim is about to show.
  local shown
  vim.ui.select = function(items, _, on_choice)
    shown = { when = vim.uv.hrtime(), count = #items }
    on_choice(nil)
  end
  for _ = 1, RUNS do
    shown = nil
    vim.fn.cursor(kernel + 1, 1)
    local start = vim.uv.hrtime()
    vim.api.nvim_feedkeys("Vjgra", "xtm", false)
    t.wait("the menu is shown", function()
      return shown ~= nil
    end)
    assert(shown.count >= 2, "both ways to fill are in the menu")
    table.insert(times["key press to menu"], (shown.when - start) / 1e6)
    vim.cmd("normal! \27")
  end

  -- From the key that accepts to the changed text.
  local changed
  vim.api.nvim_buf_attach(bufnr, false, {
    on_lines = function()
      changed = changed or vim.uv.hrtime()
    end,
  })
  vim.fn.cursor(kernel + 1, 1)
  vim.cmd("Dice body")
  local fill
  t.wait("there is a candidate", function()
    fill = t.ask("dice/candidates", { uri = vim.uri_from_bufnr(0) }).result[1]
    return fill ~= nil and not fill.running and #fill.candidates == 1
  end)
  for _ = 1, RUNS do
    picker.preview(bufnr, fill, 1)
    local applied
    local apply = picker.apply
    picker.apply = function(...)
      local arguments = { ... }
      apply(arguments[1], arguments[2], arguments[3], function(done)
        applied = done
      end)
    end
    changed = nil
    local start = vim.uv.hrtime()
    vim.api.nvim_feedkeys("a", "xt", false)
    t.wait("the text has changed", function()
      return changed ~= nil
    end)
    table.insert(times["accept to text"], (changed - start) / 1e6)
    t.wait("the server has seen it", function()
      return applied == true
    end)
    picker.apply = apply
    vim.cmd("silent undo")
    t.wait("the candidate is on offer again", function()
      return t.hint_at(kernel + 1):find("^A ") ~= nil
    end)
  end
  require("dice_lsp.candidates").discard(bufnr, fill)

  -- From `:write` to the first figures of the new text.
  local first
  vim.api.nvim_create_autocmd("User", {
    pattern = "DiceHints",
    callback = function()
      local label = t.hint_at(kernel)
      if first == nil and label:find("%d") and not label:find("^stale") then
        first = vim.uv.hrtime()
      end
    end,
  })
  for run = 1, RUNS do
    vim.api.nvim_buf_set_lines(0, kernel, kernel, false, { ("    if (n == -%d) return;"):format(run) })
    t.wait("the change is seen", function()
      return t.hint_at(kernel):find("^stale") ~= nil
    end)
    first = nil
    local start = vim.uv.hrtime()
    vim.cmd("silent write")
    t.wait("the first figures are shown", function()
      return first ~= nil
    end)
    table.insert(times["save to first hint"], (first - start) / 1e6)
    t.wait("the verdict has come", verified)
  end
  t.stop()
end)
