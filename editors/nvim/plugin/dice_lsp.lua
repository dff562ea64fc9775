-- Starts the server for CUDA files. Set vim.g.dice_lsp_disable = true before this is read to start it yourself.
if vim.g.loaded_dice_lsp then
  return
end
vim.g.loaded_dice_lsp = true

if vim.fn.has("nvim-0.11") == 0 then
  vim.notify("dice_lsp needs Neovim 0.11 or newer, see :help dice_lsp", vim.log.levels.WARN)
  return
end

vim.filetype.add({ extension = { cu = "cuda", cuh = "cuda" } })

local group = vim.api.nvim_create_augroup("dice_lsp", {})

vim.api.nvim_create_autocmd("LspAttach", {
  group = group,
  callback = function(event)
    local client = vim.lsp.get_client_by_id(event.data.client_id)
    if client and client.name == "dice_lsp" then
      require("dice_lsp").attach(client, event.buf)
    end
  end,
})

vim.api.nvim_create_autocmd("LspProgress", {
  group = group,
  callback = function(event)
    local client = vim.lsp.get_client_by_id(event.data.client_id)
    if client and client.name == "dice_lsp" then
      require("dice_lsp")._on_progress(event.data.params)
    end
  end,
})

if not vim.g.dice_lsp_disable then
  vim.lsp.enable("dice_lsp")
end
