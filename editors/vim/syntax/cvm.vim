" Syntax of cvm: programs (.cvm) and loop nests (.loops).
if exists("b:current_syntax")
  finish
endif

syntax match cvmComment "//.*$" contains=@Spell
syntax match cvmDirective "^// \(test\|run\|check\(-\w\+\)*\)\>.*$"
syntax region cvmString start=+"+ skip=+\\.+ end=+"+ oneline
syntax keyword cvmKeyword func graph rewrite module return yield else call const init file
syntax keyword cvmLoop kernel for in while if break continue let alloc fail assert
syntax keyword cvmLoop vector parallel unrolled scheduled of view step
syntax keyword cvmConstant true false none inf nan
syntax match cvmNumber "\<-\?\d\+\(\.\d*\)\?\([eE][-+]\?\d\+\)\?\>"
syntax match cvmType "\<tensor<[^>]*>"
syntax match cvmType "\<dense<\@="
syntax match cvmType "\<\(i1\|u\?i\(8\|16\|32\|64\)\|bf16\|f\(16\|32\|64\)\)\>"
syntax match cvmType "![a-z_][A-Za-z0-9_.]*"
syntax match cvmSize "?[A-Za-z_][A-Za-z0-9_]*"
syntax match cvmOperator "\<[a-z_]\w*\.[a-z_]\w*"
syntax match cvmAttribute "\<\w\+\ze\s*=[^=]"
syntax match cvmValue "%[A-Za-z0-9_.$]\+"
syntax match cvmFunction "@[A-Za-z0-9_.$]\+"

highlight default link cvmComment Comment
highlight default link cvmDirective PreProc
highlight default link cvmString String
highlight default link cvmKeyword Keyword
highlight default link cvmLoop Repeat
highlight default link cvmConstant Constant
highlight default link cvmNumber Number
highlight default link cvmType Type
highlight default link cvmSize Special
highlight default link cvmOperator Function
highlight default link cvmAttribute Identifier
highlight default link cvmValue Identifier
highlight default link cvmFunction Function

let b:current_syntax = "cvm"
