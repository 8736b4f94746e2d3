// Where the vectors of a tensor are that the quick kernel reads, and how its threads share those of a
// unit. The kernel (kernel.h) includes this.
#pragma once

#include "job.h"

namespace {
namespace inductor_rewriter {

namespace gpu {

INDUCTOR_REWRITER_DEVICE uint64_t pair_of(uint32_t low, uint32_t high) {
  return low | static_cast<uint64_t>(high) << 32;
}

INDUCTOR_REWRITER_DEVICE uint32_t divided(uint32_t number, const Divisor& by) {
  return static_cast<uint32_t>(static_cast<uint64_t>(number) * by.factor >> 31) >> by.shift;
}

// Where the vector of this number is, from the first one on.
INDUCTOR_REWRITER_DEVICE int64_t place_in_rows(const QuickRows& rows, uint32_t vector) {
  const uint32_t row = divided(vector, rows.run);
  const uint32_t outer = divided(row, rows.sizes[0]);
  const uint32_t outermost = divided(outer, rows.sizes[1]);
  return static_cast<int64_t>(vector - row * rows.run.size) +
      static_cast<int64_t>(row - outer * rows.sizes[0].size) * rows.strides[0] +
      static_cast<int64_t>(outer - outermost * rows.sizes[1].size) * rows.strides[1] +
      static_cast<int64_t>(outermost) * rows.strides[2];
}

// The vectors of a unit, of which the tensor has `full`. A thread takes each 256th of them, counted
// in an order that is the reader's: `load` has a vector on its way, `take` waits for it. The last vector of
// a tensor may not be whole: `rest` takes it, but where `is_whole`.

// Vectors in memory, contiguous or in rows, in their own order: a thread has the same word of A0 and A1
// for all, and each fourth of B0 and B1.
template <class Type, bool in_rows>
struct Aligned {
  static constexpr int size = Type::pairs ? 2 : 4;
  static constexpr bool is_whole = false;
  using Coming = Vector;
  using Taken = Vector;
  const QuickRows& rows;
  const Vector* data;
  int64_t begin;
  Vector own;
  const Vector* keys;

  INDUCTOR_REWRITER_MEMBER Aligned(
      const QuickTask& task, const QuickRows& in, int64_t first, int)
      : rows(in), data(reinterpret_cast<const Vector*>(task.data)), begin(first) {}
  INDUCTOR_REWRITER_MEMBER const Vector* at(int vector) const {
    return data + (in_rows ? place_in_rows(rows, static_cast<uint32_t>(begin + vector))
                           : begin + vector);
  }
  // An element, by its number in the unit.
  INDUCTOR_REWRITER_MEMBER const char* element(int number) const {
    return reinterpret_cast<const char*>(at(number * size / 16)) + number * size % 16;
  }
  INDUCTOR_REWRITER_MEMBER Coming load(int i) const { return *at(i); }
  INDUCTOR_REWRITER_MEMBER Taken take(const Coming& coming) const { return coming; }
  INDUCTOR_REWRITER_MEMBER Taken rest(const Vector& last) const { return last; }
  INDUCTOR_REWRITER_MEMBER const Vector& vector(const Taken& taken) const { return taken; }

  // The keys come into shared memory, by all threads.
  INDUCTOR_REWRITER_MEMBER void share_keys(
      const Vector (&a)[64], const Vector (&b)[64], Vector (&)[64], Vector (&to)[64]) {
    const int thread = static_cast<int>(threadIdx.x);
    own = a[thread % 64];
    if (thread < 64) to[thread] = b[thread];
    keys = to + (static_cast<int>(begin % fingerprint::tile_vectors) + thread) / 64;
  }
  // That of the next vector but `after`; `pass` goes on by so many.
  INDUCTOR_REWRITER_MEMBER Vector key(const Taken&, int after) const {
    const Vector& key = keys[after * threads / 64];
    return {own.first ^ key.first, own.second ^ key.second};
  }
  INDUCTOR_REWRITER_MEMBER void pass(int count) { keys += count * threads / 64; }
};

// Vectors whose elements are apart, such as those of a transposed matrix. Neighbouring threads read
// neighbouring elements: where rows are closer to one another than elements are, the vectors of a unit
// are taken column by column.
template <class Type>
struct Apart {
  static constexpr int size = Type::pairs ? 2 : 4, per = 16 / size;
  static constexpr bool is_whole = true;
  struct Coming {
    uint32_t elements[per];
    uint32_t place;  // of the vector in its unit
  };
  struct Taken {
    Vector vector;
    uint32_t place;
  };
  const QuickRows& rows;
  const char* data;
  int64_t step;
  uint32_t begin;
  // The first `longer` columns have one vector more than the others, which have `height`. These have
  // `start` vectors.
  uint32_t height, longer, start, factor, longer_factor;
  const Vector *first_keys, *second_keys;

  INDUCTOR_REWRITER_MEMBER Apart(
      const QuickTask& task, const QuickRows& in, int64_t first, int full)
      : rows(in), data(task.data), step(static_cast<int64_t>(in.step) * size),
        begin(static_cast<uint32_t>(first)) {
    const uint32_t count = static_cast<uint32_t>(full);
    const bool is_last = begin + count == static_cast<uint32_t>(task.whole);
    height = rows.by_columns ? divided(count, rows.run) : 0;
    longer = count - height * rows.run.size;
    start = longer * (height + 1);
    factor = is_last ? rows.factors[1][0] : rows.factors[0][0];
    longer_factor = is_last ? rows.factors[1][1] : rows.factors[0][1];
  }

  // Which vector of the unit is taken in this turn.
  INDUCTOR_REWRITER_MEMBER uint32_t place_of(int turn) const {
    uint32_t number = static_cast<uint32_t>(turn);
    const bool is_longer = number < start;
    const uint32_t some = is_longer ? height + 1 : height;
    const uint32_t by = is_longer ? longer_factor : factor;
    number -= is_longer ? 0 : start;
    const uint32_t column = static_cast<uint32_t>(static_cast<uint64_t>(number << 4) * by >> 32);
    return column + (is_longer ? 0 : longer) + (number - column * some) * rows.run.size;
  }
  // Where a vector of the unit begins.
  INDUCTOR_REWRITER_MEMBER const char* at(uint32_t place) const {
    const uint32_t vector = begin + place;
    uint32_t row = divided(vector, rows.run);
    int64_t element = static_cast<int64_t>((vector - row * rows.run.size) * per) * rows.step;
    if (rows.sizes[0].size) {
      const uint32_t outer = divided(row, rows.sizes[0]);
      const uint32_t outermost = divided(outer, rows.sizes[1]);
      row -= outer * rows.sizes[0].size;
      element += static_cast<int64_t>(outer - outermost * rows.sizes[1].size) * rows.strides[1] +
          static_cast<int64_t>(outermost) * rows.strides[2];
    }
    return data + (element + static_cast<int64_t>(row) * rows.strides[0]) * size;
  }
  INDUCTOR_REWRITER_MEMBER const char* element(int number) const {
    return at(static_cast<uint32_t>(number / per)) + number % per * step;
  }
  INDUCTOR_REWRITER_MEMBER Coming load(int turn) const {
    Coming coming;
    coming.place = place_of(turn);
    const char* from = at(coming.place);
#pragma unroll
    for (int i = 0; i < per; ++i, from += step) {
      coming.elements[i] = Type::pairs ? *reinterpret_cast<const uint16_t*>(from)
                                       : *reinterpret_cast<const uint32_t*>(from);
    }
    return coming;
  }
  INDUCTOR_REWRITER_MEMBER Taken take(const Coming& coming) const {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = Type::pairs ? coming.elements[i * per / 4] | coming.elements[(2 * i + 1) % per] << 16
                             : coming.elements[i];
    }
    return {{pair_of(words[0], words[1]), pair_of(words[2], words[3])}, coming.place};
  }
  INDUCTOR_REWRITER_MEMBER Taken rest(const Vector& last) const { return {last, 0}; }
  INDUCTOR_REWRITER_MEMBER const Vector& vector(const Taken& taken) const { return taken.vector; }

  // B0 and B1 are in an order in which the threads of a warp, whose places are a row apart, do not
  // wait for the same bank of memory.
  INDUCTOR_REWRITER_MEMBER void share_keys(
      const Vector (&a)[64], const Vector (&b)[64], Vector (&first)[64], Vector (&second)[64]) {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < 64) first[thread] = a[thread];
    else if (thread < 128) second[(thread - 64) ^ (thread - 64) >> 3] = b[thread - 64];
    first_keys = first;
    second_keys = second;
  }
  INDUCTOR_REWRITER_MEMBER Vector key(const Taken& taken, int) const {
    const uint32_t place = begin % static_cast<uint32_t>(fingerprint::tile_vectors) + taken.place;
    const Vector& first = first_keys[place % 64];
    const Vector& second = second_keys[place >> 6 ^ place >> 9];
    return {first.first ^ second.first, first.second ^ second.second};
  }
  INDUCTOR_REWRITER_MEMBER void pass(int) {}
};

}  // namespace gpu

}  // namespace inductor_rewriter
}  // namespace
