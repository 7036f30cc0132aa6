/* What a plugin of Clearway is given, and what it has to export.
 *
 * A plugin is a shared library that a configuration names:
 *
 *     plugin NAME library=FILE [config=TEXT] [process] [calls=NUMBER] [message=SIZE];
 *
 * Once loaded it is asked to start, and starts threads of its own. Each of them asks for work (`next`), reads
 * the question (`read`) and answers (`answer`), now or later, in any order and from any thread. A question
 * that is never answered keeps its place among the `calls` that may be under way. */
#ifndef CLEARWAY_PLUGIN_H
#define CLEARWAY_PLUGIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CLEARWAY_PLUGIN_VERSION 1

/* What `next` returns besides calls. */
#define CLEARWAY_NOTHING 0
#define CLEARWAY_CLOSED UINT64_MAX

/* What `answer` returns. */
#define CLEARWAY_TAKEN 0
#define CLEARWAY_UNKNOWN (-1)
#define CLEARWAY_TOO_LARGE (-2)

struct clearway_plugin {
    uint32_t version;
    /* The longest message, bytes. */
    uint32_t message_max;
    /* As the configuration says them. */
    const char *name;
    const char *config;
    /* Waits so many milliseconds for a call, or less. The call, and in `length` (which may be null) how long
     * its question is in bytes; CLEARWAY_NOTHING for now; or CLEARWAY_CLOSED: there will be none, threads are
     * to end. */
    uint64_t (*next)(const struct clearway_plugin *, uint32_t timeout_ms, uint32_t *length);
    /* Copies at most `count` bytes of a question, from byte `from` on. How many there were; 0 for a call that
     * was answered. */
    uint32_t (*read)(const struct clearway_plugin *, uint64_t call, uint32_t from, uint8_t *to,
                     uint32_t count);
    /* Answers a call. CLEARWAY_UNKNOWN: it was answered already, or never asked. CLEARWAY_TOO_LARGE: the call
     * is still to be answered, with something shorter. */
    int (*answer)(const struct clearway_plugin *, uint64_t call, const uint8_t *bytes, uint32_t count);
};

/* To be exported. Starts the plugin's threads and returns 0; the argument stays valid for the life of the
 * process. Anything else: the plugin cannot be used. */
int clearway_plugin_start(const struct clearway_plugin *);

/* A message is a head of eight bytes (version 1, kind, two zeros, number of fields in four bytes), then for
 * each field the length of its name and of its value in four bytes each, the name, and the value. All numbers
 * have their lowest byte first.
 *
 * Questions have the fields `:function` `:method` `:uri` `:args` `:protocol` `:scheme` `:client`, then the
 * headers of the request, and behind them `:body` (to pass) or `:status` and `:bytes` (to log). Answers have
 * a `:status` (200 without), headers, and a `:body`; those to log are dropped. */
enum clearway_kind {
    CLEARWAY_ACCESS = 1,
    CLEARWAY_PASS = 2,
    CLEARWAY_LOG = 3,
    CLEARWAY_ANSWER = 4
};

#ifdef __cplusplus
}
#endif

#endif
