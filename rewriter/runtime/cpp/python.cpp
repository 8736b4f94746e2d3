// The extension module for wrappers in Python: it reads the values of their lines, and hands them to the
// recorder (objects.h). Needs no headers of torch; built for the stable ABI of CPython 3.10.
#include "python/lines.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace inductor_rewriter::python {

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
  const char** const fact = texts[3];
  const ObjectTable of{
      texts[0], reinterpret_cast<const char* const(*)[14]>(texts[1]), fact[0],
      static_cast<unsigned long>(PyTuple_Size(rows)) / 14, reinterpret_cast<const char* const(*)[2]>(texts[2]),
      fact[1], fact[2], fact[3], fact[4], quiet != 0};
  PyObject* const made = PyType_GenericAlloc(reinterpret_cast<PyTypeObject*>(lines_type), 0);
  if (!made) return nullptr;
  Lines& self = lines_of(made);
  self.table = recorder->attach(&of);
  if (!self.table) {
    Py_DECREF(made);
    return PyErr_NoMemory();
  }
  self.calls = new std::vector<Running>;
  self.free = new std::vector<std::unique_ptr<Values>>;
  self.inputs = inputs;
  self.forks = count_forks();
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

PyMethodDef functions[] = {
    {"attach", attach, METH_VARARGS, nullptr},
    {"use", use, METH_VARARGS, nullptr},
    {"write", write_all, METH_NOARGS, nullptr},
    {"finish", finish_all, METH_O, nullptr},
    {"references", method(count_references), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "inductor_rewriter_lines", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace inductor_rewriter::python

PyMODINIT_FUNC PyInit_inductor_rewriter_lines() {
  using namespace inductor_rewriter::python;
  const std::pair<PyObject**, const char*> names[] = {
      {&name_cdata, "_cdata"}, {&name_is_neg, "is_neg"}, {&name_write, "write"}, {&name_flush, "flush"},
      {&name_fileno, "fileno"}};
  for (const auto& [to, text] : names) {
    if (!*to && !(*to = PyUnicode_InternFromString(text))) return nullptr;
  }
  Owned made(PyModule_Create(&module));
  if (!made) return nullptr;
  lines_type = PyType_FromSpec(&lines_spec);
  if (!lines_type || PyModule_AddObjectRef(made.get(), "Lines", lines_type)) return nullptr;
  return made.release();
}
