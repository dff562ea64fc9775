-- The configuration that vim.lsp.config("dice_lsp") starts from; override any part of it with vim.lsp.config().
return {
  cmd = { "dice-lsp", "serve" },
  filetypes = { "cuda" },
  root_markers = { "compile_commands.json", "CMakeLists.txt", ".git" },
  -- Tells the server that we have handlers for its own notifications.
  capabilities = { experimental = { dice = true } },
  handlers = {
    ["dice/status"] = function(_, params)
      require("dice_lsp")._on_status(params)
    end,
    ["dice/candidate"] = function(_, params)
      require("dice_lsp")._on_candidate(params)
    end,
  },
  settings = { dice = vim.empty_dict() },
}
