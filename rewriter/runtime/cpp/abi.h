// What a wrapper and the recorder of its calls share, as a C interface: the recorder is a library, is linked
// into a package, or stands in the wrapper. Everything has internal linkage: one process may load many
// instrumented libraries.
//
// A wrapper gets table.h, this file, find.h and lines.h, without the comments that have lines of their own, and
// of the sections `ARRAYS` and `MEMORY` those that its lines need. Handles of tensors are declared by torch's header
// there, and by shim.h in the recorder.
#pragma once

#include "table.h"

namespace inductor_rewriter {

// A value of a line. The kind is i, u, b or f for a number, t for a tensor, k for
// what `view` or `array` kept, and o for all else, which only has a name.
struct Value {
  char kind; int64_t integer = 0; double floating = 0; AtenTensorHandle handle = nullptr;
};

// The functions of the recorder. `begin` returns a call, or null if it is not recorded. `at` takes the values of
// a line before or after a launch, or of the inputs, by the first letter of the phase. They are passed through
// `...`: with arrays of them, or addresses of thousands of variables in one function, compile time would grow
// with the square of their number. `view` and `array` keep what they are given until the line returns. `memory`
// is for the lines of memory probes, by a letter for each; what it returns replaces an allocated buffer.
struct Functions {
  void* (*begin)(Table& table) noexcept;
  void (*end)(void* call) noexcept;
  void (*at)(void* call, char phase, int launch, int count, ...) noexcept;
  Value (*view)(void* call, Value of, int64_t dim, const int64_t* sizes, const int64_t* strides,
                int64_t offset) noexcept;
  AtenTensorHandle (*memory)(void* call, char line, int number, AtenTensorHandle buffer) noexcept;
#ifdef ARRAYS
  Value (*array)(void* call, const void* data, const char* type, int64_t dim, const int64_t* sizes,
                 const int64_t* strides, int32_t device_type, int32_t device_index) noexcept;
#endif
};

}  // namespace inductor_rewriter
