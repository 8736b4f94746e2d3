// The places of the vectors that the quick kernel reads, and how its threads share the vectors of a unit:
// on a GPU (kernel.h).
#pragma once

#include "job.h"

namespace inductor_rewriter::gpu {

constexpr int ahead = 4;  // vectors that a thread loads before it uses the first

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

// The vectors of a unit, of which the tensor has `full`. A thread takes groups of them in turns: those
// of turn `i` after `i` less `stride`, as long as it `has` them. `load` has a group on its way, `take`
// waits for it. What is in no group comes alone, one for a turn, the first one by `first_alone`.

// Vectors in memory, contiguous or in rows, in their own order: a thread has the same word of A0 and A1
// for all, and each fourth of B0 and B1.
template <class Type, bool in_rows>
struct Aligned {
  static constexpr int size = Type::pairs ? 2 : 4, stride = ahead * threads;
  static constexpr bool is_whole = false;  // the last vector of the tensor may have few elements
  struct Group {
    Vector vectors[ahead];
  };
  using Coming = Group;
  using Taken = Group;
  const QuickRows& rows;
  const Vector* data;
  int64_t begin;
  int full;
  Vector own;
  const Vector* keys;

  INDUCTOR_REWRITER_MEMBER Aligned(
      const QuickTask& task, const QuickRows& in, int64_t first, int count)
      : rows(in), data(reinterpret_cast<const Vector*>(task.data)), begin(first), full(count) {}
  INDUCTOR_REWRITER_MEMBER const Vector* at(int vector) const {
    return data + (in_rows ? place_in_rows(rows, static_cast<uint32_t>(begin + vector)) : begin + vector);
  }
  // An element, by its number in the unit.
  INDUCTOR_REWRITER_MEMBER const char* element(int number) const {
    return reinterpret_cast<const char*>(at(number * size / 16)) + number * size % 16;
  }
  INDUCTOR_REWRITER_MEMBER bool has(int turn) const { return turn + (ahead - 1) * threads < full; }
  INDUCTOR_REWRITER_MEMBER Coming load(int turn) const {
    Coming coming;
#pragma unroll
    for (int j = 0; j < ahead; ++j) coming.vectors[j] = *at(turn + j * threads);
    return coming;
  }
  INDUCTOR_REWRITER_MEMBER Taken take(const Coming& coming) const { return coming; }
  INDUCTOR_REWRITER_MEMBER Vector again(int turn, int j) const { return *at(turn + j * threads); }
  INDUCTOR_REWRITER_MEMBER int first_alone(int turn) const { return turn; }
  INDUCTOR_REWRITER_MEMBER Vector alone(int turn) const { return *at(turn); }

  // The keys come into shared memory, by all threads.
  INDUCTOR_REWRITER_MEMBER void share_keys(
      const Vector (&a)[64], const Vector (&b)[64], Vector (&)[64], Vector (&to)[64]) {
    const int thread = static_cast<int>(threadIdx.x);
    own = a[thread % 64];
    if (thread < 64) to[thread] = b[thread];
    keys = to + (static_cast<int>(begin % fingerprint::tile_vectors) + thread) / 64;
  }
  INDUCTOR_REWRITER_MEMBER Vector key(const Taken&, int j) const { return of(keys[j * threads / 64]); }
  INDUCTOR_REWRITER_MEMBER void pass() { keys += stride / 64; }
  INDUCTOR_REWRITER_MEMBER Vector key_alone(int) const { return of(*keys); }
  INDUCTOR_REWRITER_MEMBER void pass_alone() { keys += threads / 64; }
  INDUCTOR_REWRITER_MEMBER Vector of(const Vector& key) const {
    return {own.first ^ key.first, own.second ^ key.second};
  }
};

// Vectors whose elements are apart, such as those of a transposed matrix. Where rows are closer to one
// another than elements are, a thread takes groups of neighbours, if rows have whole ones, and threads
// follow one another in columns of groups: they read neighbouring elements.
template <class Type>
struct Apart {
  static constexpr int size = Type::pairs ? 2 : 4, per = 16 / size, stride = threads;
  static constexpr bool is_whole = true;
  struct Coming {
    uint32_t elements[ahead][per];
    uint32_t place;  // of the first vector in its unit
  };
  struct Taken {
    Vector vectors[ahead];
    uint32_t place;
  };
  const QuickRows& rows;
  const char* data;
  int64_t step;
  uint32_t begin;
  int full, groups;
  // Groups are of 1 << `shift` vectors. The first `longer` columns have one group more than the others,
  // which have `height`; these have `start` groups.
  uint32_t shift, columns, height, longer, start, factor, longer_factor;
  const Vector *first_keys, *second_keys;

  INDUCTOR_REWRITER_MEMBER Apart(
      const QuickTask& task, const QuickRows& in, int64_t first, int count)
      : rows(in), data(task.data), step(static_cast<int64_t>(in.step) * size),
        begin(static_cast<uint32_t>(first)), full(count) {
    const bool is_last = begin + static_cast<uint32_t>(count) == static_cast<uint32_t>(task.whole);
    const bool is_grouped = rows.by_columns && rows.run.size % ahead == 0;
    shift = is_grouped ? 2 : 0;
    groups = is_grouped ? count / ahead : 0;
    columns = rows.run.size >> shift;
    height = rows.by_columns ? divided(static_cast<uint32_t>(count), rows.run) : 0;
    longer = (static_cast<uint32_t>(count) >> shift) - height * columns;
    start = longer * (height + 1);
    factor = is_last ? rows.factors[1][0] : rows.factors[0][0];
    longer_factor = is_last ? rows.factors[1][1] : rows.factors[0][1];
  }
  static_assert(ahead == 4, "a group has as many vectors as are loaded ahead");

  // Which vector of the unit is the first one of this turn.
  INDUCTOR_REWRITER_MEMBER uint32_t place_of(int turn) const {
    uint32_t number = static_cast<uint32_t>(turn);
    const bool is_longer = number < start;
    const uint32_t some = is_longer ? height + 1 : height;
    const uint32_t by = is_longer ? longer_factor : factor;
    number -= is_longer ? 0 : start;
    const uint32_t column = static_cast<uint32_t>(static_cast<uint64_t>(number << 4) * by >> 32);
    return (column + (is_longer ? 0 : longer) + (number - column * some) * columns) << shift;
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
  INDUCTOR_REWRITER_MEMBER uint32_t read(const char* from) const {
    return Type::pairs ? *reinterpret_cast<const uint16_t*>(from) : *reinterpret_cast<const uint32_t*>(from);
  }
  INDUCTOR_REWRITER_MEMBER Vector vector_of(const uint32_t (&elements)[per]) const {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = Type::pairs ? elements[i * per / 4] | elements[(2 * i + 1) % per] << 16 : elements[i];
    }
    return {pair_of(words[0], words[1]), pair_of(words[2], words[3])};
  }

  INDUCTOR_REWRITER_MEMBER bool has(int turn) const { return turn < groups; }
  INDUCTOR_REWRITER_MEMBER Coming load(int turn) const {
    Coming coming;
    coming.place = place_of(turn);
    const char* from = at(coming.place);
#pragma unroll
    for (int j = 0; j < ahead; ++j) {
#pragma unroll
      for (int i = 0; i < per; ++i, from += step) coming.elements[j][i] = read(from);
    }
    return coming;
  }
  INDUCTOR_REWRITER_MEMBER Taken take(const Coming& coming) const {
    Taken taken;
    taken.place = coming.place;
#pragma unroll
    for (int j = 0; j < ahead; ++j) taken.vectors[j] = vector_of(coming.elements[j]);
    return taken;
  }
  INDUCTOR_REWRITER_MEMBER Vector read_vector(const char* from) const {
    uint32_t elements[per];
#pragma unroll
    for (int i = 0; i < per; ++i, from += step) elements[i] = read(from);
    return vector_of(elements);
  }
  INDUCTOR_REWRITER_MEMBER Vector again(int turn, int j) const {
    return read_vector(at(place_of(turn)) + j * per * step);
  }
  INDUCTOR_REWRITER_MEMBER int first_alone(int turn) const { return groups ? full : turn; }
  INDUCTOR_REWRITER_MEMBER Vector alone(int turn) const { return read_vector(at(place_of(turn))); }

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
  // Of the vector after a place by `j`: B0 and B1 are the same for a group.
  INDUCTOR_REWRITER_MEMBER Vector key_at(uint32_t first_place, int j) const {
    const uint32_t place = begin % static_cast<uint32_t>(fingerprint::tile_vectors) + first_place;
    const Vector& first = first_keys[place % 64 + static_cast<uint32_t>(j)];
    const Vector& second = second_keys[place >> 6 ^ place >> 9];
    return {first.first ^ second.first, first.second ^ second.second};
  }
  INDUCTOR_REWRITER_MEMBER Vector key(const Taken& taken, int j) const {
    return key_at(taken.place, j);
  }
  INDUCTOR_REWRITER_MEMBER void pass() {}
  INDUCTOR_REWRITER_MEMBER Vector key_alone(int turn) const { return key_at(place_of(turn), 0); }
  INDUCTOR_REWRITER_MEMBER void pass_alone() {}
};

}  // namespace inductor_rewriter::gpu
