// The table of a wrapper as the recorder reads it: the options of its probes, and the facts of its launches.
#pragma once

#include <atomic>
#include <cstdlib>
#include <utility>
#include <vector>

#include "objects.h"
#include "picks.h"
#include "table.h"

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
  const char* expected;  // a row for each input, separated by `; `: see expected.h
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
  // Of a wrapper in Python: what its manifest says of the program.
  bool of_python = false;
  const char *torch = nullptr, *command = nullptr;
  const char* tf32 = nullptr;  // operations that may run in TF32, separated by commas; null without CUDA
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
  const char* schema = nullptr;      // of the operator, in Python
  const char* parameters = nullptr;  // which values it gets as: `name parameter parameter`, separated by `; `
};

// A wrapper, as its table says. The first call makes its recorder.
class Wrapper {
 public:
  explicit Wrapper(const Table& from)
      : options(read_options(from.options)), rows(read_rows(from)), inputs(from.inputs), picks(from.picks) {}
  Wrapper(const Options& chosen, std::vector<Row> launches, const char* labels)
      : options(chosen), rows(std::move(launches)), inputs(labels) {}

  // Adds what only the table of a wrapper in Python says.
  void add(const ObjectTable& of) {
    options.of_python = true;
    options.torch = of.torch;
    options.command = of.command;
    options.tf32 = of.tf32;
    if (of.directory) options.dump = of.directory;
    options.quiet = of.quiet;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i].schema = of.more[i][0];
      rows[i].parameters = of.more[i][1];
    }
  }

  Options options;
  std::vector<Row> rows;
  const char* const inputs;
  // The picks of the inputs, then of each launch, if the wrapper has the lines for every selection; null if
  // all of its lines are used.
  const Pick* const picks = nullptr;
  // A Recorder or a Dormant; never freed, since a thread may be in a call.
  std::atomic<void*> recorder{nullptr};
  std::atomic<bool> silent{false};

 private:
  static bool is_set(const char* text) { return text && *text; }
  static int number(const char* text) { return text ? std::atoi(text) : 0; }

  static Options read_options(const char* const* of) {
    return {
        of[0], of[1], of[2], of[3], of[4], of[5], is_set(of[6]), of[7], of[8], is_set(of[9]), of[10],
        of[11], number(of[12]), of[13], of[14], of[15], is_set(of[16]), of[17], is_set(of[18]), of[19]};
  }

  static std::vector<Row> read_rows(const Table& from) {
    std::vector<Row> rows;
    for (unsigned long i = 0; i < from.size; ++i) {
      const auto& of = from.rows[i];
      rows.push_back(
          {number(of[0]), of[1], of[2], of[3], number(of[4]), of[5], of[6], is_set(of[7]), of[8],
           of[9], of[10], of[11], is_set(of[12]), is_set(of[13])});
    }
    return rows;
  }
};

}  // namespace inductor_rewriter
