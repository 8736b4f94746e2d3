// Saves every tensor that a launch reads and writes, one file each.
#pragma once

#include "../archive.h"
#include "../sha256.h"
#include "../values.h"

namespace {
namespace inductor_rewriter {

class Save : public Probe {
 public:
  void at(Event& event, RunningCall& call, Recorder& recorder) override {
    for (Item& item : event.items) {
      if (!call.directory || !item.is_tensor()) continue;
      try {
        save(event, item, call.directory->path);
      } catch (const std::exception& error) {
        std::string about = event.about() + " " + item.label->name;
        recorder.warn(about, std::string("cannot be saved: ") + error.what());
      }
    }
  }

 private:
  void save(const Event& event, Item& item, const std::string& root) {
    if (!item.tensor.strided) throw std::runtime_error("its layout is not strided");
    if (!item.tensor.in_memory) return;
    fetch(item, true);
    std::string folder = event.phase;
    if (event.launch) {
      char number[16];
      std::snprintf(number, sizeof number, "%06d", event.launch->row->launch);
      folder = number;
      if (event.iteration) folder += "." + std::to_string(event.iteration);
    }
    std::string file = folder + "/" + file_name(event, item);
    if (mkdir((root + "/" + folder).c_str(), 0777) && errno != EEXIST) {
      fail("make", root + "/" + folder);
    }
    save_tensor(root + "/" + file, item, saved_);
    item.file = file;
  }

  // Upstream's documented name; a long one keeps its ends and is told apart by a hash.
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
      Sha256 whole;
      whole.add(kernel.data(), kernel.size());
      kernel = kernel.substr(0, end) + "~" + whole.hex().substr(0, 8);
    }
    return start + kernel + "_" + rest;
  }

  Saved saved_;  // of all calls
};

}  // namespace inductor_rewriter
}  // namespace
