// What the recorder and the extension module python.cpp share, as a C interface: the module passes on what the
// lines of wrappers in Python hand over.
#pragma once

#include <cstddef>
#include <cstdint>

namespace inductor_rewriter {

// A value of a line. The kind is b, i or f for a number, t for a tensor, s for another object, of which `type`
// and `text` are shown, l for a list whose `integer` members follow, and o for None. A tensor is the address of
// a pointer to its TensorImpl, which is what torch's C shim takes.
struct Object {
  char kind;
  int64_t integer;
  double floating;
  void* tensor;
  const char *type, *text;
};

// A table as it is in C++ (table.h), with what only wrappers in Python say. It stays valid.
struct ObjectTable {
  const char* const* options;
  const char* const (*rows)[14];
  const char* inputs;
  unsigned long size;
  const char* const (*more)[2];  // the schema and the parameters of each launch, or null
  const char *torch, *command, *tf32;  // of the manifest
  const char* directory;  // where it dumps to; null for the directory of the environment
  bool quiet;
};

// Functions of the recorder. A call is null if it is not recorded. Only `attach` and `collected` allocate what
// the caller gets.
struct ObjectFunctions {
  void* (*attach)(const ObjectTable* of) noexcept;
  void* (*begin)(void* table) noexcept;
  // The call of a thread in which none has begun: null if there is nothing to record.
  void* (*resume)(void* table) noexcept;
  // Values before or after a launch, of the inputs, or given to a call that has another number of inputs: by
  // the first letter of the phase, b, a, i or g.
  void (*line)(void* call, char phase, int launch, const Object* values, int count) noexcept;
  // A memory line, by a letter for each. `problem` says why the tensor cannot be guarded or filled, or is null.
  // Returns a tensor that replaces the one that was allocated, or null; the caller owns it.
  void* (*memory)(void* call, char line, int number, void* tensor, const char* problem) noexcept;
  void (*end)(void* call) noexcept;
  // Writes all calls that have ended. `is_last`: the program ends, or recording does.
  void (*finish)(void* table, bool is_last) noexcept;
  // Where lines go: a descriptor, or -1 to collect them; the same for messages on standard error.
  void (*print_to)(int lines, int messages) noexcept;
  // The collected lines or messages, and their size; null if there are none. To be freed.
  char* (*collected)(bool messages, std::size_t* size) noexcept;
  // The program ends by itself, by the exception with this text if it is not empty.
  void (*ended)(const char* exception) noexcept;
  // Has tensors that only torch can save be saved by `save`, which returns what went wrong, or null.
  void (*save_with)(const char* (*save)(void* tensor, const char* path)) noexcept;
};

}  // namespace inductor_rewriter
