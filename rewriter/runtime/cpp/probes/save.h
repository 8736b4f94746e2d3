// Saves every tensor that a launch reads and writes, one file each.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

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
    if (saved_) Saver::get().wait_for_all();
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
      if (!saved) return;
      Saver::get().wait_for_all();
      report(*saved, *recorder);
    }
    std::shared_ptr<Saved> saved;
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
    const std::shared_ptr<Saved>& saved = saved_in(call.directory->root(), recorder);
    Saving& saving = call.state<Saving>(this);
    // If the dump rotates, old calls were removed to make room.
    KeptCalls* const kept = recorder.kept();
    if (!saving.saved && saved->most && kept && kept->keep) saved->restart(kept->used());
    saving.saved = saved;
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
    Result result = save_on_device(saved, path, tensor);
    if (result == Result::refused) {
      fetch(item, true);
      const Host& host = item.host;
      const std::string pickle = pickle_tensor(tensor.dtype, tensor.numel, host.shape, host.stride);
      result = Saver::get().save(saved, path, pickle, host.data, bytes_of(tensor));
    }
    report(*saved, recorder);
    if (result == Result::queued) {
      item.file = file;
    } else if (result == Result::full) {
      item.unsaved = "--max-bytes was reached";
      recorder.warn("save", "--max-bytes: with this tensor there would be more than " + std::to_string(saved->most) +
          " bytes; nothing more is saved, and the model runs on");
    } else {
      item.unsaved = result == Result::failed ? "the disk had no room for what came before it"
                                              : "there is no memory to copy it to";
    }
  }

  // The device copies it, on the stream that it was written on.
  static Result save_on_device(const std::shared_ptr<Saved>& saved, const std::string& path, const Tensor& tensor) {
    void* stream = nullptr;
    // A complex tensor may be marked as conjugate, which only torch's copy sees.
    if (tensor.on_cpu || !tensor.data || is_complex(tensor.dtype) || !is_dense(tensor) ||
        tensor.device.rfind("cuda", 0) || !current_stream(&stream, tensor.device_index)) {
      return Result::refused;
    }
    const std::string pickle = pickle_tensor(tensor.dtype, tensor.numel, tensor.shape, tensor.stride);
    return Saver::get().save(saved, path, pickle, tensor.data, bytes_of(tensor), true, stream);
  }

  static uint64_t bytes_of(const Tensor& tensor) {
    return static_cast<uint64_t>(tensor.numel) * static_cast<uint64_t>(elements::size(tensor.dtype));
  }

  static void report(Saved& saved, Recorder& recorder) {
    const std::string message = saved.take_message();
    if (!message.empty()) recorder.warn("save", message);
  }

  // All calls are in one dump.
  const std::shared_ptr<Saved>& saved_in(const std::string& root, const Recorder& recorder) {
    std::lock_guard<std::mutex> guard(starting_);
    if (!saved_) saved_ = Saved::in(root, wanted_bytes(recorder.max_bytes()));
    return saved_;
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
  std::shared_ptr<Saved> saved_;
};

}  // namespace inductor_rewriter
