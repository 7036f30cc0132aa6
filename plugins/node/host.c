/* Plugins that are programs of their own, such as those for Node: this library starts the program that
 * `config` names with its arguments (words with spaces between), and passes questions and answers through its
 * standard input and output. Each has twelve bytes in front: the number of the call (eight) and the length
 * (four), lowest byte first. When the program ends, so does this process: it is for plugins with `process`,
 * which are started anew then. Build it with
 *
 *     cc -shared -fPIC -O2 -o host.so host.c -lpthread
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "../clearway_plugin.h"

#define HEAD 12
#define WORDS_MAX 64

static const struct clearway_plugin *plugin;
static int to_program, from_program;

/* Both end the process where the program is gone. */
static void write_all(const uint8_t *bytes, size_t count) {
    while (count > 0) {
        ssize_t written = write(to_program, bytes, count);
        if (written <= 0) {
            _exit(1);
        }
        bytes += written;
        count -= (size_t)written;
    }
}

static void read_all(uint8_t *bytes, size_t count) {
    while (count > 0) {
        ssize_t got = read(from_program, bytes, count);
        if (got <= 0) {
            _exit(1);
        }
        bytes += got;
        count -= (size_t)got;
    }
}

static void put(uint8_t *at, uint64_t number, int bytes) {
    for (int i = 0; i < bytes; i++) {
        at[i] = (uint8_t)(number >> 8 * i);
    }
}

static uint64_t number(const uint8_t *at, int bytes) {
    uint64_t number = 0;
    for (int i = bytes; i-- > 0;) {
        number = number << 8 | at[i];
    }
    return number;
}

static void *ask(void *unused) {
    uint8_t *message = malloc(HEAD + (size_t)plugin->message_max);
    (void)unused;
    for (;;) {
        uint32_t length = 0;
        uint64_t call = plugin->next(plugin, 1000, &length);
        if (message == NULL || call == CLEARWAY_CLOSED) {
            free(message);
            close(to_program);
            return NULL;
        }
        if (call != CLEARWAY_NOTHING) {
            length = plugin->read(plugin, call, 0, message + HEAD, length);
            put(message, call, 8);
            put(message + 8, length, 4);
            write_all(message, HEAD + (size_t)length);
        }
    }
}

static void *answer(void *unused) {
    uint8_t head[HEAD], *message = malloc(plugin->message_max);
    (void)unused;
    for (;;) {
        read_all(head, HEAD);
        uint64_t length = number(head + 8, 4);
        if (message == NULL || length > plugin->message_max) {
            _exit(1);
        }
        read_all(message, length);
        plugin->answer(plugin, number(head, 8), message, (uint32_t)length);
    }
}

static void become_program(int in, int out) {
    char *words[WORDS_MAX + 1] = {NULL}, *config = strdup(plugin->config);
    int count = 0;
    for (char *word = strtok(config, " "); word != NULL && count < WORDS_MAX; word = strtok(NULL, " ")) {
        words[count++] = word;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (count > 0 && dup2(in, 0) == 0 && dup2(out, 1) == 1) {
        execvp(words[0], words);
    }
    _exit(127);
}

int clearway_plugin_start(const struct clearway_plugin *given) {
    int to[2], from[2];
    pthread_t asking, answering;
    plugin = given;
    if (plugin->version != CLEARWAY_PLUGIN_VERSION || pipe(to) != 0 || pipe(from) != 0) {
        return 1;
    }
    switch (fork()) {
    case -1:
        return 2;
    case 0:
        close(to[1]);
        close(from[0]);
        become_program(to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    to_program = to[1];
    from_program = from[0];
    if (pthread_create(&asking, NULL, ask, NULL) != 0 ||
        pthread_create(&answering, NULL, answer, NULL) != 0) {
        return 3;
    }
    pthread_detach(asking);
    pthread_detach(answering);
    return 0;
}
