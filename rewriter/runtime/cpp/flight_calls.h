// Calls whose rows go into the ring of the process: `RecordWriter` in rewriter/runtime/flight_dump.py.
#pragma once

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include "dump.h"
#include "engine/flight.h"
#include "sha256.h"

namespace {
namespace inductor_rewriter {

class FlightCalls : public RecordedCalls {
 public:
  FlightCalls(const std::string& root, int rank, const std::string& table) {
    std::string problem;
    ring_ = FlightRing::of(root, rank, problem);
    if (!ring_) throw std::runtime_error(problem);
    Sha256 whole;
    whole.add(table.data(), table.size());
    const std::string name = whole.hex().substr(0, 16);
    table_ = std::strtoull(name.c_str(), nullptr, 16);
    const std::string folder = root + "/record/tables", path = folder + "/" + name + ".json";
    make_directories(folder);
    struct stat about;
    if (stat(path.c_str(), &about)) write_whole(path, table);
  }

  std::unique_ptr<RecordedCall> start(int64_t call) override {
    return std::make_unique<One>(*ring_, ring_->start(static_cast<uint64_t>(call), table_));
  }

  static std::unique_ptr<RecordedCalls> make(
      const std::string& root, int rank, const std::string& table) {
    return std::make_unique<FlightCalls>(root, rank, table);
  }

 private:
  class One : public RecordedCall {
   public:
    One(FlightRing& ring, const FlightCall& call)
        : ring_(ring), call_(call), slot_(ring.enter(call)) {}
    ~One() override { ring_.append(call_, FlightRing::end, nullptr, 0); }
    void rows(const char* data, std::size_t size) override { ring_.append_rows(call_, data, size); }
    void began(int launch, int iteration) override {
      FlightRing::mark_begin(slot_, launch, iteration);
    }
    void ended(int launch, int iteration) override {
      FlightRing::mark_end(slot_, launch, iteration);
    }

   private:
    FlightRing& ring_;
    const FlightCall call_;
    FlightSlot& slot_;
  };

  FlightRing* ring_ = nullptr;
  uint64_t table_ = 0;
};

}  // namespace inductor_rewriter
}  // namespace
