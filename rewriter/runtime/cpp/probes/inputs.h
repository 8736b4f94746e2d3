// Compares the inputs of each call with what the wrapper was compiled for, before anything runs.
#pragma once

#include <mutex>

#include "../expected.h"
#include "../recorder.h"

namespace inductor_rewriter {

class Inputs : public Probe {
 public:
  void given(Event& event, const Contents& contents, RunningCall&, Recorder& recorder) override {
    std::call_once(read_, [&] {
      for (const std::string& row : split(recorder.expected(), "; ")) {
        if (row.compare(0, 3, "if ") == 0) guards_.push_back(row.substr(3));
        else rows_.push_back(ExpectedInput::read(row));
      }
    });
    if (contents.size() != rows_.size()) {
      std::string wrong = std::to_string(contents.size()) + " values, expected " + std::to_string(rows_.size()) + " (";
      wrong += (rows_.empty() ? "none" : rows_.front().name + " to " + rows_.back().name) + ")";
      recorder.write(recorder.start(event.call) + " inputs: " + wrong + "\n");
      return event.unexpected.emplace_back("", wrong), void();
    }
    std::vector<Given> values(rows_.size());
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      recorder.act("inputs " + rows_[i].name, [&] { values[i] = Given::read(contents[i]); });
    }
    Symbols symbols(rows_, values);
    std::string start = recorder.start(event.call) + " inputs ", text;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      Texts problems = violated(guards_, rows_[i].name, symbols);
      std::string differs = compare(rows_[i], values[i], symbols);
      if (!differs.empty()) problems.insert(problems.begin(), differs);
      if (problems.empty()) continue;
      std::string wrong = join(problems, "; ");
      text += start + rows_[i].name + ": " + wrong + "\n";
      event.unexpected.emplace_back(rows_[i].name, wrong);
    }
    recorder.write(text);
    if (!noted_.exchange(true)) note(symbols, recorder);
  }

 private:
  static constexpr std::size_t most = 4;  // inputs that the note names

  // Notes once which facts the wrapper does not say, so that they could not be checked.
  void note(const Symbols& symbols, Recorder& recorder) {
    Texts open;
    for (const ExpectedInput& row : rows_) {
      Texts facts = unknown(row, symbols);
      if (!facts.empty()) open.push_back(row.name + " (" + join(facts, ", ") + ")");
    }
    if (open.empty()) return;
    std::string count = std::to_string(open.size()), more;
    if (open.size() > most) {
      more = " and " + std::to_string(open.size() - most) + " more";
      open.resize(most);
    }
    recorder.warn(
        "inputs",
        count + " of " + std::to_string(rows_.size()) +
            " inputs cannot be checked in full, since the wrapper does not say what it expects: " +
            join(open, ", ") + more);
  }

  std::once_flag read_;
  std::vector<ExpectedInput> rows_;
  Texts guards_;
  std::atomic<bool> noted_{false};
};

}  // namespace inductor_rewriter
