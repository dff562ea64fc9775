-- The configuration that vim.lsp.config("dice_lsp") starts from; override any part of it with vim.lsp.config().

-- Whether a Python file has kernels in its strings: no other starts the server.
local function has_kernels(bufnr)
  return vim.api.nvim_buf_call(bufnr, function()
    return vim.fn.search([[\<__global__\>]], "nw") > 0
  end)
end

local config = {
  cmd = { "dice-lsp", "serve" },
  filetypes = { "cuda", "python" },
  root_markers = { "compile_commands.json", "CMakeLists.txt", ".git" },
  root_dir = function(bufnr, on_dir)
    if vim.bo[bufnr].filetype ~= "python" or has_kernels(bufnr) then
      on_dir(vim.fs.root(bufnr, vim.lsp.config.dice_lsp.root_markers))
    end
  end,
  -- Tells the server that we have handlers for its own notifications.
  capabilities = { experimental = { dice = true } },
  handlers = {
    ["dice/status"] = function(_, params, context)
      require("dice_lsp.status").on_status(params, context.client_id)
    end,
    ["dice/candidate"] = function(_, params)
      require("dice_lsp")._on_candidate(params)
    end,
    ["textDocument/inlayHint"] = function(err, result, context)
      require("dice_lsp.hints").on_answer(err, result, context)
    end,
  },
  commands = {
    ["dice.fill"] = function(command, context)
      require("dice_lsp")._on_fill_command(command, context)
    end,
  },
  on_exit = function(code, signal, client_id)
    require("dice_lsp")._on_exit(code, signal, client_id)
  end,
  settings = { dice = vim.empty_dict() },
}

-- Neovim 0.11 knows code lenses, but no server can tell it to ask for them again.
if not vim.lsp.codelens.enable then
  config.capabilities.workspace = { codeLens = { refreshSupport = true } }
  config.handlers["workspace/codeLens/refresh"] = function(_, _, context)
    require("dice_lsp")._on_lens_refresh(context.client_id)
    return vim.NIL
  end
end

return config
