// Marks that the replay of a CUDA graph leaves in host memory: which launch began last, and which ended last.
//
// A replay runs no host code, and after a fault in it device memory cannot be read. So a write of 32 bits is
// captured before and after each launch. The writes go to host memory that is registered with CUDA and mapped
// from a file in /dev/shm (CUDA cannot register files on a disk). That memory outlives both the fault and the
// process.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "files.h"

namespace inductor_rewriter {

class GraphMarks {
 public:
  // The functions of CUDA that marks need.
  struct Device {
    virtual ~Device() = default;
    // Lets the device write to host memory, at the same address.
    virtual bool enroll(void* memory, std::size_t bytes) = 0;
    // Queues a write of 32 bits on a stream.
    virtual bool write(void* to, uint32_t value, void* stream) = 0;
    // Waits until the device is idle, unless it has failed.
    virtual void wait() = 0;
  };

  // A launch of a call, its iteration, and whether it begins or is over.
  struct Place {
    int launch;
    int iteration;
    bool is_over;
  };

  // Null if there can be no marks: there is no /dev/shm, or the device cannot write to it.
  static std::unique_ptr<GraphMarks> make(const std::string& root, std::unique_ptr<Device> device) {
    std::unique_ptr<GraphMarks> marks(new GraphMarks(std::move(device)));
    if (!marks->share()) return nullptr;
    marks->record_ = root + "/graph-marks-" + std::to_string(marks->pid_) + "-" +
        marks->memory_.substr(marks->memory_.size() - unique) + ".jsonl";
    const std::string pid = std::to_string(marks->pid_);
    const bool is_known = marks->append(
        "{\"format\": \"rewriter.graph-marks\", \"version\": 1, \"pid\": " + pid +
        ", \"memory\": \"" + marks->memory_ + "\"}");
    return is_known ? std::move(marks) : nullptr;
  }

  // The process ends by itself, or the library is unloaded: writes the marks into the dump. The memory is not
  // freed, since a graph may still write to it.
  ~GraphMarks() {
    if (!words_ || getpid() != pid_) return;  // in a fork, the marks belong to the parent
    device_->wait();
    std::string row = "{\"marks\": [";
    for (std::size_t i = 0; i < 2 * slots_.size(); ++i) {
      row += (i ? ", " : "") + std::to_string(const_cast<volatile uint32_t*>(words_)[i]);
    }
    append(row + "]}");
    unlink(memory_.c_str());
  }

  // Adds the mark of a launch to the graph that is captured on the stream. `run` is the directory of the call
  // in the dump, like `rank0/run3`. False if that fails.
  bool leave(const std::string& run, void* stream, const Place& place) {
    std::lock_guard<std::mutex> guard(lock_);
    const auto wanted = std::make_pair(run, stream);
    const auto found = std::find(slots_.begin(), slots_.end(), wanted);
    const std::size_t slot = static_cast<std::size_t>(found - slots_.begin());
    uint32_t* const words = words_ + 2 * slot;
    bool is_done = true;
    if (found == slots_.end()) {
      if ((slot + 1) * 2 * sizeof(uint32_t) > bytes) return false;
      slots_.push_back(wanted);
      const std::string number = std::to_string(slot);
      // Each replay begins by clearing the mark of the launch that ended last.
      is_done = device_->write(words + 1, 0, stream) &&
          append("{\"slot\": " + number + ", \"run\": \"" + run + "\", \"stream\": " + number + "}");
    }
    const uint32_t most = (1u << (32 - launches)) - 1;
    const uint32_t iteration = std::min(static_cast<uint32_t>(place.iteration), most);
    const uint32_t value = iteration << launches | static_cast<uint32_t>(place.launch + 1);
    return device_->write(words + place.is_over, value, stream) && is_done;
  }

 private:
  static constexpr std::size_t bytes = 1 << 16;
  static constexpr int launches = 20;       // bits of a mark for the launch; the others are the iteration
  static constexpr std::size_t unique = 6;  // how many characters of the memory's name are random

  explicit GraphMarks(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  bool share() {
    std::string name = "/dev/shm/rewriter-marks-XXXXXX";
    const int file = mkostemp(&name[0], O_CLOEXEC);
    if (file < 0) return false;
    void* memory = MAP_FAILED;
    if (!ftruncate(file, bytes)) memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    const bool is_shared = memory != MAP_FAILED && device_->enroll(memory, bytes);
    if (!is_shared) {
      if (memory != MAP_FAILED) munmap(memory, bytes);
      unlink(name.c_str());
      return false;
    }
    memory_ = name;
    words_ = static_cast<uint32_t*>(memory);
    return true;
  }

  bool append(const std::string& row) const {
    const std::string line = row + "\n";
    return !write_file(record_, O_APPEND, line.data(), line.size());
  }

  const std::unique_ptr<Device> device_;
  const int pid_ = getpid();
  std::mutex lock_;
  std::vector<std::pair<std::string, void*>> slots_;  // a pair of words each
  std::string memory_, record_;
  uint32_t* words_ = nullptr;
};

}  // namespace inductor_rewriter
