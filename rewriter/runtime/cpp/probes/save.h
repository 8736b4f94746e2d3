// Saves every tensor that a launch reads and writes, one file each.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../archive.h"
#include "../engine/saver.h"
#include "../settings.h"
#include "../values.h"

namespace inductor_rewriter {

// Saves a tensor that only torch can save. Returns what went wrong, or null.
using SaveOther = const char* (*)(void* tensor, const char* path);
inline std::atomic<SaveOther>& other_saver() {
  static std::atomic<SaveOther> saver{nullptr};
  return saver;
}

class Save : public Probe {
 public:
  void finish() override {
    std::lock_guard<std::mutex> guard(starting_);
    if (saver_) saver_->wait_until(saver_->last());
  }

  void at(Event& event, RunningCall& call, Recorder& recorder) override {
    for (Item& item : event.items) {
      if (!call.directory || !item.is_tensor()) continue;
      try {
        save(event, item, call, recorder);
      } catch (const std::exception& error) {
        std::string about = event.about() + " " + item.label->name;
        recorder.warn(about, std::string("cannot be saved: ") + error.what());
      }
    }
  }

 private:
  using Result = Saver::Result;

  // A call is over once its tensors are in files.
  struct Saving {
    ~Saving() {
      if (!saver) return;
      saver->wait_until(saver->last());
      report(*saver, *recorder);
    }
    Saver* saver = nullptr;
    Recorder* recorder = nullptr;
  };

  void save(const Event& event, Item& item, RunningCall& call, Recorder& recorder) {
    const Tensor& tensor = item.tensor;
    const bool is_quantized = dtype_info(tensor.dtype).name[0] == 'q';
    const SaveOther save_other = other_saver().load();
    const bool is_other = (!tensor.strided || is_quantized) && save_other && tensor.handle;
    if (!is_other && !tensor.strided) throw std::runtime_error("its layout is not strided");
    if (!is_other && !tensor.in_memory) return;
    if (!is_other && is_quantized) throw std::runtime_error("quantized tensors have no plain elements");
    Saver& saver = saver_of(recorder, call.directory->path);
    Saving& saving = call.state<Saving>(this);
    // If the dump rotates, old calls were removed to make room.
    KeptCalls* const kept = recorder.kept();
    if (!saving.saver && most_ && kept && kept->keep) saver.restart(kept->used());
    saving.saver = &saver;
    saving.recorder = &recorder;
    std::string folder = event.phase;
    if (event.launch) {
      char number[16];
      std::snprintf(number, sizeof number, "%06d", event.launch->row->launch);
      folder = number;
      if (event.iteration) folder += "." + std::to_string(event.iteration);
    }
    const std::string file = folder + "/" + file_name(event, item);
    const std::string path = call.directory->path + "/" + file;
    if (is_other) {
      if (const char* problem = save_other(tensor.handle, path.c_str())) throw std::runtime_error(problem);
      item.file = file;
      return;
    }
    Result result = save_on_device(saver, path, tensor);
    if (result == Result::refused) {
      fetch(item, true);
      const Host& host = item.host;
      result = saver.save(
          path, pickle_tensor(tensor.dtype, tensor.numel, host.shape, host.stride), host.data,
          bytes_of(tensor));
    }
    report(saver, recorder);
    if (result == Result::queued) {
      item.file = file;
    } else if (result == Result::full) {
      item.unsaved = "--max-bytes was reached";
      std::string message = "--max-bytes: with this tensor there would be more than ";
      message += std::to_string(most_) + " bytes; nothing more is saved, and the model runs on";
      recorder.warn("save", message);
    } else {
      item.unsaved = result == Result::failed ? "the disk had no room for what came before it"
                                              : "there is no memory to copy it to";
    }
  }

  // The device copies it, on the stream that it was written on.
  static Result save_on_device(Saver& saver, const std::string& path, const Tensor& tensor) {
    void* stream = nullptr;
    // A complex tensor may be marked as conjugate, which only torch's copy sees.
    if (tensor.on_cpu || !tensor.data || is_complex(tensor.dtype) || !is_dense(tensor) ||
        tensor.device.rfind("cuda", 0) || !current_stream(&stream, tensor.device_index)) {
      return Result::refused;
    }
    const std::string pickle =
        pickle_tensor(tensor.dtype, tensor.numel, tensor.shape, tensor.stride);
    return saver.save(path, pickle, tensor.data, bytes_of(tensor), true, stream);
  }

  static uint64_t bytes_of(const Tensor& tensor) {
    return static_cast<uint64_t>(tensor.numel) * static_cast<uint64_t>(elements::size(tensor.dtype));
  }

  static void report(Saver& saver, Recorder& recorder) {
    const std::string message = saver.take_message();
    if (!message.empty()) recorder.warn("save", message);
  }

  // All savers. Their threads do not end, so those that are not in use are used again. Without a limit of bytes
  // wrappers that save into one dump share a saver, which stores equal tensors once.
  struct Savers {
    std::recursive_mutex lock;
    std::vector<Saver*> idle;
    std::map<std::string, std::weak_ptr<Saver>> shared;  // by dump
    static Savers& get() {
      static Savers& all = *new Savers;
      return all;
    }
    std::shared_ptr<Saver> take(uint64_t most, const std::string& root) {
      const std::lock_guard<std::recursive_mutex> guard(lock);
      const auto known = most ? shared.end() : shared.find(root);
      std::shared_ptr<Saver> saver = known == shared.end() ? nullptr : known->second.lock();
      if (saver && saver->is_own()) return saver;
      saver.reset(take_idle(most), [root](Saver* unused) { get().give(unused, root); });
      if (!most) shared[root] = saver;
      return saver;
    }

   private:
    void give(Saver* unused, const std::string& root) {
      const std::lock_guard<std::recursive_mutex> guard(lock);
      const auto known = shared.find(root);
      if (known != shared.end() && known->second.expired()) shared.erase(known);
      idle.push_back(unused);
    }
    Saver* take_idle(uint64_t most) {
      while (!idle.empty()) {
        Saver* const saver = idle.back();
        idle.pop_back();
        if (!saver->is_own()) continue;  // made by the process that forked this one
        saver->start_again(most);
        return saver;
      }
      return new Saver(most);
    }
  };

  // One for all calls, which are in one dump: ROOT/rank0/run3.
  Saver& saver_of(const Recorder& recorder, const std::string& call) {
    std::lock_guard<std::mutex> guard(starting_);
    if (!saver_) {
      most_ = wanted_bytes(recorder.max_bytes());
      saver_ = Savers::get().take(most_, call.substr(0, call.rfind('/', call.rfind('/') - 1)));
    }
    return *saver_;
  }

  // Upstream's documented name; a long one keeps its ends and is told apart by a checksum.
  static std::string file_name(const Event& event, const Item& item) {
    std::string rest = item.label->name + "_" + item.tensor.device + ".pt";
    for (char& letter : rest) letter = letter == '/' ? '_' : letter;
    if (!event.launch) return "aoti_model_inputs_" + rest;
    std::string start = std::string(event.phase) + "_launch_", kernel = event.launch->row->kernel;
    for (char& letter : kernel) letter = letter == '/' ? '_' : letter;
    std::size_t taken = start.size() + rest.size() + 1, room = taken < 255 ? 255 - taken : 0;
    if (kernel.size() > room) {
      std::size_t end = room > 9 ? room - 9 : 0;
      while (end && (kernel[end] & 0xc0) == 0x80) --end;  // not inside a character
      char sum[16];
      std::snprintf(sum, sizeof sum, "~%08x", Crc32::add(0, kernel.data(), kernel.size()));
      kernel = kernel.substr(0, end) + sum;
    }
    return start + kernel + "_" + rest;
  }

  std::mutex starting_;
  std::shared_ptr<Saver> saver_;
  uint64_t most_ = 0;  // bytes, 0 for all
};

}  // namespace inductor_rewriter
