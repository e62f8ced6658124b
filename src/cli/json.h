/* json.h - write JSON, one object per line.
 *
 *     json_open(&json, stdout);
 *     json_bytes(&json, "key", key.data, key.size);
 *     json_integer(&json, "token", 7);
 *     json_close(&json);              {"key":"nightly","token":"7"}
 *
 * Tokens and indexes have 64 bits and are written as strings: JavaScript, jq
 * and many others read a JSON number as a double and would round them.
 *
 * Strings may contain any bytes. A byte that is not valid UTF-8 becomes \udc80
 * to \udcff, as with Python's "surrogateescape". Because not every reader
 * preserves these, a member NAME_hex with all bytes in hexadecimal follows.
 * An element of an array has no such member. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct json {
    FILE *out;
    bool begun; /* a member or element was written; a comma is next */
};

void json_open(struct json *json, FILE *out);
void json_close(struct json *json);

/* Begin a member that is an object; json_end() ends it. */
void json_begin(struct json *json, const char *name);
void json_end(struct json *json);

/* Begin a member that is an array; json_end_array() ends it. An element is a
 * string, written by json_element(), or an object, which json_begin_element()
 * begins and json_end() ends. */
void json_begin_array(struct json *json, const char *name);
void json_element(struct json *json, const char *text);
void json_begin_element(struct json *json);
void json_end_array(struct json *json);

void json_bytes(struct json *json, const char *name, const void *data,
                size_t size);
void json_text(struct json *json, const char *name, const char *text);

/* Write a number below 2^53, which every reader represents exactly. */
void json_number(struct json *json, const char *name, uint64_t number);

/* Write a 64-bit integer as a string of decimal digits. */
void json_integer(struct json *json, const char *name, uint64_t number);

void json_signed(struct json *json, const char *name, int number);
void json_bool(struct json *json, const char *name, bool value);

#endif
