// Guard bands: memory before and after a buffer that holds a pattern, and that no kernel may write. They
// are compared after launches, on the host or by a kernel of the GPU (memory_kernels.h); the first damage
// of each band is recorded. The same kernel fills memory with patterns.
#pragma once

#if !defined(__CUDACC_RTC__)
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#define INDUCTOR_REWRITER_BOTH inline  // on the host and on a GPU
#else
#define INDUCTOR_REWRITER_BOTH __device__ inline
#endif

namespace inductor_rewriter {

constexpr int most_bands = 120;     // that one launch compares
constexpr int few_bands = 24;       // for a launch with fewer bytes of arguments, which is issued faster
constexpr int most_damaged = 4096;  // records of damage; the first one counts the damaged bands

struct Band {
  const unsigned char* data;
  uint64_t pattern;  // byte `address % 8` of it is expected at each address
  uint32_t bytes;
  uint16_t slot;       // the index of its record of damage
  uint8_t before;      // 1: before its buffer, 0: after it
  uint8_t item_bytes;  // size of an element of the buffer
};

// The record of a band's damage. `launch` is 0 while the band is whole, otherwise the index of the launch
// after which it was not, plus 1. In elements of the buffer: `distance` is from its edge to the nearest one
// that is damaged, `count` how many are, whichever of their bytes differ from the pattern; `element` is the
// nearest one.
struct Damage {
  uint64_t launch, distance, count;
  unsigned char element[8];
};

// Where an element of the buffer would lie in its band, counted from the buffer. The last one may not fit.
struct ElementBytes {
  uint32_t begin, end;
};
INDUCTOR_REWRITER_BOTH uint32_t elements_of(const Band& band) {
  const uint32_t item = band.item_bytes ? band.item_bytes : 1;
  return (band.bytes + item - 1) / item;
}
INDUCTOR_REWRITER_BOTH ElementBytes bytes_of(const Band& band, uint32_t element) {
  const uint32_t item = band.item_bytes ? band.item_bytes : 1, near = element * item;
  const uint32_t far = near + item < band.bytes ? near + item : band.bytes;
  return band.before ? ElementBytes{band.bytes - far, band.bytes - near} : ElementBytes{near, far};
}

struct Filled {
  unsigned char* data;
  uint64_t bytes, pattern;
};
constexpr int most_filled = 16;  // that one launch fills

// The argument of a launch that compares bands after a launch of the model and fills memory, in no
// particular order.
template <int most>
struct MemoryJobOf {
  Damage* damage;
  uint64_t launch;
  uint32_t bands_count, parts_count;
  uint32_t blocks, unused;  // how many blocks fill memory
  Filled parts[most_filled];
  Band bands[most];
};
using MemoryJob = MemoryJobOf<most_bands>;
using SmallMemoryJob = MemoryJobOf<few_bands>;  // the beginning of a MemoryJob
static_assert(sizeof(MemoryJob) <= 4096, "the limit for arguments of a launch");

#if !defined(__CUDACC_RTC__)

inline unsigned char byte_at(const unsigned char* at, uint64_t pattern) {
  return static_cast<unsigned char>(pattern >> (reinterpret_cast<uintptr_t>(at) % 8 * 8));
}

// The pattern repeats every 8 bytes: a whole band begins with it, and is the same 8 bytes further.
inline bool is_whole(const Band& band) {
  const uint32_t first = std::min<uint32_t>(band.bytes, 8);
  for (uint32_t i = 0; i < first; ++i) {
    if (band.data[i] != byte_at(band.data + i, band.pattern)) return false;
  }
  return !std::memcmp(band.data, band.data + first, band.bytes - first);
}

// Compares bands in host memory. Returns how many are damaged and were not before.
inline int compare_bands(const Band* bands, int count, uint64_t launch, Damage* damage) {
  int found = 0;
  for (int i = 0; i < count; ++i) {
    const Band& band = bands[i];
    Damage& mine = damage[band.slot];
    if (mine.launch || is_whole(band)) continue;
    mine.count = 0;
    for (uint32_t element = elements_of(band); element-- > 0;) {  // the nearest one comes last
      const ElementBytes bytes = bytes_of(band, element);
      uint32_t at = bytes.begin;
      while (at < bytes.end && band.data[at] == byte_at(band.data + at, band.pattern)) ++at;
      if (at == bytes.end) continue;
      mine.distance = element;
      ++mine.count;
      for (uint32_t i = 0; i < 8; ++i) {
        const bool is_inside = bytes.begin + i < bytes.end;
        mine.element[i] = is_inside ? band.data[bytes.begin + i] : static_cast<unsigned char>(0);
      }
    }
    mine.launch = launch;
    ++found;
  }
  return found;
}

// Fills host memory, as the kernel fills a GPU's.
inline void fill_memory(void* data, uint64_t bytes, uint64_t pattern) {
  unsigned char* at = static_cast<unsigned char*>(data);
  unsigned char* const end = at + bytes;
  for (; at < end && reinterpret_cast<uintptr_t>(at) % 8; ++at) *at = byte_at(at, pattern);
  for (; at + 8 <= end; at += 8) std::memcpy(at, &pattern, 8);
  for (; at < end; ++at) *at = byte_at(at, pattern);
}

// Does a job in host memory. Returns how many bands are damaged and were not before.
inline int act_on_host(const MemoryJob& job) {
  const int found = compare_bands(job.bands, static_cast<int>(job.bands_count), job.launch, job.damage);
  for (uint32_t part = 0; part < job.parts_count; ++part) {
    fill_memory(job.parts[part].data, job.parts[part].bytes, job.parts[part].pattern);
  }
  return found;
}

// Compares any number of bands, with as many jobs as that takes. False if `act` failed.
template <class Act>
bool compare_all(const Band* bands, std::size_t count, uint64_t launch, Act act) {
  MemoryJob job = {};
  job.launch = launch;
  for (std::size_t done = 0; done < count; done += job.bands_count) {
    job.bands_count = static_cast<uint32_t>(std::min<std::size_t>(count - done, most_bands));
    std::memcpy(job.bands, bands + done, sizeof(Band) * job.bands_count);
    if (!act(job)) return false;
  }
  return true;
}

// Collects what successive lines of a wrapper do to memory, as long as nothing runs between them that
// reads or writes memory; one job then does all of it. A job has no order, so its parts never overlap.
// Callers keep the memory alive until the job is done.
class MemoryWork {
 public:
  bool is_empty() const { return !job_.bands_count && !job_.parts_count; }

  // Whether this memory can be filled by the same job.
  bool takes(const Filled* parts, int count, int device, void* stream) const {
    if (is_empty()) return count <= most_filled;
    if (device != device_ || stream != stream_) return false;
    if (job_.parts_count + static_cast<uint32_t>(count) > most_filled) return false;
    for (int i = 0; i < count; ++i) {
      if (overlaps(parts[i].data, parts[i].bytes)) return false;
    }
    return true;
  }
  // Adds memory to fill. `probe` is which probe asked for it, for `filled`.
  void fill(const Filled* parts, int count, int device, void* stream, int probe) {
    device_ = device;
    stream_ = stream;
    for (int i = 0; i < count; ++i) job_.parts[job_.parts_count++] = parts[i];
    ++filled_[probe];
  }
  // Whether the job can compare so many bands: it has to be empty.
  bool takes_bands(std::size_t count) const { return is_empty() && count <= most_bands; }
  void compare(const Band* bands, std::size_t count, uint64_t launch, int device, void* stream) {
    device_ = device;
    stream_ = stream;
    job_.launch = launch;
    job_.bands_count = static_cast<uint32_t>(count);
    std::memcpy(job_.bands, bands, sizeof(Band) * count);
  }

  MemoryJob& job() { return job_; }
  void* stream() const { return stream_; }
  // Whether the job compares bands, and how often it fills memory for a probe.
  bool compares() const { return job_.bands_count; }
  int filled(int probe) const { return filled_[probe]; }
  void clear() {
    forget_parts();
    job_.bands_count = 0;
  }
  // Fills nothing after all.
  void forget_parts() {
    job_.parts_count = 0;
    for (int& count : filled_) count = 0;
  }

 private:
  bool overlaps(const unsigned char* data, uint64_t bytes) const {
    const auto meets = [&](const unsigned char* other, uint64_t length) {
      return data < other + length && other < data + bytes;
    };
    for (uint32_t i = 0; i < job_.parts_count; ++i) {
      if (meets(job_.parts[i].data, job_.parts[i].bytes)) return true;
    }
    for (uint32_t i = 0; i < job_.bands_count; ++i) {
      if (meets(job_.bands[i].data, job_.bands[i].bytes)) return true;
    }
    return false;
  }

  MemoryJob job_ = {};
  int filled_[3] = {};  // index: bounds, poison, stale
  int device_ = -1;
  void* stream_ = nullptr;
};

#endif

}  // namespace inductor_rewriter
