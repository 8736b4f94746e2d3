// The extension module for wrappers in Python: it reads the values of their lines, and hands them to the
// recorder (objects.h). Needs no headers of torch; built for the stable ABI of CPython 3.10.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030a0000
#include <Python.h>
#include <structmember.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "objects.h"

using inductor_rewriter::Object;
using inductor_rewriter::ObjectFunctions;
using inductor_rewriter::ObjectTable;

namespace {

// A reference that this object owns.
class Owned {
 public:
  explicit Owned(PyObject* object = nullptr) : object_(object) {}
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_; }

 private:
  PyObject* object_;
};

const ObjectFunctions* recorder = nullptr;

// What `use` was given: torch.Tensor, and functions in extension.py.
PyObject *tensor_type, *parameter_type, *find_address, *mode_count, *without_modes, *take_tensor, *cannot_guard,
    *is_shared, *save_tensor, *make_positive, *warn;
PyObject *name_cdata, *name_is_neg, *name_write, *name_flush, *name_fileno;
long forks = 0;  // how often this process was forked from another one, which recorded

// Whether a tensor is of no subclass, which may override its functions.
bool is_plain(PyObject* tensor) {
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(tensor));
  return type == tensor_type || type == parameter_type;
}

// The TensorImpl of a tensor; null with an exception.
void* implementation_of(PyObject* tensor) {
  const Owned address(
      is_plain(tensor) ? PyObject_GetAttr(tensor, name_cdata)
                       : PyObject_CallFunctionObjArgs(find_address, tensor, nullptr));
  return address ? PyLong_AsVoidPtr(address.get()) : nullptr;
}

// Where the program prints: -1 where that is no file, so that lines are collected and written by Python.
struct Stream {
  const char* name;
  int standard;
  PyObject* known;  // the object in `sys` that this is about
  int descriptor;
};
Stream streams[] = {{"stdout", STDOUT_FILENO, nullptr, STDOUT_FILENO}, {"stderr", STDERR_FILENO, nullptr, STDERR_FILENO}};

// Notes where a stream of `sys` writes to. True if that changed.
bool find_stream(Stream& stream) {
  PyObject* const now = PySys_GetObject(stream.name);
  if (now == stream.known) return false;
  Py_XINCREF(now);
  Py_XDECREF(std::exchange(stream.known, now));
  stream.descriptor = -1;  // where there is none, what is collected goes nowhere
  if (!now || now == Py_None) return true;
  const Owned number(PyObject_CallMethodObjArgs(now, name_fileno, nullptr));
  const long descriptor = number ? PyLong_AsLong(number.get()) : -1;
  PyErr_Clear();
  stream.descriptor = static_cast<int>(descriptor);
  return true;
}

void flush(const Stream& stream) {
  if (!stream.known || stream.known == Py_None) return;
  const Owned done(PyObject_CallMethodObjArgs(stream.known, name_flush, nullptr));
  PyErr_Clear();
}

// Has lines go where the program prints now, after what it printed.
void find_streams() {
  const bool has_changed = find_stream(streams[0]) | find_stream(streams[1]);
  if (streams[0].descriptor >= 0) flush(streams[0]);
  if (has_changed) recorder->print_to(streams[0].descriptor, streams[1].descriptor == STDERR_FILENO ? STDERR_FILENO : -1);
}

// Writes what was collected.
void write_collected() {
  for (int i = 0; i < 2; ++i) {
    const bool collects = i ? streams[1].descriptor != STDERR_FILENO : streams[0].descriptor < 0;
    if (!collects) continue;
    std::size_t size = 0;
    char* const text = recorder->collected(i, &size);
    if (!text) continue;
    const Owned lines(PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(size), "backslashreplace"));
    std::free(text);
    PyObject* const to = PySys_GetObject(streams[i].name);
    if (lines && to && to != Py_None) {
      const Owned done(PyObject_CallMethodObjArgs(to, name_write, lines.get(), nullptr));
      PyErr_Clear();
      const Owned flushed(PyObject_CallMethodObjArgs(to, name_flush, nullptr));
    }
    PyErr_Clear();
  }
}

// Reports an exception of reading values, which must not stop the model. False for one that passes, such as an
// interrupt.
bool is_reported() {
  if (!PyErr_Occurred()) return true;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const Owned owned[] = {Owned(type), Owned(value), Owned(traceback)};
  const Owned done(PyObject_CallFunctionObjArgs(warn, value, nullptr));
  PyErr_Clear();
  return true;
}

PyObject* done_or_interrupt() {
  if (!is_reported()) return nullptr;
  Py_RETURN_NONE;
}

// The values of a line, with what keeps them valid until it returns.
class Values {
 public:
  bool add(PyObject* value) {
    Object one{'o', 0, 0, nullptr, nullptr, nullptr};
    if (value == Py_None) return add(one);
    PyTypeObject* const type = Py_TYPE(value);
    const bool is_tensor = reinterpret_cast<PyObject*>(type) == tensor_type ||
        PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(tensor_type));
    if (is_tensor) {
      one.kind = 't';
      void* implementation = implementation_of(value);
      if (!implementation) return false;
      // The numbers of a negative view are not those in its memory, which torch's C shim does not tell.
      const Owned is_negative(is_plain(value) ? PyObject_CallMethodObjArgs(value, name_is_neg, nullptr) : nullptr);
      if (is_negative.get() == Py_True) {
        kept_.emplace_back(PyObject_CallFunctionObjArgs(make_positive, value, nullptr));
        value = kept_.back().get();
        if (!value || !(implementation = implementation_of(value))) return false;
      }
      tensors_.push_back({implementation, value, all_.size()});
      return add(one);
    }
    if (PyList_Check(value) || PyTuple_Check(value)) {
      const bool is_list = PyList_Check(value);
      const Py_ssize_t size = is_list ? PyList_Size(value) : PyTuple_Size(value);
      one.kind = 'l';
      one.integer = size;
      if (!add(one)) return false;
      for (Py_ssize_t i = 0; i < size; ++i) {
        PyObject* const member = is_list ? PyList_GetItem(value, i) : PyTuple_GetItem(value, i);
        if (!member || !add(member)) return false;
      }
      return true;
    }
    if (value == Py_True || value == Py_False) {
      one.kind = 'b';
      one.integer = value == Py_True;
      return add(one);
    }
    if (PyLong_CheckExact(value)) {
      int overflow = 0;
      one.kind = 'i';
      one.integer = PyLong_AsLongLongAndOverflow(value, &overflow);
      if (!overflow) return add(one);
    } else if (PyFloat_CheckExact(value)) {
      one.kind = 'f';
      one.floating = PyFloat_AsDouble(value);
      return add(one);
    }
    one.kind = 's';
    one.type = text_of(Owned(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__name__")));
    one.text = one.type ? text_of(Owned(PyObject_Repr(value))) : nullptr;
    if (!one.text && !is_reported()) return false;
    if (!one.text) one.text = "?";
    return add(one);
  }

  const Object* data() {
    for (const Tensor& tensor : tensors_) all_[tensor.place].tensor = const_cast<void**>(&tensor.implementation);
    return all_.data();
  }
  int count() const { return static_cast<int>(all_.size()); }

  // The object that the handle of a tensor in this line is of.
  PyObject* object_of(const void* handle) const {
    for (const Tensor& tensor : tensors_) {
      if (tensor.implementation == *static_cast<void* const*>(handle)) return tensor.object;
    }
    return nullptr;
  }

  void clear() {
    all_.clear();
    tensors_.clear();
    kept_.clear();
  }

 private:
  struct Tensor {
    void* implementation;
    PyObject* object;
    std::size_t place;
  };

  bool add(const Object& one) {
    all_.push_back(one);
    return true;
  }
  const char* text_of(Owned text) {
    const char* const result = text ? PyUnicode_AsUTF8AndSize(text.get(), nullptr) : nullptr;
    if (!result && text && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
      PyErr_Clear();  // lone surrogates
      Owned bytes(PyUnicode_AsEncodedString(text.get(), "utf-8", "backslashreplace"));
      kept_.push_back(std::move(bytes));
      return kept_.back() ? PyBytes_AsString(kept_.back().get()) : nullptr;
    }
    kept_.push_back(std::move(text));
    return result;
  }

  std::vector<Object> all_;
  std::vector<Tensor> tensors_;
  std::vector<Owned> kept_;
};

thread_local Values* line_of_thread = nullptr;  // the line that this thread is in

const char* save_for_recorder(void* tensor, const char* path) {
  static thread_local std::string problem;
  const PyGILState_STATE state = PyGILState_Ensure();
  problem = "it is not known to Python";
  PyObject* const object = line_of_thread ? line_of_thread->object_of(tensor) : nullptr;
  if (object) {
    const Owned done(PyObject_CallFunction(save_tensor, "Os", object, path));
    PyErr_Clear();
    const char* const text = done && PyUnicode_Check(done.get()) ? PyUnicode_AsUTF8AndSize(done.get(), nullptr) : "";
    problem = text ? text : "";
  }
  PyGILState_Release(state);
  return problem.empty() ? nullptr : problem.c_str();
}

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
  long forks;          // those of the process that made `calls`
  bool is_dormant, is_closed, leaves_out;
  std::vector<Values*>* free;
};

Lines& lines_of(PyObject* self) { return *reinterpret_cast<Lines*>(self); }
std::vector<Lines*>& all_lines() {
  static std::vector<Lines*>& all = *new std::vector<Lines*>;
  return all;
}

Running* find_call(Lines& self) {
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

// Ends the call at a place, and forgets it.
void end_at(Lines& self, std::size_t place) {
  void* const call = (*self.calls)[place].call;
  self.calls->erase(self.calls->begin() + static_cast<std::ptrdiff_t>(place));
  if (!call) return;
  without_lock([&] { return recorder->end(call), 0; });
  write_collected();
}

void end_here(Lines& self) {
  if (Running* const one = find_call(self)) end_at(self, static_cast<std::size_t>(one - self.calls->data()));
}

// Threads that no longer exist begin no other call, so their calls end here.
void end_of_dead(Lines& self) {
  for (std::size_t i = self.calls->size(); i-- > 0;) {
    if (i >= self.calls->size()) continue;  // other threads ended theirs meanwhile
    char path[64];
    PyOS_snprintf(path, sizeof path, "/proc/self/task/%ld", (*self.calls)[i].system_thread);
    if (!(*self.calls)[i].is_busy && access(path, F_OK)) end_at(self, i);
  }
}

// Notes whether this thread is in a line. Other threads may have begun calls since it looked for its own.
void set_busy(Lines& self, bool is_busy) {
  if (Running* const one = find_call(self)) one->is_busy = is_busy;
}

void add_call(Lines& self, void* call) {
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

// The call of this thread; begins one where the thread has none.
Running* call_of_line(Lines& self) {
  Running* one = find_call(self);
  if (one && (one->call || !self.leaves_out)) return one;
  if (self.is_dormant || self.is_closed) return nullptr;
  void* const call = without_lock([&] { return recorder->resume(self.table); });
  if ((one = find_call(self))) return one->call = call, one;
  if (!call) return nullptr;
  add_call(self, call);
  return &self.calls->back();
}

PyObject* pass(Lines& self, char phase, int launch, PyObject* const* given, Py_ssize_t count) {
  Running* const running = call_of_line(self);
  if (!running || !running->call) Py_RETURN_NONE;
  void* const call = running->call;
  if (self.free->empty()) self.free->push_back(new Values);
  Values& values = *self.free->back();
  self.free->pop_back();
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
  self.free->push_back(&values);
  write_collected();
  return done_or_interrupt();
}

bool takes(Py_ssize_t count, Py_ssize_t least) {
  if (count >= least) return true;
  PyErr_SetString(PyExc_TypeError, "too few arguments");
  return false;
}

// begin(values): a call starts in this thread. `values`: those that it was given, if their number matters.
PyObject* lines_begin(PyObject* of, PyObject* const* given, Py_ssize_t count) {
  Lines& self = lines_of(of);
  if (self.is_closed) Py_RETURN_NONE;
  if (!self.is_dormant) {
    end_here(self);
    find_streams();
    add_call(self, without_lock([&] { return recorder->begin(self.table); }));
    write_collected();
  }
  if (!count || !PyList_Check(given[0]) || PyList_Size(given[0]) == self.inputs) Py_RETURN_NONE;
  std::vector<PyObject*> values;
  for (Py_ssize_t i = 0; i < PyList_Size(given[0]); ++i) values.push_back(PyList_GetItem(given[0], i));
  return pass(self, 'g', 0, values.data(), static_cast<Py_ssize_t>(values.size()));
}

// due(): whether a call of a wrapper with dormant probes is recorded, which starts in this thread.
PyObject* lines_due(PyObject* of, PyObject*) {
  Lines& self = lines_of(of);
  if (self.is_closed) Py_RETURN_FALSE;
  if (!self.calls->empty()) {
    end_here(self);
    end_of_dead(self);
  }
  void* const call = recorder->begin(self.table);
  if (call) {
    find_streams();
    add_call(self, call);
  }
  write_collected();
  return PyBool_FromLong(call != nullptr);
}

PyObject* lines_on(PyObject* of, void*) {
  Lines& self = lines_of(of);
  return PyBool_FromLong(!self.calls->empty() && find_call(self));
}

PyObject* lines_inputs(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  return pass(lines_of(self), 'i', 0, given, count);
}

PyObject* at_launch(PyObject* self, char phase, PyObject* const* given, Py_ssize_t count) {
  if (!takes(count, 1)) return nullptr;
  const long launch = PyLong_AsLong(given[0]);
  if (launch == -1 && PyErr_Occurred()) return nullptr;
  return pass(lines_of(self), phase, static_cast<int>(launch), given + 1, count - 1);
}
PyObject* lines_before(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  return at_launch(self, 'b', given, count);
}
PyObject* lines_after(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  return at_launch(self, 'a', given, count);
}

// Passes a memory line on. Returns what replaces an allocated tensor, or null.
void* pass_memory(Lines& self, char line, PyObject* number, PyObject* tensor, const char* problem) {
  Running* const running = call_of_line(self);
  if (!running || !running->call) return nullptr;
  void* const call = running->call;
  const long index = PyLong_AsLong(number);
  void* implementation = nullptr;
  if (tensor) {
    implementation = implementation_of(tensor);
    if (!implementation) return nullptr;
  }
  void* other = nullptr;
  undisturbed([&] {
    set_busy(self, true);
    void* const handle = implementation ? &implementation : nullptr;
    other = without_lock(
        [&] { return recorder->memory(call, line, static_cast<int>(index), handle, problem); });
    set_busy(self, false);
  });
  write_collected();
  return other;
}

bool is_tensor(PyObject* value) {
  return PyType_IsSubtype(Py_TYPE(value), reinterpret_cast<PyTypeObject*>(tensor_type));
}

// The text that a function of extension.py returns; null for an empty one.
const char* reason_of(const Owned& text) {
  const char* const reason = text ? PyUnicode_AsUTF8AndSize(text.get(), nullptr) : nullptr;
  return reason && *reason ? reason : nullptr;
}

// allocated(event, tensor): returns the tensor that the wrapper is to use.
PyObject* lines_allocated(PyObject* of, PyObject* const* given, Py_ssize_t count) {
  if (!takes(count, 2)) return nullptr;
  if (is_tensor(given[1])) {
    const Owned problem(PyObject_CallFunctionObjArgs(cannot_guard, given[1], nullptr));
    void* const other = pass_memory(lines_of(of), 'a', given[0], given[1], reason_of(problem));
    if (other) {
      const Owned capsule(PyCapsule_New(other, nullptr, nullptr));
      Owned result(capsule ? PyObject_CallFunctionObjArgs(take_tensor, capsule.get(), nullptr) : nullptr);
      if (result) return result.release();
    }
    const Owned nothing(done_or_interrupt());
    if (!nothing) return nullptr;
  }
  Py_INCREF(given[1]);
  return given[1];
}

Py_ssize_t references_of_variable = 0;  // that a line sees of a tensor which one variable refers to

// references(event, object): counts those of an object that one variable refers to.
PyObject* count_references(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (!takes(count, 2)) return nullptr;
  references_of_variable = Py_REFCNT(given[1]);
  Py_RETURN_NONE;
}

PyObject* gone(PyObject* of, char line, PyObject* const* given, Py_ssize_t count) {
  if (!takes(count, 2)) return nullptr;
  const bool is_held = Py_REFCNT(given[1]) > references_of_variable;
  if (!is_tensor(given[1])) Py_RETURN_NONE;
  Owned problem(PyObject_CallFunctionObjArgs(cannot_guard, given[1], nullptr));
  const char* reason = reason_of(problem);
  if (!reason && is_held) reason = "another variable has it";
  if (!reason) {
    problem = Owned(PyObject_CallFunctionObjArgs(is_shared, given[1], nullptr));
    reason = reason_of(problem);
  }
  pass_memory(lines_of(of), line, given[0], given[1], reason);
  return done_or_interrupt();
}
PyObject* lines_released(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  return gone(self, 'f', given, count);
}
PyObject* lines_reused(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  return gone(self, 'r', given, count);
}
PyObject* lines_checked(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  if (!takes(count, 1)) return nullptr;
  pass_memory(lines_of(self), 'c', given[0], nullptr, nullptr);
  return done_or_interrupt();
}

PyObject* lines_end(PyObject* self, PyObject*) {
  end_here(lines_of(self));
  Py_RETURN_NONE;
}

// Ends all calls but those whose threads are in a line, and writes what is left.
void finish(Lines& self, bool is_last) {
  find_call(self);  // forgets what another process left
  for (std::size_t i = self.calls->size(); i-- > 0;) {
    if (i < self.calls->size() && !(*self.calls)[i].is_busy) end_at(self, i);
  }
  without_lock([&] { return recorder->finish(self.table, is_last), 0; });
  write_collected();
}

// close(): ends recording. No call may be running in the wrapper.
PyObject* lines_close(PyObject* self, PyObject*) {
  Lines& its = lines_of(self);
  if (!std::exchange(its.is_closed, true)) finish(its, true);
  Py_RETURN_NONE;
}

template <class F>
PyCFunction method(F function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef lines_methods[] = {
    {"begin", method(lines_begin), METH_FASTCALL, nullptr},
    {"due", method(lines_due), METH_NOARGS, nullptr},
    {"inputs", method(lines_inputs), METH_FASTCALL, nullptr},
    {"before", method(lines_before), METH_FASTCALL, nullptr},
    {"after", method(lines_after), METH_FASTCALL, nullptr},
    {"allocated", method(lines_allocated), METH_FASTCALL, nullptr},
    {"released", method(lines_released), METH_FASTCALL, nullptr},
    {"reused", method(lines_reused), METH_FASTCALL, nullptr},
    {"checked", method(lines_checked), METH_FASTCALL, nullptr},
    {"end", method(lines_end), METH_NOARGS, nullptr},
    {"close", method(lines_close), METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef lines_attributes[] = {
    {"on", lines_on, nullptr, nullptr, nullptr}, {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot lines_slots[] = {{Py_tp_methods, lines_methods}, {Py_tp_getset, lines_attributes}, {0, nullptr}};
PyType_Spec lines_spec = {
    "inductor_rewriter_lines.Lines", sizeof(Lines), 0, Py_TPFLAGS_DEFAULT, lines_slots};
PyObject* lines_type = nullptr;

// The texts of a tuple, each a text or None. They are never freed: the recorder keeps them.
const char** texts_of(PyObject* tuple) {
  const Py_ssize_t size = PyTuple_Size(tuple);
  if (size < 0) return nullptr;
  const char** const texts = static_cast<const char**>(std::calloc(static_cast<std::size_t>(size) + 1, sizeof *texts));
  for (Py_ssize_t i = 0; texts && i < size; ++i) {
    PyObject* const one = PyTuple_GetItem(tuple, i);
    if (one == Py_None) continue;
    const Owned bytes(PyUnicode_AsEncodedString(one, "utf-8", "surrogateescape"));
    if (!bytes) return nullptr;
    texts[i] = strdup(PyBytes_AsString(bytes.get()));
  }
  return texts;
}

// attach(options, rows, more, facts, number of inputs, dormant, leaves calls out, quiet): texts as tuples; `rows`
// has 14 for each launch, `more` two; `facts` are the inputs, and torch, command, tf32 and directory of `ObjectTable`.
PyObject* attach(PyObject*, PyObject* args) {
  PyObject *options, *rows, *more, *facts;
  Py_ssize_t inputs;
  int is_dormant, leaves_out, quiet;
  if (!PyArg_ParseTuple(
          args, "O!O!O!O!nppp", &PyTuple_Type, &options, &PyTuple_Type, &rows, &PyTuple_Type, &more,
          &PyTuple_Type, &facts, &inputs, &is_dormant, &leaves_out, &quiet)) {
    return nullptr;
  }
  const char** const texts[] = {texts_of(options), texts_of(rows), texts_of(more), texts_of(facts)};
  for (const char** const one : texts) {
    if (!one) return PyErr_Occurred() ? nullptr : PyErr_NoMemory();
  }
  ObjectTable of{};
  of.options = texts[0];
  of.rows = reinterpret_cast<const char* const(*)[14]>(texts[1]);
  of.size = static_cast<unsigned long>(PyTuple_Size(rows)) / 14;
  of.more = reinterpret_cast<const char* const(*)[2]>(texts[2]);
  of.inputs = texts[3][0];
  of.torch = texts[3][1];
  of.command = texts[3][2];
  of.tf32 = texts[3][3];
  of.directory = texts[3][4];
  of.quiet = quiet;
  PyObject* const made = PyType_GenericAlloc(reinterpret_cast<PyTypeObject*>(lines_type), 0);
  if (!made) return nullptr;
  Lines& self = lines_of(made);
  self.table = recorder->attach(&of);
  if (!self.table) {
    Py_DECREF(made);
    return PyErr_NoMemory();
  }
  self.calls = new std::vector<Running>;
  self.free = new std::vector<Values*>;
  self.inputs = inputs;
  self.forks = forks;
  self.is_dormant = is_dormant;
  self.leaves_out = leaves_out;
  all_lines().push_back(&self);
  Py_INCREF(made);  // never freed, since a thread may be in a call
  return made;
}

// use(address of ObjectFunctions, torch.Tensor, Parameter, functions)
PyObject* use(PyObject*, PyObject* args) {
  PyObject** const to[] = {&tensor_type,  &parameter_type, &find_address, &mode_count,  &without_modes,
                           &take_tensor,  &cannot_guard,   &is_shared,    &save_tensor, &make_positive,
                           &warn};
  constexpr int count = sizeof to / sizeof *to;
  if (PyTuple_Size(args) != count + 1) {
    PyErr_SetString(PyExc_TypeError, "another number of arguments");
    return nullptr;
  }
  PyObject* const address = PyTuple_GetItem(args, 0);
  void* const functions = PyLong_AsVoidPtr(address);
  if (!functions) return nullptr;
  for (int i = 0; i < count; ++i) {
    PyObject* const one = PyTuple_GetItem(args, i + 1);
    Py_INCREF(one);
    Py_XDECREF(std::exchange(*to[i], one));
  }
  recorder = static_cast<const ObjectFunctions*>(functions);
  recorder->save_with(save_for_recorder);
  Py_RETURN_NONE;
}

// write(): writes the calls that have ended.
PyObject* write_all(PyObject*, PyObject*) {
  for (std::size_t i = 0; i < all_lines().size(); ++i) {
    Lines* const lines = all_lines()[i];
    without_lock([&] { return recorder->finish(lines->table, false), 0; });
  }
  write_collected();
  Py_RETURN_NONE;
}

// finish(text): the program ends, by the exception with this text if it is not empty.
PyObject* finish_all(PyObject*, PyObject* text) {
  const char* const exception = PyUnicode_AsUTF8AndSize(text, nullptr);
  if (!exception) return nullptr;
  for (Lines* lines : all_lines()) {
    if (!lines->is_closed) finish(*lines, true);
  }
  recorder->ended(exception);
  Py_RETURN_NONE;
}

PyObject* forked(PyObject*, PyObject*) {
  ++forks;
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"attach", attach, METH_VARARGS, nullptr},
    {"use", use, METH_VARARGS, nullptr},
    {"write", write_all, METH_NOARGS, nullptr},
    {"finish", finish_all, METH_O, nullptr},
    {"references", method(count_references), METH_FASTCALL, nullptr},
    {"forked", forked, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "inductor_rewriter_lines", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_inductor_rewriter_lines() {
  struct {
    PyObject** to;
    const char* text;
  } const names[] = {
      {&name_cdata, "_cdata"},
      {&name_is_neg, "is_neg"},
      {&name_write, "write"},
      {&name_flush, "flush"},
      {&name_fileno, "fileno"}};
  for (const auto& name : names) {
    if (!*name.to && !(*name.to = PyUnicode_InternFromString(name.text))) return nullptr;
  }
  Owned made(PyModule_Create(&module));
  if (!made) return nullptr;
  lines_type = PyType_FromSpec(&lines_spec);
  if (!lines_type || PyModule_AddObjectRef(made.get(), "Lines", lines_type)) return nullptr;
  return made.release();
}
