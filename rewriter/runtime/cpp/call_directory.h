// Where the rows of one call go: into a directory of the dump, or into the ring of the process.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/cpu.h"
#include "engine/files.h"
#include "engine/flight.h"
#include "engine/triggers.h"
#include "statistics.h"

namespace inductor_rewriter {

// One call. Its rows go into the ring, and `see` gets each measured value before its row is written.
class RecordedCall {
 public:
  RecordedCall(FlightRing& ring, const FlightCall& call, Triggers* triggers)
      : ring_(ring), call_(call), slot_(&ring.enter(call)), triggers_(triggers) {}
  RecordedCall(const RecordedCall&) = delete;
  RecordedCall& operator=(const RecordedCall&) = delete;
  ~RecordedCall() {
    ring_.append(call_, FlightRing::end, nullptr, 0);
    if (triggers_) triggers_->end(call_, ring_.ended_ns(call_));
  }
  void rows(const char* data, std::size_t size) {
    ring_.append_rows(call_, data, size);
    if (triggers_) triggers_->fire();
  }
  void see(const Event& event, const Item& item, int place, bool is_allowed) {
    if (!triggers_) return;
    TriggerValue value;
    value.launch = event.launch ? event.launch->row->launch : -1;
    value.iteration = event.iteration;
    value.place = place;
    value.is_allowed = is_allowed;
    value.print = std::hash<std::string>()(item.is_tensor() ? item.fingerprint : item.text);
    if (item.is_tensor() && item.has_statistics()) {
      const Measured& known = item.measurement;
      const int32_t dtype = item.tensor.dtype;
      value.is_written = event.phase[0] == 'a' && item.label->role != "in";
      value.numel = item.tensor.numel;
      value.nan = known.nan;
      value.inf = known.infinite();
      const double low = std::fabs(extreme_of(known.low, dtype)), high = std::fabs(extreme_of(known.high, dtype));
      if (known.finite) value.largest = std::max(low, high);
      value.deviation = known.deviation;
    }
    triggers_->see(call_, value, item.label->name);
  }
  void began(int launch, int iteration) { ring_.mark_begin(call_, slot_, launch, iteration); }
  void ended(int launch, int iteration) { ring_.mark_end(call_, slot_, launch, iteration); }

 private:
  FlightRing& ring_;
  const FlightCall call_;
  FlightSlot* slot_;
  Triggers* const triggers_;
};

// Those of one wrapper. `table` is the text of its table; `kernels` are those of its launches, by index.
class RecordedCalls {
 public:
  RecordedCalls(
      const std::string& root, int rank, const std::string& table, const Options& options,
      const std::map<int, std::string>& kernels)
      : ring_(FlightRing::of(root, rank)) {
    const std::string name = fingerprint_of(table).substr(0, 16);
    table_ = std::strtoull(name.c_str(), nullptr, 16);
    const std::string folder = root + "/record/tables", path = folder + "/" + name + ".json";
    make_directories(folder);
    if (access(path.c_str(), F_OK)) write_whole(path, table);
    if (options.on && *options.on) {
      triggers_ = std::make_unique<Triggers>(ring_, root, rank, options.on, kernels);
    }
  }

  std::unique_ptr<RecordedCall> start(int64_t call) {
    return std::make_unique<RecordedCall>(ring_, ring_.start(static_cast<uint64_t>(call), table_), triggers_.get());
  }

 private:
  FlightRing& ring_;
  uint64_t table_ = 0;
  std::unique_ptr<Triggers> triggers_;  // of all calls, which end before
};

// The directory of one call. `begin` makes its files, later, so that the model need not wait. Rows are
// collected until `flush`.
class CallDirectory {
 public:
  CallDirectory(const std::string& path, std::unique_ptr<RecordedCall> instead)
      : path(path), recorded(std::move(instead)) {}
  CallDirectory(const std::string& path, std::function<void()> make_files)
      : path(path), make_files_(std::move(make_files)) {}
  ~CallDirectory() {
    if (events_ >= 0) ::close(events_);
  }

  bool has_begun() const { return !make_files_; }

  // Makes the files, if that was not tried before. Throws if it fails; a full disk is not to fill up with
  // directories of calls that have nothing.
  void begin() {
    if (!make_files_) return;
    const auto make_files = std::exchange(make_files_, nullptr);
    try {
      make_files();
    } catch (...) {
      unlink((path + "/launches.json").c_str());
      rmdir(path.c_str());
      throw;
    }
    const std::string name = path + "/events.jsonl";
    events_ = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (events_ < 0) fail("write", name);
  }

  void write(const std::string& lines) {
    rows_ += lines;
    if (rows_.size() > most) flush();
  }

  // Writes all rows since the last time, or none of them.
  void flush() {
    if (recorded) {
      recorded->rows(rows_.data(), rows_.size());
      rows_.clear();
      return;
    }
    begin();
    if (events_ < 0) return rows_.clear();  // `begin` has reported the reason
    std::size_t done = 0;
    const int problem = write_all(events_, rows_.data(), rows_.size(), done);
    rows_.clear();
    if (problem) {
      if (done) static_cast<void>(!ftruncate(events_, size_));
      ::close(std::exchange(events_, -1));
      throw std::runtime_error(
          "cannot write " + path + "/events.jsonl: " + strerror(problem) + "; no more rows of this call");
    }
    size_ += static_cast<off_t>(done);
  }

  // Of the path ROOT/rank0/run3: the dump, and the call in it.
  std::string root() const { return path.substr(0, run_at()); }
  std::string run() const { return path.substr(run_at() + 1); }

  const std::string path;
  const std::unique_ptr<RecordedCall> recorded;  // receives the rows instead of a file

 private:
  std::size_t run_at() const { return path.rfind('/', path.rfind('/') - 1); }
  static constexpr std::size_t most = 1 << 16;

  std::function<void()> make_files_;  // empty once it was called
  int events_ = -1;
  std::string rows_;
  off_t size_ = 0;  // of the complete rows
};

}  // namespace inductor_rewriter
