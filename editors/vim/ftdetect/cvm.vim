autocmd BufNewFile,BufRead *.cvm,*.loops setfiletype cvm
