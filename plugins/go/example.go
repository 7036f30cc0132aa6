// A plugin in Go: one goroutine asks for work, each call is answered by a goroutine of its own. It does what
// the example in C does by the names `greet`, `echo` and `check`. Build it in this directory with
//
//	go build -buildmode=c-shared -o example.so .
package main

/*
#include "../clearway_plugin.h"

static inline uint64_t plugin_next(void *plugin, uint32_t *length) {
    const struct clearway_plugin *p = plugin;
    return p->next(p, 1000, length);
}

static inline uint32_t plugin_read(void *plugin, uint64_t call, void *to, uint32_t count) {
    const struct clearway_plugin *p = plugin;
    return p->read(p, call, 0, to, count);
}

static inline int plugin_answer(void *plugin, uint64_t call, void *bytes, uint32_t count) {
    const struct clearway_plugin *p = plugin;
    return p->answer(p, call, bytes, count);
}

static inline uint32_t plugin_version(void *plugin) {
    return ((const struct clearway_plugin *)plugin)->version;
}

static inline const char *plugin_config(void *plugin) {
    return ((const struct clearway_plugin *)plugin)->config;
}
*/
import "C"

import (
	"encoding/binary"
	"strings"
	"unsafe"
)

type field struct {
	name  string
	value []byte
}

// The value of the first field of that name, in any case.
func find(message []byte, name string) []byte {
	for at := 8; at+8 <= len(message); {
		nameEnd := at + 8 + int(binary.LittleEndian.Uint32(message[at:]))
		end := nameEnd + int(binary.LittleEndian.Uint32(message[at+4:]))
		if end > len(message) {
			break
		}
		if strings.EqualFold(string(message[at+8:nameEnd]), name) {
			return message[nameEnd:end]
		}
		at = end
	}
	return nil
}

func answer(fields ...field) []byte {
	message := []byte{1, C.CLEARWAY_ANSWER, 0, 0}
	message = binary.LittleEndian.AppendUint32(message, uint32(len(fields)))
	for _, field := range fields {
		message = binary.LittleEndian.AppendUint32(message, uint32(len(field.name)))
		message = binary.LittleEndian.AppendUint32(message, uint32(len(field.value)))
		message = append(append(message, field.name...), field.value...)
	}
	return message
}

func work(config string, question []byte) []byte {
	switch string(find(question, ":function")) {
	case "greet":
		page := "hello " + string(find(question, ":args")) + " from Go\n"
		return answer(field{":status", []byte("200")}, field{":body", []byte(page)})
	case "echo":
		return answer(field{":body", find(question, ":body")})
	case "check":
		if string(find(question, "X-Key")) == config {
			return answer(field{":status", []byte("204")})
		}
		return answer(field{":status", []byte("403")}, field{":body", []byte("wrong key\n")})
	default:
		return answer(field{":status", []byte("404")}, field{":body", []byte("no such function\n")})
	}
}

func serve(plugin unsafe.Pointer) {
	config := C.GoString(C.plugin_config(plugin))
	for {
		var length C.uint32_t
		call := C.plugin_next(plugin, &length)
		if call == C.CLEARWAY_NOTHING {
			continue
		}
		if call == C.CLEARWAY_CLOSED {
			return
		}
		// One byte more, so that there is a first one.
		question := make([]byte, length+1)
		count := C.plugin_read(plugin, call, unsafe.Pointer(&question[0]), length)
		go func() {
			message := work(config, question[:count])
			C.plugin_answer(plugin, call, unsafe.Pointer(&message[0]), C.uint32_t(len(message)))
		}()
	}
}

//export goStart
func goStart(plugin unsafe.Pointer) C.int {
	if C.plugin_version(plugin) != C.CLEARWAY_PLUGIN_VERSION {
		return 1
	}
	go serve(plugin)
	return 0
}

func main() {}
