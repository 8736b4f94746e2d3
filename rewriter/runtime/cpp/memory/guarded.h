// Buffers with guard bands, which replace those that a wrapper allocated, and slots for records of damage.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "../engine/bands.h"
#include "../engine/process.h"
#include "../event.h"
#include "../gpu_rows.h"
#include "../shim.h"
#include "../tensor.h"

namespace inductor_rewriter {

// The whole memory behind a tensor, also behind a view.
struct Memory {
  unsigned char* address = nullptr;
  int64_t bytes = 0;
  int32_t dtype = -1, device_type = 0, device_index = 0;
  int item = 0;
  bool on_cpu = false;
  int device() const { return on_cpu ? -1 : device_index; }
};

// Finds the memory of a tensor. Returns why it cannot be guarded or filled, or an empty text. An undefined
// tensor has none.
inline std::string find_memory(AtenTensorHandle handle, Memory& memory) {
  Seen seen;
  seen.handle = handle;
  look(Content::Kind::tensor, seen);
  if (!seen.is_present) return "it has no elements";
  memory.dtype = seen.dtype;
  memory.device_type = seen.device_type;
  memory.device_index = seen.device_index;
  memory.on_cpu = seen.device_type == aoti_torch_device_type_cpu();
  constexpr int32_t cuda = 1;
  if (!seen.is_strided || !(memory.on_cpu || seen.device_type == cuda)) return "on another device";
  int64_t bytes = 0, offset = 0;
  check(aoti_torch_get_storage_size(handle, &bytes), "get_storage_size");
  if (!bytes) return "it has no elements";
  if (dtype_info(seen.dtype).name[0] == 'q') return "it is quantized";
  memory.item = elements::size(seen.dtype);
  if (!memory.item) return "the size of its elements is not known";
  void* data = nullptr;
  check(aoti_torch_get_storage_offset(handle, &offset), "get_storage_offset");
  check(aoti_torch_get_data_ptr(handle, &data), "get_data_ptr");
  if (!data) return "it has no elements";
  memory.bytes = bytes;
  memory.address = static_cast<unsigned char*>(data) - offset * memory.item;
  return "";
}

// A buffer in its own memory, between two bands of `guard` bytes.
struct Guarded {
  Owned buffer;  // replaces the one that was allocated
  Owned whole;   // owns the memory
};

// Allocates memory with bands for a tensor that has just been allocated, and sets `memory` to it. The buffer begins
// its storage where torch can make it so (2.11); otherwise it has an offset there, which views of it count from.
inline void make_guarded(AtenTensorHandle made, int64_t guard, Memory& memory, Guarded& to) {
  int64_t *sizes = nullptr, *strides = nullptr, dim = 0;
  check(aoti_torch_get_dim(made, &dim), "get_dim");
  check(aoti_torch_get_sizes(made, &sizes), "get_sizes");
  check(aoti_torch_get_strides(made, &strides), "get_strides");
  const int64_t padded = (memory.bytes + 15) / 16 * 16, one = 1;
  const int64_t elements = (guard + padded + guard) / memory.item;
  check(
      aoti_torch_empty_strided(
          1, &elements, &one, memory.dtype, memory.device_type, memory.device_index, &to.whole.handle),
      "empty_strided");
  void* data = nullptr;
  check(aoti_torch_get_data_ptr(to.whole.handle, &data), "get_data_ptr");
  memory.address = static_cast<unsigned char*>(data) + guard;
  using FromBlob = AOTITorchError (*)(
      void*, int64_t, const int64_t*, const int64_t*, int64_t, int32_t, int32_t, int32_t,
      AtenTensorHandle*, int32_t, const uint8_t*, int64_t, void (*)(void*, void*), void*);
  static const FromBlob from_blob = loaded("torch_from_blob");
  if (from_blob) {
    static const bool stays = (stay_loaded(), true);  // a result may outlive its package
    (void)stays;
    AtenTensorHandle kept = nullptr;
    check(aoti_torch_new_tensor_handle(to.whole.handle, &kept), "new_tensor_handle");
    const auto let_go = [](void*, void* whole) {
      aoti_torch_delete_tensor_object(static_cast<AtenTensorHandle>(whole));
    };
    if (!from_blob(
            memory.address, dim, sizes, strides, 0, memory.dtype, memory.device_type, memory.device_index,
            &to.buffer.handle, aoti_torch_layout_strided(), nullptr, 0, let_go, kept)) {
      return;
    }
    aoti_torch_delete_tensor_object(kept);
  }
  check(
      aoti_torch__reinterpret_tensor(
          to.whole.handle, dim, sizes, strides, guard / memory.item, &to.buffer.handle),
      "reinterpret_tensor");
}

// The slots for damage of one device, -1 for the host, for all wrappers of this copy of the runtime.
class Places {
 public:
  static constexpr int most_devices = 64;

  // Null if there are none: `problem` says why.
  static Places* of(int device, std::string& problem) {
    static std::mutex lock;
    static Places* all[most_devices + 1] = {};
    if (device >= most_devices) return nullptr;
    Gpu* const gpu = device < 0 ? nullptr : GpuRows::engine(device, problem);
    if (device >= 0 && !gpu) {
      if (problem.empty()) problem = "its device is not the current one";
      return nullptr;
    }
    std::lock_guard<std::mutex> guard(lock);
    Places*& one = all[device + 1];
    if (one) return one;
    return one = new Places(device, gpu, gpu ? gpu->damage() : new Damage[most_damaged]());
  }

  int device() const { return device_; }

  bool take(int& place) {
    std::lock_guard<std::mutex> guard(lock_);
    if (free_.empty()) return false;
    place = free_.back();
    free_.pop_back();
    return true;
  }
  // Frees a slot. No comparison may use it any more.
  void give(int place) {
    rows_[place] = Damage();
    std::lock_guard<std::mutex> guard(lock_);
    free_.push_back(place);
  }

  // Runs a job on memory of the device. On a GPU, this does not wait, and the stream may be `captured`. False
  // if it was not issued.
  bool act(MemoryJob& job, void* stream, bool captured) {
    if (gpu_) return gpu_->act(job, stream, captured);
    job.damage = rows_;
    if (act_on_host(job)) rows_->launch = job.launch;
    return true;
  }

  // Whether the host knows of a damaged band.
  bool has_damage() const { return const_cast<volatile Damage*>(rows_)->launch; }

  bool read(int place, Damage& to) const {
    if (!const_cast<volatile Damage*>(rows_ + place)->launch) return false;
    to = rows_[place];
    return true;
  }

  void synchronize(void* stream) const {
    if (gpu_) gpu_->synchronize(stream);
  }

 private:
  Places(int device, Gpu* gpu, Damage* rows) : device_(device), gpu_(gpu), rows_(rows) {
    for (int place = most_damaged - 1; place > 0; --place) free_.push_back(place);
  }

  const int device_;
  Gpu* const gpu_;  // null for the host
  Damage* const rows_;
  std::mutex lock_;
  std::vector<int> free_;
};

}  // namespace inductor_rewriter
