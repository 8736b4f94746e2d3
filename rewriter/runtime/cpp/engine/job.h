// A launch of the GPU's kernel: what it is given, and the rows that it writes.
#pragma once

#if !defined(__CUDACC_RTC__) && !defined(__HIPCC_RTC__)
#include <cstdint>
#endif

#include "bands.h"
#include "elements.h"

namespace {
namespace inductor_rewriter {

namespace gpu {

constexpr int threads = 256;
constexpr int warps = threads / 32;
constexpr int most_dims = 8;
constexpr int most_tasks = 16;
constexpr int row_words = 16;

// What a block leaves of its share of a tensor, and what is in a row: sums of differences from
// `shift`, which for int64 and uint64 is one of the keys, times the scale of this number.
struct Sum {
  uint64_t nan, positive, negative;
  int64_t low, high;  // keys, in the order of the elements: of int64, or of the bits of float64
  uint64_t shift;     // the bits of float64, or a key
  double sum, squares;
  uint64_t first, second;  // of the fingerprint
  uint64_t scale;          // 0, 1, 2: for small values, plain, for large ones
  uint64_t near_limit;     // elements (elements.h)
};
struct alignas(16) Part {  // the scale and the number of those near the limit share a word
  uint64_t words[12];
};

// One tensor of a launch.
struct Task {
  const char* data;
  int64_t numel;
  int64_t whole;      // vectors that have all their elements
  uint64_t* row;      // row_words in host memory
  uint64_t* replays;  // counts the replays of a captured launch, or null
  Part* parts;        // one for each block
  uint32_t* counter;  // 0 between launches
  uint64_t sequence;
  int32_t dtype;
  int32_t dims;    // that are below, in row-major order; strides are in elements
  uint32_t units;  // of the fingerprint's tiles, or of quarters of them
  uint32_t first_block, blocks;
  uint16_t direct;  // 1: contiguous and aligned
  uint16_t split;   // 2: units are quarters of tiles, and blocks have one each; 0: tiles
  int64_t size[most_dims], stride[most_dims];
};

struct Job {
  int64_t count;
  Task tasks[most_tasks];
};
static_assert(sizeof(Job) <= 4096, "what a launch takes by value");

// Sixteen bytes: of elements, or of what blocks leave.
struct alignas(16) Vector {
  uint64_t first, second;
};

// What is most common, and quick: a few tensors of some dtypes whose rows are whole vectors. Their
// blocks leave parts, and a launch for many of them merges these later: the model waits for no
// merging. `parts` are for each block five vectors of three words of 32 bits and one that tells for
// which row they are, first those of all blocks that come first.
// Few elements, of whatever dtype, are not measured there: their bytes go into the row itself, and the
// host measures them.
constexpr int quick_tasks = 12;
constexpr int quick_vectors = 5;
constexpr int most_parted = 32;  // tensors whose parts wait to be merged
constexpr int most_carried_words = 12;  // of a row, for the bytes of few elements
constexpr uint32_t carried = 16;        // the `split` of these

struct QuickTask {
  const char* data;
  int64_t numel;
  int64_t whole;
  uint64_t* row;
  Vector* parts;
  uint64_t sequence;
  int32_t dtype;
  uint32_t units;
  uint32_t first_block, blocks;
  uint32_t split;
};

// A number to divide by: times `factor`, less 31 + `shift` bits, for numbers below 2^31.
struct Divisor {
  uint32_t size, factor, shift;
};

// Where vectors are: in runs, which are where three indices say, the last one first. Strides are in
// vectors, or where the elements of vectors are `apart`, in elements.
struct QuickRows {
  enum : uint32_t { contiguous, aligned, apart };
  uint32_t kind;
  Divisor run, sizes[2];
  uint32_t strides[3];
  uint32_t step;        // from an element to the next
  uint32_t by_columns;  // rows are closer to one another than elements
  // To divide by the vectors of a column of a unit, and by one more: 2^28 over these; of the last unit, too.
  uint32_t factors[2][2];
};

struct QuickJob {
  uint32_t count;
  QuickTask tasks[quick_tasks];
  QuickRows rows[quick_tasks];
};
static_assert(sizeof(QuickJob) <= 4096, "what a launch takes by value");

// What a launch measures, and then does about memory. `measured` counts blocks of all such launches on
// one stream: there are `until` when those of this one, its first `blocks`, are through.
struct JoinedJob {
  QuickJob quick;
  SmallMemoryJob memory;
  uint32_t* measured;
  uint32_t blocks, until;
};
static_assert(sizeof(JoinedJob) <= 4096, "what a launch takes by value");

// If it `checks`, parts may not have come so far, or later ones be in their places: then there is no
// row.
struct MergeJob {
  uint32_t count, checks;
  QuickTask tasks[most_parted];
};

INDUCTOR_REWRITER_SHARED constexpr uint32_t part_mark(uint64_t sequence) {
  return static_cast<uint32_t>(sequence) | 0x80000000u;  // memory is zeros at first
}

// A row: what Sum has, or the elements themselves, then the number of elements, the dtype, the
// sequence number, and what says that the row is whole: the sum of this over its other words.
constexpr int numel_word = 12, dtype_word = 13, sequence_word = 14, checksum_word = 15;
constexpr uint64_t has_elements = uint64_t{1} << 32;  // beside the dtype

INDUCTOR_REWRITER_SHARED constexpr uint64_t checked(uint64_t word, int place) {
  return (word ^ word >> 32 ^ fingerprint::golden) * (fingerprint::golden * (2 * place + 1));
}
INDUCTOR_REWRITER_SHARED inline uint64_t checksum(const uint64_t* row) {
  uint64_t sum = 0;
  for (int i = 0; i < checksum_word; ++i) sum += checked(row[i], i);
  return sum;
}

}  // namespace gpu

}  // namespace inductor_rewriter
}  // namespace
