-- A server that cannot start: it is tried a few times, that is said, and a restart by hand with a mended command works.
local t = dofile(vim.env.DICE_TEST_SUPPORT)

t.main(function()
  local notify = vim.notify
  vim.notify = function(message, ...)
    t.seen.notices[#t.seen.notices + 1] = message
    return notify(message, ...)
  end
  require("dice_lsp").setup({ code_lens = true })
  vim.lsp.config("dice_lsp", { cmd = { "/bin/false" } })
  vim.cmd.edit(vim.env.DICE_TEST_FILE)
  t.wait("it is given up", function()
    return t.said(":Dice restart starts it")
  end)
  vim.wait(1000)
  t.step("phrase", t.phrase())
  t.step("tries", #vim.tbl_filter(function(message)
    return message:find("is started again", 1, true) ~= nil
  end, t.seen.notices))
  t.step("is any left", #vim.lsp.get_clients({ name = "dice_lsp" }))
  vim.lsp.config("dice_lsp", { cmd = vim.json.decode(vim.env.DICE_TEST_CMD) })
  vim.cmd("Dice restart")
  t.wait("the server is there", function()
    return t.client() ~= nil and t.client().initialized
  end)
  t.wait("it says what it is", function()
    return t.phrase():find("^DICE: ") ~= nil and not t.phrase():find("stopped")
  end)
  local kernel = vim.fn.search("^__global__")
  t.wait("it checks", function()
    return t.hint_at(kernel):find("verified") ~= nil
  end)
  t.wait("lenses are shown", function()
    return #vim.lsp.codelens.get(0) > 0
  end)
  t.step(
    "lenses",
    vim.tbl_map(function(lens)
      return lens.command and lens.command.title
    end, vim.lsp.codelens.get(0))
  )
  -- Ghost text needs Neovim 0.12; asking for it here does nothing and is no error.
  local before = t.text()
  vim.api.nvim_feedkeys(vim.keycode("i<Plug>(dice-accept-inline)<Esc>"), "xtm", false)
  t.step("ghost text", require("dice_lsp").accept_inline())
  t.step("untouched", t.text() == before)
  -- A stop that was asked for is no death.
  t.seen.notices = {}
  t.stop()
  vim.wait(1500)
  t.step("after a stop", { clients = #vim.lsp.get_clients({ name = "dice_lsp" }), said = #t.seen.notices })
  vim.cmd("Dice status")
  t.step("without a server", t.said("no server is attached"))
  vim.cmd("Dice start")
  t.wait("it is there again", function()
    return t.client() ~= nil and t.client().initialized
  end)
  vim.cmd("Dice log")
  t.step("log", vim.fn.expand("%:t"))
end)
