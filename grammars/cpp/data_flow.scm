; What a statement of a C++ wrapper does to names. Each pattern says which `effect` it has.
; Written by torch/_inductor/codegen/cpp_wrapper_cpu.py and cpp_wrapper_gpu.py.

; auto buf1 = std::move(buf0);  // reuse
; int64_t s0 = arg0_1_size[0];
; [[maybe_unused]] auto& w = constants_->at(0);
((declaration
  type: (_) @type
  declarator: (init_declarator declarator: (_) @name value: (_) @value))
 (#set! effect "bind"))

; RAIIAtenTensorHandle buf0(buf0_handle);   C++'s most vexing parse: by its syntax a function
((declaration
  type: (_) @type
  declarator: (function_declarator
    declarator: (identifier) @name
    parameters: (parameter_list
      (parameter_declaration type: (type_identifier) @value !declarator))))
 (#set! effect "bind"))

; AtenTensorHandle buf0_handle;   RAIIAtenTensorHandle buf4;
((declaration type: (_) @type declarator: (identifier) @name)
 (#set! effect "declare"))

; buf4 = std::move(true_graph_0_buf1);
((assignment_expression left: (identifier) @name right: (_) @value)
 (#set! effect "bind"))

; buf0.reset();   output_handles[0] = buf4.release();
((call_expression
  function: (field_expression argument: (identifier) @name field: (field_identifier) @method))
 (#set! effect "free")
 (#any-of? @method "reset" "release"))

; [&](auto&& _t) { … }(arg1_1);   arrayref mode: what a name is depends on its type
((call_expression
  function: (lambda_expression
    declarator: (abstract_function_declarator
      parameters: (parameter_list (parameter_declaration declarator: (_) @name))))
  arguments: (argument_list . (_) @value))
 (#set! effect "bind"))
