// Which lines of a wrapper are used, for one that is compiled with the lines for every selection.
#pragma once

// Around a line that the table may switch off: a function of its own, which is not optimized, since the
// wrapper is one large function and each call with all its arguments takes the compiler time.
#ifdef __clang__
#define INDUCTOR_REWRITER_LINE [&]() __attribute__((noinline, optnone))
#else
#define INDUCTOR_REWRITER_LINE [&]() __attribute__((noinline, optimize("O0")))
#endif

namespace inductor_rewriter {

// Which values of a line are used, one character for each: `1` or `0`. Null if the line is not used.
struct Pick {
  const char* before;  // in the first pick: for the inputs
  const char* after;
};

}  // namespace inductor_rewriter
