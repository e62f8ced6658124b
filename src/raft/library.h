/* library.h - libraft, and what the engine needs to use it. Only the engine's
 * own files include this header.
 *
 * The engine works with version 0.22 only: it writes fields of struct raft, and
 * in later versions the library owns the memory of an event. */
#ifndef HF_RAFT_LIBRARY_H
#define HF_RAFT_LIBRARY_H

#include <raft.h>
#include <stddef.h>

#include "raft/engine.h"
#include "raft/writes.h"

_Static_assert(RAFT_VERSION_NUMBER >= 2200 && RAFT_VERSION_NUMBER < 2300,
               "libraft must be of version 0.22");
_Static_assert((int)HF_ENTRY_COMMAND == (int)RAFT_COMMAND, "kinds differ");
_Static_assert((int)HF_ENTRY_BARRIER == (int)RAFT_BARRIER, "kinds differ");
_Static_assert((int)HF_ENTRY_CHANGE == (int)RAFT_CHANGE, "kinds differ");

#if __SIZEOF_POINTER__ == 8
/* Check that the fields that rules.c writes are where version 0.22 has them. */
#define HF_LIBRARY_STATE offsetof(struct raft, follower_state)
_Static_assert(offsetof(struct raft, follower_state.current_leader.id) ==
                   HF_LIBRARY_STATE + 8,
               "struct raft is not that of libraft 0.22");
_Static_assert(offsetof(struct raft, candidate_state.votes) ==
                   HF_LIBRARY_STATE + 8,
               "struct raft is not that of libraft 0.22");
_Static_assert(offsetof(struct raft, candidate_state.disrupt_leader) ==
                   HF_LIBRARY_STATE + 16,
               "struct raft is not that of libraft 0.22");
_Static_assert(offsetof(struct raft, candidate_state.in_pre_vote) ==
                   HF_LIBRARY_STATE + 17,
               "struct raft is not that of libraft 0.22");
#endif

/* The library's flags for what a step changed. They are macros without
 * parentheses there, so expressions need these constants. */
enum {
    LIBRARY_HARD_STATE = (RAFT_UPDATE_CURRENT_TERM) | (RAFT_UPDATE_VOTED_FOR),
    LIBRARY_ENTRIES = (RAFT_UPDATE_ENTRIES),
    LIBRARY_SNAPSHOT = (RAFT_UPDATE_SNAPSHOT),
    LIBRARY_MESSAGES = (RAFT_UPDATE_MESSAGES),
    LIBRARY_COMMIT = (RAFT_UPDATE_COMMIT_INDEX),
};

/* ---- engine.c -----------------------------------------------------------*/

/* The library does not export its version. So check that its functions have
 * stored the values of `config` where the header of version 0.22 expects them;
 * the fields are spread over the whole of struct raft. A version that differs
 * in its functions alone is not noticed. */
bool hf_engine_is_expected_library(struct raft *raft,
                                   const struct hf_engine_config *config);

/* ---- engine_update.c: one step of the library ---------------------------*/

/* Pass `event` to the library, and add what it changed to `update`. Returns
 * HF_ESYSTEM if the engine has failed. */
enum hf_err hf_engine_step_library(struct hf_engine *engine,
                                   struct raft_event *event,
                                   struct hf_engine_update *update);

/* Stop the engine for ever. `failure`, a text that is never freed, says why.
 * Returns HF_ESYSTEM. */
enum hf_err hf_engine_fail(struct hf_engine *engine, const char *failure);

/* Add a message to the update of this step. The caller initialises it. Returns
 * NULL if memory is exhausted. */
struct hf_message *hf_engine_add_message(struct hf_engine *engine);

/* `peer` has answered an append: more entries may be sent to it. */
void hf_engine_note_answer(struct hf_engine *engine, uint64_t peer);

/* As the leader, append entries to the log. Returns HF_ELIMIT if commands do
 * not fit into the log, HF_ENOMEM or HF_ESYSTEM. */
enum hf_err hf_engine_submit(struct hf_engine *engine,
                             const struct hf_entry *entries, size_t count,
                             hf_time now, struct hf_engine_update *update);

/* Complete `update` after the last step of the library. `after_timeout` is true
 * if the step was a TICK. Returns HF_ESYSTEM if the engine has failed. */
enum hf_err hf_engine_finish(struct hf_engine *engine, hf_time now,
                             bool after_timeout,
                             struct hf_engine_update *update);

/* ---- engine_receive.c ---------------------------------------------------*/

enum hf_err hf_engine_receive(struct hf_engine *engine,
                              const struct hf_engine_event *event,
                              struct hf_engine_update *update);

/* Begin to install a snapshot that has arrived, or reject its sender if that
 * leads in an older term. Returns the errors of hf_engine_step(). */
enum hf_err hf_engine_receive_snapshot(struct hf_engine *engine,
                                       const struct hf_engine_event *event,
                                       struct hf_engine_update *update);

/* If the log is durable, act as if engine->lost_leader had asked this node to
 * stand for election. Does nothing if that node no longer leads. */
enum hf_err hf_engine_replace_leader(struct hf_engine *engine, hf_time now,
                                     struct hf_engine_update *update);

/* Decode the bytes of membership.h. The caller owns `*conf`, and usually passes
 * it on to the library. Returns HF_EINVAL if the bytes are malformed, or
 * HF_ENOMEM. */
enum hf_err hf_engine_decode_membership(struct hf_bytes bytes,
                                        struct raft_configuration *conf);

/* Convert `entries` to engine->library_entries, which point to the same data.
 * If `keep`, also copy them to engine->arriving, so that a step can append them
 * to the log. Returns HF_ENOMEM if memory is exhausted. */
enum hf_err hf_engine_prepare_entries(struct hf_engine *engine,
                                      const struct hf_entry *entries,
                                      size_t count, bool keep);

#endif
