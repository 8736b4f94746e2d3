// The calls of one wrapper that run in threads of Python.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "state.h"
#include "values.h"

namespace inductor_rewriter::python {

// A call of the wrapper in one thread, while it runs. Without a call, the thread has one that is not recorded.
struct Running {
  unsigned long thread;
  long system_thread;
  void* call;
  bool is_busy;  // the thread is in a line
};

// The recorder of one wrapper: what `attach` returns.
struct Lines {
  PyObject_HEAD
  void* table;
  std::vector<Running>* calls;
  Py_ssize_t inputs;   // how many values the line of inputs has
  int forks;           // those of the process that made `calls`
  bool is_dormant, is_closed, leaves_out;
  std::vector<std::unique_ptr<Values>>* free;  // for lines to come
};

inline Lines& lines_of(PyObject* self) { return *reinterpret_cast<Lines*>(self); }
inline std::vector<Lines*>& all_lines() {
  static std::vector<Lines*>& all = *new std::vector<Lines*>;
  return all;
}

inline Running* find_call(Lines& self) {
  if (self.forks != forks) {  // the calls are those of another process
    self.calls->clear();
    self.forks = forks;
  }
  const unsigned long thread = PyThread_get_thread_ident();
  for (Running& one : *self.calls) {
    if (one.thread == thread) return &one;
  }
  return nullptr;
}

template <class Act>
auto without_lock(Act&& act) {
  PyThreadState* const state = PyEval_SaveThread();
  auto result = act();
  PyEval_RestoreThread(state);
  return result;
}

inline void end_at(Lines& self, std::size_t place) {
  void* const call = (*self.calls)[place].call;
  self.calls->erase(self.calls->begin() + static_cast<std::ptrdiff_t>(place));
  if (!call) return;
  without_lock([&] { return recorder->end(call), 0; });
  write_collected();
}

inline void end_here(Lines& self) {
  if (Running* const one = find_call(self)) end_at(self, static_cast<std::size_t>(one - self.calls->data()));
}

// Threads that no longer exist begin no other call, so their calls end here.
inline void end_of_dead(Lines& self) {
  for (std::size_t i = self.calls->size(); i-- > 0;) {
    if (i >= self.calls->size()) continue;  // other threads ended theirs meanwhile
    char path[64];
    PyOS_snprintf(path, sizeof path, "/proc/self/task/%ld", (*self.calls)[i].system_thread);
    if (!(*self.calls)[i].is_busy && access(path, F_OK)) end_at(self, i);
  }
}

// Notes whether this thread is in a line. Other threads may have begun calls since it looked for its own.
inline void set_busy(Lines& self, bool is_busy) {
  if (Running* const one = find_call(self)) one->is_busy = is_busy;
}

inline void add_call(Lines& self, void* call) {
  self.calls->push_back({PyThread_get_thread_ident(), syscall(SYS_gettid), call, false});
}

// Runs `act` so that dispatch modes of the program do not see what it does.
template <class Act>
bool undisturbed(Act&& act) {
  const Owned count(PyObject_CallNoArgs(mode_count));
  if (!count || PyLong_AsLong(count.get()) == 0) {
    PyErr_Clear();
    act();
    return true;
  }
  const Owned context(PyObject_CallNoArgs(without_modes));
  const Owned entered(context ? PyObject_CallMethod(context.get(), "__enter__", nullptr) : nullptr);
  if (!entered) return false;
  act();
  const Owned left(PyObject_CallMethod(context.get(), "__exit__", "OOO", Py_None, Py_None, Py_None));
  return static_cast<bool>(left);
}

// The call of this thread, null if it is not recorded; begins one where the thread has none.
inline void* call_of_line(Lines& self) {
  Running* one = find_call(self);
  if (one && (one->call || !self.leaves_out)) return one->call;
  if (self.is_dormant || self.is_closed) return nullptr;
  void* const call = without_lock([&] { return recorder->resume(self.table); });
  if ((one = find_call(self))) one->call = call;
  else if (call) add_call(self, call);
  return call;
}

inline PyObject* pass(Lines& self, char phase, int launch, PyObject* const* given, Py_ssize_t count) {
  void* const call = call_of_line(self);
  if (!call) Py_RETURN_NONE;
  if (self.free->empty()) self.free->push_back(std::make_unique<Values>());
  std::unique_ptr<Values> own = std::move(self.free->back());
  self.free->pop_back();
  Values& values = *own;
  bool is_read = true;
  for (Py_ssize_t i = 0; is_read && i < count; ++i) is_read = values.add(given[i]);
  const auto act = [&] {
    line_of_thread = &values;
    set_busy(self, true);
    const Object* const data = values.data();
    without_lock([&] { return recorder->line(call, phase, launch, data, values.count()), 0; });
    set_busy(self, false);
    line_of_thread = nullptr;
  };
  if (is_read) undisturbed(act);
  values.clear();
  self.free->push_back(std::move(own));
  write_collected();
  return done_or_interrupt();
}

inline bool takes(Py_ssize_t count, Py_ssize_t least) {
  if (count >= least) return true;
  PyErr_SetString(PyExc_TypeError, "too few arguments");
  return false;
}

}  // namespace inductor_rewriter::python
