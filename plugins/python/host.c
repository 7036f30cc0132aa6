/* Plugins in Python: this library has an interpreter in it. `config` names a file, whose function `handle` is
 * given the bytes of each question and returns those of the answer (clearway.py reads and makes them). Build
 * it with
 *
 *     cc -shared -fPIC -O2 -o host.so host.c $(python3-config --includes --ldflags --embed) -lpthread
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "../clearway_plugin.h"

#define THREADS 4

static PyObject *handle;

/* Makes the interpreter's functions known to modules in C, which do not name the library that has them. */
static void show_interpreter(void) {
    Dl_info info;
    if (dladdr((void *)Py_InitializeEx, &info) != 0) {
        dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL);
    }
}

static void answer(const struct clearway_plugin *plugin, uint64_t call, const uint8_t *question,
                   uint32_t length) {
    static const uint8_t failed[] = "\1\4\0\0\1\0\0\0\7\0\0\0\3\0\0\0:status500";
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *answer = PyObject_CallFunction(handle, "y#", (const char *)question, (Py_ssize_t)length);
    char *bytes = NULL;
    Py_ssize_t count = 0;
    if (answer == NULL || PyBytes_AsStringAndSize(answer, &bytes, &count) != 0) {
        PyErr_Print();
        plugin->answer(plugin, call, failed, sizeof failed - 1);
    } else {
        plugin->answer(plugin, call, (const uint8_t *)bytes, (uint32_t)count);
    }
    Py_XDECREF(answer);
    PyGILState_Release(state);
}

static void *run(void *argument) {
    const struct clearway_plugin *plugin = argument;
    uint8_t *question = malloc(plugin->message_max);
    for (;;) {
        uint32_t length = 0;
        uint64_t call = plugin->next(plugin, 1000, &length);
        if (question == NULL || call == CLEARWAY_CLOSED) {
            free(question);
            return NULL;
        }
        if (call != CLEARWAY_NOTHING) {
            answer(plugin, call, question, plugin->read(plugin, call, 0, question, length));
        }
    }
}

/* Runs the file, and finds its function. */
static int load(const char *path) {
    FILE *file = fopen(path, "r");
    PyObject *names = PyModule_GetDict(PyImport_AddModule("__main__"));
    if (file == NULL) {
        return 0;
    }
    PyObject *sys_path = PySys_GetObject("path"), *name = PyUnicode_DecodeFSDefault(path), *directory = NULL;
    PyObject *os_path = PyImport_ImportModule("os.path");
    if (os_path != NULL) {
        directory = PyObject_CallMethod(os_path, "dirname", "O", name);
    }
    if (directory != NULL) {
        PyList_Insert(sys_path, 0, directory);
    }
    PyObject *done = PyRun_FileEx(file, path, Py_file_input, names, names, 1);
    handle = PyDict_GetItemString(names, "handle");
    if (done == NULL) {
        PyErr_Print();
    }
    return done != NULL && handle != NULL;
}

int clearway_plugin_start(const struct clearway_plugin *plugin) {
    if (plugin->version != CLEARWAY_PLUGIN_VERSION) {
        return 1;
    }
    show_interpreter();
    Py_InitializeEx(0);
    if (!load(plugin->config)) {
        return 2;
    }
    Py_INCREF(handle);
    PyEval_SaveThread();
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run, (void *)plugin) != 0) {
            return 3;
        }
        pthread_detach(thread);
    }
    return 0;
}
