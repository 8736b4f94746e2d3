// What a wrapper declares. Includes nothing, so that it compiles fast: a package compiles its table apart, for
// each selection.
#pragma once

namespace inductor_rewriter {

// The facts of a wrapper and of its launches, in the order of `Options` and `Row` in read_table.h, and the labels
// of its inputs. `picks` is for one that is compiled with the lines for every selection; `made` is what the
// recorder makes of the table.
struct Table {
  const char *const *options, *const (*rows)[14], *inputs;
  unsigned long size; const struct Pick* picks; void* made;
};

}  // namespace inductor_rewriter
