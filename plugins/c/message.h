/* Messages, for plugins in C. */
#ifndef CLEARWAY_MESSAGE_H
#define CLEARWAY_MESSAGE_H

#include <stdlib.h>
#include <string.h>

#include "../clearway_plugin.h"

/* Bytes of a message; none of its texts ends in a zero. */
struct text {
    const uint8_t *bytes;
    uint32_t length;
};

static inline uint32_t clearway_number(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* The value of the first field of that name; its bytes are null where there is none. */
static inline struct text clearway_field(const uint8_t *message, uint32_t length, const char *name) {
    struct text none = {NULL, 0};
    uint32_t at = 8, count = length < 8 ? 0 : clearway_number(message + 4);
    while (count-- > 0 && length - at >= 8) {
        uint32_t name_length = clearway_number(message + at);
        uint32_t value_length = clearway_number(message + at + 4);
        at += 8;
        if (name_length > length - at || value_length > length - at - name_length) {
            return none;
        }
        if (name_length == strlen(name) && memcmp(message + at, name, name_length) == 0) {
            struct text found = {message + at + name_length, value_length};
            return found;
        }
        at += name_length + value_length;
    }
    return none;
}

static inline int clearway_is(struct text text, const char *other) {
    return text.bytes != NULL && text.length == strlen(other) && memcmp(text.bytes, other, text.length) == 0;
}

/* An answer that is being written. `bytes` is to be freed. */
struct answer {
    uint8_t *bytes;
    uint32_t length;
};

static inline void clearway_put_number(uint8_t *at, uint32_t number) {
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(number >> 8 * i);
    }
}

static inline void clearway_put(struct answer *answer, const char *name, const void *value,
                                size_t value_length) {
    size_t name_length = strlen(name), begin = answer->length == 0 ? 8 : answer->length;
    uint8_t *bytes = realloc(answer->bytes, begin + 8 + name_length + value_length);
    if (bytes == NULL) {
        abort();
    }
    if (answer->length == 0) {
        memcpy(bytes, "\1\4\0\0\0\0\0\0", 8);
    }
    clearway_put_number(bytes + 4, clearway_number(bytes + 4) + 1);
    clearway_put_number(bytes + begin, (uint32_t)name_length);
    clearway_put_number(bytes + begin + 4, (uint32_t)value_length);
    memcpy(bytes + begin + 8, name, name_length);
    memcpy(bytes + begin + 8 + name_length, value, value_length);
    answer->bytes = bytes;
    answer->length = (uint32_t)(begin + 8 + name_length + value_length);
}

#endif
