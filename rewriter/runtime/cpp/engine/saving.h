// The C interface of `Saver`, for Python (rewriter/runtime/saved.py). No exception leaves it.
#pragma once

#include <cstdint>
#include <cstring>
#include <exception>
#include <string>

#include "saver.h"

// A C interface: nothing is thrown out of it.
extern "C" {

__attribute__((visibility("default"))) void* inductor_rewriter_saver(
    uint64_t most, int32_t threads, uint64_t staging) {
  try {
    return new inductor_rewriter::Saver(most, threads, staging ? staging : inductor_rewriter::Saver::default_staging);
  } catch (const std::exception&) {
    return nullptr;
  }
}

// A `Saver::Result`, or -1 if there is no memory or no thread.
__attribute__((visibility("default"))) int32_t inductor_rewriter_save(
    void* saver, const char* path, const char* pickle, uint64_t pickle_size, const void* data,
    uint64_t size, int32_t on_device, void* stream) {
  try {
    return static_cast<int32_t>(static_cast<inductor_rewriter::Saver*>(saver)->save(
        path, std::string(pickle, pickle_size), static_cast<const char*>(data), size, on_device,
        stream));
  } catch (const std::exception&) {
    return -1;
  }
}

__attribute__((visibility("default"))) uint64_t inductor_rewriter_last_save(void* saver) {
  return static_cast<inductor_rewriter::Saver*>(saver)->last();
}

__attribute__((visibility("default"))) void inductor_rewriter_wait_for_save(
    void* saver, uint64_t ticket) {
  static_cast<inductor_rewriter::Saver*>(saver)->wait_until(ticket);
}

__attribute__((visibility("default"))) void inductor_rewriter_restart_saver(
    void* saver, uint64_t used) {
  static_cast<inductor_rewriter::Saver*>(saver)->restart(used);
}

__attribute__((visibility("default"))) uint64_t inductor_rewriter_saved_bytes(void* saver) {
  return static_cast<inductor_rewriter::Saver*>(saver)->used();
}

// The length of the message; as much of it is written as there is room for.
__attribute__((visibility("default"))) uint64_t inductor_rewriter_save_message(
    void* saver, char* to, uint64_t room) {
  try {
    const std::string message = static_cast<inductor_rewriter::Saver*>(saver)->take_message();
    const std::size_t size = message.size() < room ? message.size() : room;
    std::memcpy(to, message.data(), size);
    return size;
  } catch (const std::exception&) {
    return 0;
  }
}

}  // extern "C"
