#include "lib/pair.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "core/snapshot.h"

static void on_event(void *arg, const struct hf_table_event *event)
{
    hf_twin_events_add(arg, event);
}

void hf_pair_init(struct hf_pair *pair)
{
    *pair = (struct hf_pair){
        .twin = hf_twin_new(),
        .seed = {"sixteen bytes!!"},
    };
    hf_table_init(&pair->table, &pair->seed, on_event, &pair->actual);
}

void hf_pair_fini(struct hf_pair *pair)
{
    hf_table_fini(&pair->table);
    hf_twin_free(pair->twin);
    hf_twin_events_fini(&pair->actual);
    hf_twin_events_fini(&pair->expected);
}

const char *hf_pair_apply(struct hf_pair *pair,
                          const struct hf_command *command,
                          struct hf_result *result)
{
    struct hf_result expected;
    const char *difference;

    pair->actual.count = 0;
    pair->expected.count = 0;
    if (hf_table_apply(&pair->table, command, result))
        return "out of memory";
    hf_twin_apply(pair->twin, command, &expected, &pair->expected);
    difference = hf_twin_compare_results(result, &expected);
    if (!difference)
        difference = hf_twin_compare_events(&pair->actual, &pair->expected);
    return difference;
}

const char *hf_pair_check(const struct hf_pair *pair)
{
    const char *difference = hf_table_check(&pair->table);

    return difference ? difference : hf_twin_compare(pair->twin, &pair->table);
}

const char *hf_pair_restore(struct hf_pair *pair)
{
    struct hf_buf buf = {0}, again = {0};
    const char *difference = NULL;

    hf_snapshot_encode(&pair->table, &buf);
    hf_table_fini(&pair->table);
    pair->seed.bytes[0]++;
    hf_table_init(&pair->table, &pair->seed, on_event, &pair->actual);
    if (hf_snapshot_decode(&pair->table, buf.data, buf.size))
        difference = "a snapshot cannot be decoded";
    hf_snapshot_encode(&pair->table, &again);
    if (!difference &&
        (buf.size != again.size || memcmp(buf.data, again.data, buf.size) != 0))
        difference = "a restored table is encoded to other bytes";
    hf_buf_fini(&buf);
    hf_buf_fini(&again);
    return difference ? difference : hf_pair_check(pair);
}

/* ---- Random commands ----------------------------------------------------*/

static uint8_t draw(struct hf_reader *bytes, uint8_t bound)
{
    return (uint8_t)(hf_reader_u8(bytes) % bound);
}

static struct hf_key draw_key(struct hf_reader *bytes)
{
    static const struct hf_key keys[] = {
        {"a", 1}, {"a\0", 2}, {"ab", 2}, {"b", 1}};

    return keys[draw(bytes, 4)];
}

static struct hf_bytes draw_bytes(struct hf_reader *bytes)
{
    static const char text[] = "0123456789abcdef0123456789abcdef";
    uint8_t size = draw(bytes, 5);

    return (struct hf_bytes){text + size, size == 4 ? 20 : size};
}

static uint32_t draw_lease(struct hf_reader *bytes)
{
    static const uint32_t leases[] = {1000, 500, 2000, 1, HF_LEASE_MAX_MS};

    return leases[draw(bytes, 5)];
}

/* Draw a nonce, a token and a generation for `command->key`: mostly those of
 * the holder, sometimes another nonce, or a number that is off by one. If the
 * key is free, use the newest token. */
static void draw_claim(const struct hf_table *table, struct hf_command *command,
                       struct hf_reader *bytes)
{
    const struct hf_hold *hold = hf_table_find(table, command->key);
    uint8_t choice = draw(bytes, 16);

    command->nonce.bytes[0] = choice;
    command->token = table->token;
    if (!hold)
        return;
    command->token = hold->token;
    command->generation = hold->generation;
    if (choice > 5)
        command->nonce = hold->nonce;
    if (choice == 13)
        command->token++;
    if (choice == 14)
        command->token--;
    if (choice == 15)
        command->generation++;
}

/* Draw a sequence number: the next one, with all earlier ones settled or not; a
 * repeat; a gap; the edges of the window and of the number range. */
static void draw_sequence(const struct hf_session *session,
                          struct hf_command *command, struct hf_reader *bytes)
{
    uint8_t choice = draw(bytes, 20);
    uint64_t next = session->highest + 1;

    command->sequence = next;
    command->done = session->done;
    if (choice < 4)
        command->done = next;
    else if (choice < 8)
        command->done = next - draw(bytes, 8);
    else if (choice < 12)
        command->sequence -= draw(bytes, 8);
    else if (choice < 15)
        command->sequence += draw(bytes, 8);
    else if (choice == 15)
        command->done = next + 1;
    else if (choice == 16)
        command->sequence = session->done + HF_WINDOW_MAX - draw(bytes, 3);
    else if (choice == 17)
        command->sequence = draw(bytes, 3);
    else if (choice == 18)
        command->done = command->sequence =
            next + UINT64_C(100) * draw(bytes, 255);
    else if (draw(bytes, 16) == 0)
        command->done = command->sequence = UINT64_MAX - draw(bytes, 4);
}

static void draw_session(const struct hf_table *table,
                         struct hf_command *command, struct hf_reader *bytes)
{
    uint8_t back = draw(bytes, 5);
    const struct hf_session *session;

    command->session = table->last_session - back;
    if (command->session > table->last_session)
        command->session = 0;
    session = hf_table_find_session(table, command->session);
    if (session)
        draw_sequence(session, command, bytes);
}

/* Draw a secret: mostly a new one, sometimes that of a recent session. */
static void draw_secret(const struct hf_table *table,
                        struct hf_command *command, struct hf_reader *bytes)
{
    uint64_t number = table->last_session + 1;
    uint8_t back = draw(bytes, 32);

    if (back < 5 && back < number)
        number -= back;
    memcpy(command->nonce.bytes, &number, sizeof(number));
}

void hf_pair_draw(const struct hf_table *table, struct hf_command *command,
                  struct hf_reader *bytes)
{
    static const enum hf_command_kind kinds[] = {
        HF_COMMAND_LOCK,   HF_COMMAND_LOCK,   HF_COMMAND_LOCK,
        HF_COMMAND_LOCK,   HF_COMMAND_LOCK,   HF_COMMAND_LOCK,
        HF_COMMAND_UNLOCK, HF_COMMAND_UNLOCK, HF_COMMAND_RENEW,
        HF_COMMAND_UPDATE, HF_COMMAND_EXPIRE, HF_COMMAND_EXPIRE,
        HF_COMMAND_CANCEL, HF_COMMAND_CANCEL, HF_COMMAND_FORCE,
        HF_COMMAND_OPEN,   HF_COMMAND_CLOSE,  HF_COMMAND_VERSION,
    };

    *command = (struct hf_command){.kind = HF_COMMAND_OPEN};
    if (table->last_session == 0)
        return;
    command->kind = kinds[draw(bytes, 18)];
    if (command->kind == HF_COMMAND_OPEN) {
        command->note = draw_bytes(bytes);
        draw_secret(table, command, bytes);
        return;
    }
    if (command->kind == HF_COMMAND_VERSION) {
        command->version =
            (uint8_t)(HF_VERSION_FIRST +
                      draw(bytes, HF_VERSION_NEWEST - HF_VERSION_FIRST + 1));
        return;
    }
    if (command->kind != HF_COMMAND_EXPIRE)
        draw_session(table, command, bytes);
    if (command->kind == HF_COMMAND_CLOSE)
        return;
    command->key = draw_key(bytes);
    draw_claim(table, command, bytes);
    if (command->kind == HF_COMMAND_LOCK) {
        command->queue = draw(bytes, 8) > 0;
        command->nonce = (struct hf_nonce){{draw(bytes, 8)}};
        command->note = draw_bytes(bytes);
    }
    command->lease_ms = draw_lease(bytes);
    command->value = draw_bytes(bytes);
    if (command->kind == HF_COMMAND_UPDATE && draw(bytes, 2)) {
        command->has_expected = true;
        command->expected = draw_bytes(bytes);
    }
    if (command->kind == HF_COMMAND_FORCE)
        command->now = draw(bytes, 2);
}

const char *hf_pair_step(struct hf_pair *pair, struct hf_reader *bytes)
{
    uint8_t choice = draw(bytes, 64);
    struct hf_command command;
    struct hf_result result;

    if (choice == 63)
        return hf_pair_restore(pair);
    hf_pair_draw(&pair->table, &command, bytes);
    return hf_pair_apply(pair, &command, &result);
}
