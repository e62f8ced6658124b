/* notice.h - one line on stderr for each notable event of a node.
 *
 *     2026-01-31T12:00:00.123Z node 1: leader in term 7, leader 1
 *
 * Lines that cannot be written at once, because stderr is a pipe that is full,
 * are dropped. */
#ifndef HF_DAEMON_NOTICE_H
#define HF_DAEMON_NOTICE_H

#include <stdint.h>

/* Set the number of the node for the lines that follow. */
void hf_notice_set_node(uint64_t node);

void hf_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
