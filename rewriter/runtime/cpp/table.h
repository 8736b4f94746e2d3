// The table of a wrapper: the facts of its launches, and the options of its probes. Includes nothing, so that
// it compiles fast: if it is compiled apart, that is done for each selection.
#pragma once

namespace {
namespace inductor_rewriter {

struct Options {
  const char* artifact;
  const char* sha256;
  const char* version;
  const char* probes;  // names, separated by commas
  const char* when;    // before, after, both; empty: as each probe prefers
  const char* format;  // text or upstream
  bool values;
  const char* outputs;  // returned by scopes: `scope name name`, separated by `; `; `-`: none
  const char* expected;  // a row for each input, separated by `; `: see rewriter/runtime/expected.py
  bool reads_inputs;  // whether probes that read values get the inputs
  const char* label;  // the name of the wrapper in prints; empty if there is only one
  const char* calls;  // which calls are recorded: 3-5,9,20-; empty for all
  int last;           // how many calls the dump keeps, the last ones; 0 for all
  const char* args;   // which arguments are shown: written, all, ends
  const char* max_bytes;  // how much is saved, as `--max-bytes` takes it; empty for all
  const char* allow;  // values that may be NaN or infinite: KERNEL:BUFFER, separated by `; `
  bool stop;          // end the program at the first NaN that is not allowed
  const char* memory;  // memory lines: `event buffer[ held][ waits]`, separated by `; `
  bool dormant = false;  // probes do nothing until `rewriter control` switches them on
  const char* on = nullptr;  // when `record` writes a dump: nan,spike:10x; empty for never
  // Set by a control request for what it switches on.
  const char* dump = nullptr;  // the directory of the dump; empty for that of the program
  bool quiet = false;          // print nothing
};

// One launch of the table. Labels are `role name[ expr]`, separated by `; `; null if there is no line at that
// phase. `buffers` are `name buffer`, for arguments whose memory has another name. `reads` are labels of
// tensors that the launch takes and no line passes. `together`: nothing writes or frees the values of the
// line after the launch before the line after the next launch. `memory_waits`: the work of its memory line
// waits for that of the next one.
struct Row {
  int launch;
  const char* kernel;
  const char* kind;
  const char* scope;
  int line;
  const char* source_nodes;
  const char* origins;
  bool repeats;
  const char* buffers;
  const char* before;
  const char* after;
  const char* reads;
  bool together = false;
  bool memory_waits = false;
};

// Which values of a line are used, one character for each: `1` or `0`. Null if the line is not used.
struct Pick {
  const char* before;  // in the first pick: for the inputs
  const char* after;
};

// A wrapper's table. Constant-initialized; the first call makes what is needed at run time.
struct Wrapper {
  constexpr Wrapper(
      const Options& about, const Row* table, unsigned long count, const char* labels,
      const Pick* picked = nullptr)
      : options(about), rows(table), size(count), inputs(labels), picks(picked) {}

  const Options& options;
  const Row* rows;
  unsigned long size;
  const char* inputs;
  // The picks of the inputs, then of each launch, if the wrapper has the lines for every selection; null if
  // all of its lines are used.
  const Pick* picks;
  // A Recorder or a Dormant; never freed, since a thread may be in a call. Both fields are accessed with
  // atomic builtins of the compiler, as the table includes no header.
  void* recorder = nullptr;
  bool silent = false;
};

}  // namespace inductor_rewriter
}  // namespace
