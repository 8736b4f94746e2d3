; The functions whose bodies hold launches. In `run_impl` of AOTInductor the class may have a name of
; its own (`AOTInductorModelFoo`), and the arrayref interface is a template.
(function_definition
  declarator: (function_declarator declarator: (_) @name)
  body: (compound_statement) @body
  (#match? @name "^(AOTInductorModel[A-Za-z0-9_]*\\s*::\\s*)?(run_impl|_const_run_impl|run_impl_minimal_arrayref_interface(_v2_raw)?|inductor_entry_impl)\\s*(<[^)]*>)?$"))
