// Writes a dump: a manifest, and for each rank and call its events and saved tensors.
//
//     DUMP/manifest.json
//     DUMP/rank0/run0/run.json
//     DUMP/rank0/run0/launches.json
//     DUMP/rank0/run0/events.jsonl
//     DUMP/rank0/run0/000012/after_launch_triton_poi_fused_0_buf3_cuda:0.pt
//
// A run directory belongs to the call of a wrapper that created it: processes and wrappers that share a DUMP
// never write to one another's files, and nothing is ever overwritten.
#pragma once

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "call_directory.h"
#include "engine/driver.h"
#include "engine/files.h"
#include "engine/process.h"
#include "event.h"
#include "json.h"
#include "rotation.h"
#include "rows.h"
#include "settings.h"
#include "torch_files.h"

namespace inductor_rewriter {

// The name of the current CUDA device, if there is one.
inline std::string device_name() {
  char name[256];
  int device = 0;
  int (*const current)(int*) = find_driver("cuCtxGetDevice");
  int (*const get)(char*, int, int) = find_driver("cuDeviceGetName");
  const bool has_name = current && get && !current(&device) && !get(name, sizeof name, device);
  return has_name ? name : "cpu";
}

inline std::string command_line() {
  if (const char* given = std::getenv("REWRITER_COMMAND")) return given;
  std::string text = read_file("/proc/self/cmdline");
  std::replace(text.begin(), text.end(), '\0', ' ');
  if (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

// The dump of one wrapper. Makes no file before the first call starts.
class DumpWriter {
 public:
  DumpWriter(
      const Options& options, std::string root, int rank, const std::vector<ProbedLaunch>& launches,
      bool uses_ring)
      : options_(options), uses_ring_(uses_ring), root_(absolute(std::move(root))), rank_(rank),
        about_(describe(options, launches)), kernels_(kernels_of(launches)),
        kept_(root_, wanted_calls(options.last), wanted_bytes(options.max_bytes)) {}

  // Directories have the numbers of the calls, or the next free ones. Null if the dump has reached its size
  // limit.
  std::unique_ptr<CallDirectory> start(int64_t call) {
    if (!kept_.has_room()) return nullptr;
    if (uses_ring_) {
      {
        const std::lock_guard<std::mutex> guard(writing_);
        if (!recorded_) start_recording();
      }
      const std::string name = root_ + "/rank" + std::to_string(rank_) + "/run" + std::to_string(call);
      return std::make_unique<CallDirectory>(name, recorded_->start(call));
    }
    const std::string path = make_directory(call);
    const double now = 1e-9 * static_cast<double>(clock_ns(CLOCK_REALTIME));
    const auto thread = static_cast<int64_t>(reinterpret_cast<uintptr_t>(pthread_self()));
    return std::make_unique<CallDirectory>(path, [this, path, call, now, thread] {
      Json json(true);
      open_run(json);
      json.key("call").number(call).key("pid").number(getpid());
      json.key("thread").number(thread);
      json.key("started").number(now);
      json.close('}');
      write_table(path);
      write_whole(path + "/run.json", json.text + "\n");
    });
  }

  // Ends a call. With --keep, only the last calls stay in the dump; a process that is killed leaves those,
  // and the calls that were running.
  void finish(std::unique_ptr<CallDirectory> run) {
    const std::string path = run->path;
    run->begin();
    run.reset();
    kept_.add(path);
  }

  KeptCalls& kept() { return kept_; }

 private:
  static std::map<int, std::string> kernels_of(const std::vector<ProbedLaunch>& launches) {
    std::map<int, std::string> kernels;
    for (const ProbedLaunch& launch : launches) kernels[launch.row->launch] = launch.row->kernel;
    return kernels;
  }

  // If this fails, such as on a full disk, it is not tried again for each call.
  void start_recording() {
    if (!problem_.empty()) throw std::runtime_error(problem_);
    try {
      make_directories(root_);
      write_manifest();
      Json run(true);
      open_run(run);
      const std::string table = "{\"run\": " + run.close('}').text + ", \"table\": " + about_ + "}\n";
      recorded_ = std::make_unique<RecordedCalls>(root_, rank_, table, options_, kernels_);
    } catch (const std::exception& error) {
      problem_ = std::string(error.what()) + "; nothing is recorded, and the model runs on";
      throw std::runtime_error(problem_);
    }
  }

  // The beginning of every run.json.
  void open_run(Json& json) const {
    json.open('{').key("format").string("rewriter.run").key("version").number(1);
    json.key("artifact").string(options_.artifact).key("sha256").string(options_.sha256);
    json.key("label").string(options_.label).key("host").string(host_name());
  }

  static std::string absolute(std::string path) {
    if (path[0] == '/') return path;
    std::unique_ptr<char, void (*)(void*)> here(getcwd(nullptr, 0), std::free);
    return here ? std::string(here.get()) + "/" + path : path;
  }

  // The table may be long, and is the same in all calls, so each call gets a hard link to the file of the
  // call before; earlier ones may be removed.
  void write_table(const std::string& path) {
    const std::string file = path + "/launches.json";
    const std::lock_guard<std::mutex> guard(writing_);
    // Linking fails if the file is gone, has too many links, or the file system has no links.
    if (table_.empty() || ::link(table_.c_str(), file.c_str())) write_whole(file, about_);
    table_ = file;
  }

  // The text of the table's file.
  static std::string describe(const Options& options, const std::vector<ProbedLaunch>& launches) {
    Json json(true);
    json.open('{').key("format").string("rewriter.run-launches").key("version").number(1);
    write_lists(json, "outputs", options.outputs);
    json.key("launches").open('[');
    for (const ProbedLaunch& launch : launches) write_launch(json, launch);
    json.close(']').close('}');
    return json.text + "\n";
  }

  // Other wrappers and processes make directories here too: the first one to make it owns it.
  std::string make_directory(int64_t call) {
    const std::string ranked = root_ + "/rank" + std::to_string(rank_);
    for (int64_t number = std::max<int64_t>(next_, call);;) {
      const std::string path = ranked + "/run" + std::to_string(number);
      if (has_manifest_ && !mkdir(path.c_str(), 0777)) return next_ = number + 1, path;
      if (has_manifest_ && errno == EEXIST) {
        ++number;
      } else if (!has_manifest_ || errno == ENOENT) {
        // This is the first call, or the dump was removed.
        make_directories(ranked);
        write_manifest();
        kept_.admit_readers();
        has_manifest_ = true;
      } else {
        fail("make", path);
      }
    }
  }

  void write_manifest() {
    std::string path = root_ + "/manifest.json";
    if (!access(path.c_str(), F_OK)) return;
    Json json(true);
    json.open('{').key("format").string("rewriter.dump").key("version").number(1);
    json.key("artifact").string(options_.artifact).key("sha256").string(options_.sha256);
    json.key("rewriter").string(options_.version).key("probes").list(options_.probes, ",");
    if (options_.allow && *options_.allow) json.key("allow").list(options_.allow, "; ");
    json.key("fingerprint").open('{').key("name").string("nh128");
    json.key("version").number(1).close('}');
    json.key("torch").string(options_.torch ? options_.torch : torch_version());
    json.key("device").string(device_name());
    json.key("host").string(host_name());
    if (const int size = read_size()) json.key("ranks").number(size);
    if (options_.tf32) json.key("tf32").list(options_.tf32, ",");
    json.key("command").string(options_.command ? options_.command : command_line()).close('}');
    write_whole(path, json.text + "\n");
  }

  const Options& options_;
  const bool uses_ring_;  // whether the ring of the process gets the calls, in place of directories
  std::unique_ptr<RecordedCalls> recorded_;
  std::string problem_;  // why recording failed
  const std::string root_;
  const int rank_;
  const std::string about_;
  const std::map<int, std::string> kernels_;
  std::atomic<int64_t> next_{0};
  std::atomic<bool> has_manifest_{false};
  KeptCalls kept_;
  std::mutex writing_;
  std::string table_;  // of the last call
};

}  // namespace inductor_rewriter
