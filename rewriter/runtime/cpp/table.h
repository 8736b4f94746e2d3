// The table of a wrapper: what is known of its launches, and what its probes are to do. Nothing is
// included: where it is compiled apart, it is compiled for each selection.
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
  const char* outputs;  // what scopes return: `scope name name`, separated by `; `; `-` is no name
  const char* expected;  // of each input, separated by `; `: see rewriter/runtime/expected.py
  bool reads_inputs;  // whether probes that read values are to have the inputs
  const char* label;  // which of several wrappers it is, in a print; empty for one alone
  const char* calls;  // which calls are recorded: 3-5,9,20-; empty for all
  int last;           // how many calls the dump keeps, the last ones; 0 for all
  const char* args;   // which arguments probes show that leave it to the user: written, all, ends
  bool recheck;       // read again what is known not to have been written since it was measured
  const char* max_bytes;  // how much is saved, as `--max-bytes` takes it; empty for all
  const char* allow;  // values that may be NaN or infinite: KERNEL:BUFFER, separated by `; `
  bool stop;          // end the program at the first NaN that is not allowed
  const char* memory;  // of lines about memory: `event buffer[ held][ waits]`, separated by `; `
  bool dormant = false;  // nothing is done before `rewriter control` says so
  const char* on = nullptr;  // when `record` writes a dump: nan,spike:10x; empty for never
  // What is switched on says these itself.
  const char* dump = nullptr;  // the directory of the dump; empty for that of the program
  bool quiet = false;          // whether nothing is printed
};

// One launch of the table. Labels are `role name[ expr]`, separated by `; `; null where nothing is
// injected at that phase. `buffers` are `name buffer`, of arguments whose memory has another name;
// `reads` are labels of what the launch is given and no line hands over. `together`: nobody writes or
// frees what the line behind it hands over before the line behind the next launch. `memory_waits`: what
// is done to memory behind it waits for the next line about memory.
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

// Which values of a line count, one character for each: `1` or `0`. Null where the line does not
// count at all.
struct Pick {
  const char* before;  // in the first of all picks: the inputs
  const char* after;
};

// A wrapper's table. Initialised by the compiler; the first call makes what it needs at run time.
struct Wrapper {
  constexpr Wrapper(
      const Options& about, const Row* table, unsigned long count, const char* labels,
      const Pick* picked = nullptr)
      : options(about), rows(table), size(count), inputs(labels), picks(picked) {}

  const Options& options;
  const Row* rows;
  unsigned long size;
  const char* inputs;
  // Of the inputs, then of each launch, where the lines stand for every selection; null where all
  // of them count.
  const Pick* picks;
  // A Recorder, or what is Dormant; never freed: a thread may be in a call. Both are atomic, by
  // the compiler's own functions: the table is compiled without any header.
  void* recorder = nullptr;
  bool silent = false;
};

}  // namespace inductor_rewriter
}  // namespace
