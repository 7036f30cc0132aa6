/* A plugin in C: two threads that answer one call after the other. Build it with
 *
 *     cc -shared -fPIC -O2 -o example.so example.c -lpthread
 *
 * `greet` answers with a page, `echo` with the body of the request, `check` lets requests with the right key
 * through (`config=KEY`), `count` counts what it is told of and `counted` tells. The others are what plugins
 * should not do: `crash`, `silence` (it never answers), `twice`, `nonsense`, `sleep`, `flood` (it answers a
 * hundred thousand calls that were never made, and its own as often). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "message.h"

#define THREADS 2

static atomic_ulong told;

static void text_answer(struct answer *answer, const char *status, const void *text, size_t length) {
    clearway_put(answer, ":status", status, strlen(status));
    clearway_put(answer, "Content-Type", "text/plain", 10);
    clearway_put(answer, ":body", text, length);
}

/* How many answers are taken of a hundred thousand to other uses of this call's place, of one that is longer
 * than a message may be, and of a hundred thousand to the call itself. */
static unsigned long flood(const struct clearway_plugin *plugin, uint64_t call, const struct answer *answer) {
    unsigned long taken = 0;
    for (uint64_t other = 1; other <= 100000; other++) {
        uint64_t never = call + (other << 32);
        taken += plugin->answer(plugin, never, answer->bytes, answer->length) == CLEARWAY_TAKEN;
    }
    taken += plugin->answer(plugin, call, answer->bytes, UINT32_MAX) == CLEARWAY_TAKEN;
    for (int again = 0; again < 100000; again++) {
        taken += plugin->answer(plugin, call, answer->bytes, answer->length) == CLEARWAY_TAKEN;
    }
    return taken;
}

/* Whether there is an answer. */
static int work(const struct clearway_plugin *plugin, uint64_t call, struct answer *answer,
                const uint8_t *question, uint32_t length) {
    struct text function = clearway_field(question, length, ":function");
    char page[4096];
    if (clearway_is(function, "greet")) {
        struct text args = clearway_field(question, length, ":args");
        int args_length = args.length < 1000 ? (int)args.length : 1000;
        int count = snprintf(page, sizeof page, "hello %.*s from %s\n", args_length,
                             (const char *)args.bytes, plugin->name);
        clearway_put(answer, "X-Greeter", plugin->config, strlen(plugin->config));
        text_answer(answer, "200", page, (size_t)count);
    } else if (clearway_is(function, "echo")) {
        struct text body = clearway_field(question, length, ":body");
        text_answer(answer, "200", body.bytes, body.length);
    } else if (clearway_is(function, "check")) {
        struct text key = clearway_field(question, length, "X-Key");
        text_answer(answer, clearway_is(key, plugin->config) ? "204" : "403", "wrong key\n", 10);
    } else if (clearway_is(function, "count")) {
        atomic_fetch_add(&told, 1);
        clearway_put(answer, ":status", "200", 3);
    } else if (clearway_is(function, "counted")) {
        int count = snprintf(page, sizeof page, "%lu", atomic_load(&told));
        text_answer(answer, "200", page, (size_t)count);
    } else if (clearway_is(function, "crash")) {
        abort();
    } else if (clearway_is(function, "silence")) {
        return 0;
    } else if (clearway_is(function, "nonsense")) {
        plugin->answer(plugin, call, (const uint8_t *)"nonsense", 8);
        return 0;
    } else if (clearway_is(function, "twice")) {
        text_answer(answer, "200", "once\n", 5);
        plugin->answer(plugin, call, answer->bytes, answer->length);
    } else if (clearway_is(function, "flood")) {
        text_answer(answer, "200", "flooded\n", 8);
        atomic_store(&told, flood(plugin, call, answer));
        return 0;
    } else if (clearway_is(function, "sleep")) {
        sleep(1);
        text_answer(answer, "200", "slept\n", 6);
    } else {
        text_answer(answer, "404", "no such function\n", 17);
    }
    return 1;
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
        if (call == CLEARWAY_NOTHING) {
            continue;
        }
        struct answer answer = {NULL, 0};
        length = plugin->read(plugin, call, 0, question, length);
        if (work(plugin, call, &answer, question, length)) {
            plugin->answer(plugin, call, answer.bytes, answer.length);
        }
        free(answer.bytes);
    }
}

int clearway_plugin_start(const struct clearway_plugin *plugin) {
    if (plugin->version != CLEARWAY_PLUGIN_VERSION) {
        return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run, (void *)plugin) != 0) {
            return 2;
        }
        pthread_detach(thread);
    }
    return 0;
}
