#include "strategy/local.h"

#include <stdlib.h>
#include <string.h>

/* ---- Commands -----------------------------------------------------------*/

/* In line: nobody but those who wait looks at the clock, so each looks when
 * the lease ends, the first on time and the others a little later in turn. */
static uint32_t look_again(const struct hf_store *store,
                           const struct hf_hold *hold, uint32_t place)
{
    uint32_t turn = place < 4 ? (place - 1) * 10 : 30;

    return hf_time_left(hf_store_end(store, hold), store->now) + turn;
}

/* A command that was asked before touches nothing: then a grant is as old as
 * it is, and from when a renewal counts is for the client to say. */
void hf_local_tell_time(const struct hf_store *store,
                        struct hf_request *request)
{
    const struct hf_command *command = &request->command;
    struct hf_answer *answer = &request->answer;
    const struct hf_hold *hold = store->touched;
    bool again = !hold;

    if (command->kind != HF_COMMAND_LOCK && command->kind != HF_COMMAND_RENEW)
        return;
    if (again && command->kind == HF_COMMAND_LOCK)
        hold = hf_table_find(&store->table, command->key);
    if (!hold)
        return;
    if (answer->result.place > 0)
        answer->look_again_ms = look_again(store, hold, answer->result.place);
    else if (answer->result.err == HF_OK && hold->token == answer->result.token)
        answer->anchor = (struct hf_anchor){.known = true, .sent = hold->since};
    else if (answer->result.err == HF_OK && !again)
        answer->anchor = (struct hf_anchor){.known = true, .sent = store->now};
}

/* ---- Looking ------------------------------------------------------------*/

/* The note is bytes in the table and text outside. */
static enum hf_err copy_info(const struct hf_store *store, hf_time now,
                             const struct hf_hold *hold, struct hf_info *info)
{
    struct hf_bytes bytes = hf_hold_note(hold);
    char note[HF_NOTE_MAX + 1];
    struct hf_info from = {
        .key = hf_hold_key(hold),
        .held = true,
        .forced = hold->forced,
        .token = hold->token,
        .held_ms = hf_time_left(now, hold->since),
        .left_ms = hf_time_left(hf_store_end(store, hold), now),
        .waiters = hold->waiters,
        .value = hf_hold_value(hold),
        .owner = hold->session->label,
        .note = note,
        .index = store->table.index,
    };

    hf_copy(note, bytes.data, bytes.size);
    note[bytes.size] = '\0';
    return hf_info_copy(info, &from);
}

void hf_local_read(const struct hf_store *store, hf_time now,
                   struct hf_request *request)
{
    struct hf_answer *answer = &request->answer;
    struct hf_key key = request->command.key;
    const struct hf_hold *hold = hf_table_find(&store->table, key);
    struct hf_info none = {
        .key = key,
        .owner = "",
        .note = "",
        .index = store->table.index,
    };
    enum hf_err err;

    answer->infos = calloc(1, sizeof(*answer->infos));
    if (!answer->infos)
        err = HF_ENOMEM;
    else if (hold)
        err = copy_info(store, now, hold, answer->infos);
    else
        err = hf_info_copy(answer->infos, &none);
    answer->count = err ? 0 : 1;
    answer->result.err = err;
}

void hf_local_list(const struct hf_store *store, hf_time now,
                   struct hf_request *request)
{
    struct hf_answer *answer = &request->answer;
    struct hf_key prefix = request->command.key;
    struct hf_hold *hold = NULL;
    size_t matches = 0;
    enum hf_err err = HF_OK;

    while ((hold = hf_table_next(&store->table, hold)))
        matches += hf_key_has_prefix(hf_hold_key(hold), prefix);
    if (matches > HF_LIST_MAX) {
        answer->result.err = HF_ELIMIT;
        return;
    }
    answer->infos = calloc(matches + 1, sizeof(*answer->infos));
    if (!answer->infos)
        err = HF_ENOMEM;
    while (!err && (hold = hf_table_next(&store->table, hold))) {
        if (!hf_key_has_prefix(hf_hold_key(hold), prefix))
            continue;
        err = copy_info(store, now, hold, &answer->infos[answer->count]);
        answer->count += !err;
    }
    answer->result.err = err;
}

/* ---- Watching -----------------------------------------------------------*/

/* One watch of one client: the prefix follows. */
struct watch {
    struct hf_list link;
    uint64_t number;
    struct hf_cursor cursor;
    size_t size;
    uint8_t prefix[];
};

static struct watch *watch_of(struct hf_list *link)
{
    return HF_CONTAINER(link, struct watch, link);
}

static struct watch *find(const struct hf_list *watches, uint64_t number)
{
    for (struct hf_list *link = watches->next; link != watches;
         link = link->next) {
        if (watch_of(link)->number == number)
            return watch_of(link);
    }
    return NULL;
}

enum hf_err hf_local_watch(struct hf_store *store, struct hf_list *watches,
                           const struct hf_request *request)
{
    struct hf_key prefix = request->command.key;
    uint64_t next = store->table.index + 1;
    struct watch *watch;

    if (find(watches, request->watch))
        return HF_OK;
    watch = malloc(sizeof(*watch) + prefix.size);
    if (!watch)
        return HF_ENOMEM;
    if (hf_store_keep_history(store)) {
        free(watch);
        return HF_ENOMEM;
    }
    *watch = (struct watch){.number = request->watch, .size = prefix.size};
    hf_copy(watch->prefix, prefix.data, prefix.size);
    watch->cursor =
        hf_history_from(&store->history, request->from ? request->from : next);
    hf_list_push_back(watches, &watch->link);
    return HF_OK;
}

static void end(struct watch *watch)
{
    hf_list_remove(&watch->link);
    free(watch);
}

void hf_local_unwatch(struct hf_list *watches, uint64_t number)
{
    struct watch *watch = find(watches, number);

    if (watch)
        end(watch);
}

void hf_local_unwatch_all(struct hf_list *watches)
{
    struct hf_list *link;

    while ((link = hf_list_take(watches)))
        end(watch_of(link));
}

enum hf_err hf_local_rewatch(struct hf_store *store, struct hf_list *watches)
{
    enum hf_err err = hf_store_keep_history(store);

    for (struct hf_list *link = watches->next; !err && link != watches;
         link = link->next)
        watch_of(link)->cursor =
            hf_history_from(&store->history, watch_of(link)->cursor.index);
    return err;
}

static bool read_watch(const struct hf_store *store, struct watch *watch,
                       struct hf_local_event *read)
{
    struct hf_key prefix = {watch->prefix, watch->size};
    struct hf_event *event = &read->push.event;

    while (hf_history_read(&store->history, &watch->cursor, event)) {
        if (event->kind != HF_EVENT_DROPPED &&
            !hf_key_has_prefix(event->key, prefix))
            continue;
        read->push.watch = watch->number;
        hf_copy(read->owner, event->owner, strlen(event->owner) + 1);
        hf_copy(read->key, event->key.data, event->key.size);
        event->owner = read->owner;
        event->key.data = read->key;
        return true;
    }
    return false;
}

bool hf_local_next_event(const struct hf_store *store, struct hf_list *watches,
                         struct hf_local_event *event)
{
    for (struct hf_list *link = watches->next; link != watches;
         link = link->next) {
        if (read_watch(store, watch_of(link), event))
            return true;
    }
    return false;
}

bool hf_local_next_grant(struct hf_store *store, uint64_t session,
                         struct hf_push_grant *push)
{
    struct hf_grant grant;

    if (!hf_table_take_grant(&store->table,
                             hf_table_session(&store->table, session), &grant))
        return false;
    *push = (struct hf_push_grant){
        .nonce = grant.nonce,
        .token = grant.token,
        .generation = grant.generation,
        .anchor = {.known = true, .sent = grant.hold->since},
    };
    return true;
}
