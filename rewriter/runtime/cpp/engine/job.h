// The arguments of the GPU's kernels, and the rows that they write.
#pragma once

#if !defined(__CUDACC_RTC__)
#include <cstdint>
#endif

#include "bands.h"
#include "elements.h"

namespace inductor_rewriter::gpu {

constexpr int threads = 256;
constexpr int warps = threads / 32;
constexpr int most_dims = 8;
constexpr int most_tasks = 16;
constexpr int row_words = 16;

// The result for the elements of one block, and of one row. `sum` and `squares` are of the differences
// from `shift`, times a scale; for int64 and uint64 `shift` is a key.
struct Sum {
  uint64_t nan, positive, negative;
  int64_t low, high;  // extremes as keys, which order as the elements do: int64, or bits of float64
  uint64_t shift;     // the bits of float64, or a key
  double sum, squares;
  uint64_t first, second;  // of the fingerprint
  uint64_t scale;          // which scale: 0 for small values, 1 for none, 2 for large values
  uint64_t near_limit;     // how many elements are near the dtype's limit (elements.h)
};
struct alignas(16) Part {  // a Sum as words; `scale` and `near_limit` share one
  uint64_t words[12];
};

// One tensor of a launch, for either kernel.
struct AnyTask {
  const char* data;
  int64_t numel;
  int64_t whole;  // how many vectors of 16 bytes are complete
  uint64_t* row;  // `row_words` words in host memory
  uint64_t sequence;
  int32_t dtype;
  uint32_t units;  // how many tiles of the fingerprint, or quarters of tiles
  uint32_t split;  // 2: units are quarters of tiles, and blocks have one each; 0: tiles
  uint32_t first_block, blocks;
};
struct Task : AnyTask {
  uint64_t* replays;  // counts the replays of a captured launch; null otherwise
  Part* parts;        // partial results, one for each block
  uint32_t* counter;  // counts finished blocks; 0 between launches
  int32_t dims;       // how many of `size` and `stride` are used, in row-major order; strides in elements
  uint32_t direct;    // 1: contiguous and aligned
  int64_t size[most_dims], stride[most_dims];
};

struct Job {
  int64_t count;
  Task tasks[most_tasks];
};
static_assert(sizeof(Job) <= 4096, "the limit for arguments of a launch");

// Sixteen bytes: elements, or a piece of a partial result.
struct alignas(16) Vector {
  uint64_t first, second;
};

// The quick kernel takes the common case: a few tensors of float32, float16 or bfloat16 that are
// contiguous, or whose innermost dimension is a whole number of vectors. Its blocks write partial results,
// which the merging kernel combines later, for many tensors at once, so that the model does not wait for
// merging. A partial result is five vectors, each of three words of 32 bits and a mark that says which row
// it is for; `parts` has the first vectors of all blocks, then the second ones, and so on.
// Tensors of few elements, of any dtype, are not measured on the GPU: the kernel copies their bytes into
// the row, and the host measures them.
constexpr int quick_tasks = 12;
constexpr int quick_vectors = 5;
constexpr int most_parted = 32;         // tensors that are merged at once
constexpr int most_carried_words = 12;  // how many words of a row can hold elements
constexpr uint32_t carried = 16;        // `split` of tensors whose elements the row holds

struct QuickTask : AnyTask {
  Vector* parts;
};

// Division by `size` as a multiplication: n / size is n * factor >> (31 + shift), for n below 2^31.
struct Divisor {
  uint32_t size, factor, shift;
};

// Where the vectors of a tensor lie in memory: in runs, which three indices address, the last one first.
// Strides are in vectors, or in elements where the elements of a vector are `apart`.
struct QuickRows {
  enum : uint32_t { contiguous, aligned, apart };
  uint32_t kind;
  Divisor run, sizes[2];
  uint32_t strides[3];
  uint32_t step;        // stride between the elements of a vector
  uint32_t by_columns;  // 1: neighbouring rows are closer in memory than neighbouring elements
  // Division by the number of vectors in a column of a unit, and by that number plus 1: 2^28 divided by
  // it. Second row: the same for the last unit.
  uint32_t factors[2][2];
};

struct QuickJob {
  uint32_t count;
  QuickTask tasks[quick_tasks];
  QuickRows rows[quick_tasks];
};
static_assert(sizeof(QuickJob) <= 4096, "the limit for arguments of a launch");

// A launch that measures tensors, and then compares guard bands and fills memory. The first `blocks`
// blocks measure; each adds 1 to `measured` when it has finished. The counter is that of all such
// launches on one stream; the other blocks wait until it is `until`.
struct JoinedJob {
  QuickJob quick;
  SmallMemoryJob memory;
  uint32_t* measured;
  uint32_t blocks, until;
};
static_assert(sizeof(JoinedJob) <= 4096, "the limit for arguments of a launch");

// A launch of the merging kernel. With `checks` it writes no row for a tensor whose partial results have
// not come yet, or were replaced by those of another tensor.
struct MergeJob {
  uint32_t count, checks;
  QuickTask tasks[most_parted];
};

INDUCTOR_REWRITER_SHARED constexpr uint32_t part_mark(uint64_t sequence) {
  return static_cast<uint32_t>(sequence) | 0x80000000u;  // never 0, which memory holds at first
}

// A row: the words of Sum, or the elements themselves; then the number of elements, the dtype, the
// sequence number, and a checksum of all these words, which shows that the row is complete.
constexpr int numel_word = 12, dtype_word = 13, sequence_word = 14, checksum_word = 15;
constexpr uint64_t has_elements = uint64_t{1} << 32;  // flag beside the dtype: it holds the elements

INDUCTOR_REWRITER_SHARED constexpr uint64_t checked(uint64_t word, int place) {
  return (word ^ word >> 32 ^ fingerprint::golden) * (fingerprint::golden * (2 * place + 1));
}
INDUCTOR_REWRITER_SHARED inline uint64_t checksum(const uint64_t* row) {
  uint64_t sum = 0;
  for (int i = 0; i < checksum_word; ++i) sum += checked(row[i], i);
  return sum;
}

}  // namespace inductor_rewriter::gpu
