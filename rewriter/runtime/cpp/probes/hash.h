// Tells tensors apart by a digest of their elements: `digest` in rewriter/runtime/digest.py.
#pragma once

#include "../formats/text.h"
#include "../sha256.h"
#include "../shown.h"
#include "../values.h"

namespace {
namespace inductor_rewriter {

class Hash : public Probe {
 public:
  void at(Event& event, RunningCall& call, Recorder& recorder) override {
    std::string text;
    // The lines of print have the digests at their ends.
    const bool prints = !recorder.has("print");
    std::unique_ptr<Shown> shown;
    if (prints) shown = std::make_unique<Shown>(event, call, recorder);
    for (Item& item : event.items) {
      if (!item.is_tensor()) continue;
      try {
        item.sha256 = digest(item);
      } catch (const std::exception& error) {
        std::string about = event.about() + " " + item.label->name;
        recorder.warn(about, std::string("cannot be hashed: ") + error.what());
      }
      if (prints && shown->is_fresh(item)) text += digest_text(event, item, recorder);
    }
    recorder.write(text);
  }

 private:
  static std::string digest(Item& item) {
    const Tensor& tensor = item.tensor;
    const Dtype& about = dtype_info(tensor.dtype);
    if (!tensor.strided || !tensor.in_memory || about.name[0] == 'q') return "";
    fetch(item, true);
    Sha256 sha256;
    auto add = [&](const char* from, int count) {
      sha256.add(from, static_cast<std::size_t>(count) * about.size);
    };
    auto dims = row_major(item.host.shape, item.host.stride);
    if (tensor.numel) walk(item.host.data, dims, about.size, add);
    return sha256.hex();
  }
};

}  // namespace inductor_rewriter
}  // namespace
