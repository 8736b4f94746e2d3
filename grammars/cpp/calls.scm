; Everything that may run something, to be sorted into launches, known non-launches, and unrecognised.

(call_expression function: (_) @callee arguments: (_) @arguments) @call

; RAIIPyObject py_buf1(PyObject_CallObject(custom_op_wrapper, py_args_0));   parsed as a function
(parameter_declaration
  type: (_) @callee
  declarator: (abstract_function_declarator parameters: (_) @arguments)) @call
