/* text.h - write the texts of INFO and STATUS.
 *
 * INFO has sections of lines "name:value". STATUS is one JSON object. Its
 * strings are not escaped: they come from the configuration, or are words of
 * the program. If memory is exhausted, text->failed is set. */
#ifndef HF_SERVE_TEXT_H
#define HF_SERVE_TEXT_H

#include "base/buf.h"

void hf_text_add(struct hf_buf *text, const char *string);

/* ---- INFO ---------------------------------------------------------------*/

/* Begin a section. */
void hf_text_section(struct hf_buf *text, const char *name);

/* Write a line of the section. */
void hf_text_line(struct hf_buf *text, const char *name, const char *value);
void hf_text_count(struct hf_buf *text, const char *name, uint64_t count);

/* ---- STATUS -------------------------------------------------------------
 *
 * Each function writes one member of an object, after a comma if it is not the
 * first. The caller writes the braces. */

void hf_text_json_name(struct hf_buf *text, const char *name); /* no value */
void hf_text_json_number(struct hf_buf *text, const char *name,
                         uint64_t number);
void hf_text_json_bool(struct hf_buf *text, const char *name, bool value);
void hf_text_json_string(struct hf_buf *text, const char *name,
                         const char *string);

#endif
