#include "core/snapshot.h"

#include <stdio.h>

#include "base/limits.h"
#include "lib/alloc.h"
#include "lib/commands.h"
#include "lib/pair.h"
#include "lib/runner.h"

static const struct hf_seed seed = {"another secret!!"};
static const struct hf_seed zero;

static void no_event(void *arg, const struct hf_table_event *event)
{
    (void)arg;
    (void)event;
}

static struct hf_result act(struct hf_pair *pair, struct hf_command command,
                            uint64_t sequence)
{
    struct hf_result result;

    command.sequence = sequence;
    assert_null(hf_pair_apply(pair, &command, &result));
    return result;
}

static struct hf_command with_data(struct hf_command command)
{
    command.value = hf_bytes_of("val");
    command.note = hf_bytes_of("nb");
    return command;
}

/* A table with everything that a snapshot can contain: an idle session, one
 * with a lock, waiters and kept results, and a closed one that still holds
 * locks; values and notes; a lock that was renewed and forced. */
static void make_table(struct hf_pair *pair)
{
    hf_pair_init(pair);
    act(pair, hf_test_open("alice"), 0);
    act(pair, hf_test_open("bob"), 0);
    act(pair, hf_test_open(""), 0);
    act(pair, with_data(hf_test_lock(1, "a", 1)), 1);
    act(pair, hf_test_lock(1, "b", 2), 2);
    act(pair, hf_test_lock(1, "c", 3), 3);
    act(pair, hf_test_renew(1, "a", 1, 1, 2000), 4);
    act(pair, hf_test_force(1, "a", 1, false), 5);
    act(pair, with_data(hf_test_lock(2, "b", 4)), 1);
    act(pair, hf_test_lock(2, "b", 5), 2);
    act(pair, with_data(hf_test_lock(2, "a", 6)), 3);
    act(pair, hf_test_lock(2, "a", 7), 4);
    act(pair, hf_test_lock(2, "a", 8), 5);
    act(pair, hf_test_cancel(2, "a", 7), 6);
    act(pair, hf_test_update(1, "c", 3, 3, "x"), 6);
    act(pair, hf_test_unlock(1, "b", 2, 2), 7);
    act(pair, hf_test_close(1), UINT64_MAX);
}

static struct hf_buf encode(const struct hf_table *table)
{
    struct hf_buf buf = {0};

    hf_snapshot_encode(table, &buf);
    assert_true(buf.size <= hf_snapshot_size_max(table));
    assert_false(buf.failed);
    return buf;
}

static enum hf_err decode(struct hf_table *table, const uint8_t *data,
                          size_t size)
{
    hf_table_init(table, &seed, no_event, NULL);
    return hf_snapshot_decode(table, data, size);
}

static void assert_empty(const struct hf_table *table)
{
    assert_true(table->token == 0 && table->last_session == 0 &&
                table->index == 0);
    assert_int_equal(
        table->holds.count + table->sessions.count + table->waiting.count, 0);
    assert_memory_equal(&table->seed, &seed, sizeof(seed));
    assert_true(table->event == no_event);
}

/* Check that the snapshot is rejected, and that the table stays empty. */
static void assert_rejected(const uint8_t *data, size_t size)
{
    struct hf_table table;

    assert_int_equal(decode(&table, data, size), HF_EPROTO);
    assert_empty(&table);
    hf_table_fini(&table);
}

static void fix_checksum(struct hf_buf *buf)
{
    uint64_t sum = hf_siphash(&zero, buf->data, buf->size - 8);

    buf->size -= 8;
    hf_buf_u64(buf, sum);
}

/* MS-05 */
static void table_survives_a_round_trip(void **state)
{
    struct hf_pair pair;

    (void)state;
    make_table(&pair);
    assert_true(hf_table_find_session(&pair.table, 1)->ended);
    assert_null(hf_pair_check(&pair));
    assert_null(hf_pair_restore(&pair));
    assert_null(hf_pair_restore(&pair));
    hf_pair_fini(&pair);
}

static void restored_table_behaves_as_before(void **state)
{
    struct hf_pair pair;
    uint64_t token;

    (void)state;
    make_table(&pair);
    assert_null(hf_pair_restore(&pair));
    token = pair.table.token;

    /* Repeated commands get their kept results, and a grant overwrites the
     * result of its LOCK. */
    assert_true(act(&pair, hf_test_lock(2, "b", 4), 1).token == 4);
    assert_int_equal(act(&pair, hf_test_lock(2, "a", 6), 3).position, 1);
    act(&pair, hf_test_expire("a", 1, 1), 0);
    assert_true(act(&pair, hf_test_lock(2, "a", 6), 3).token == token + 1);
    act(&pair, hf_test_expire("c", 3, 0), 0);
    assert_null(hf_table_find_session(&pair.table, 1));
    act(&pair, hf_test_lock(2, "c", 9), 10);
    assert_true(act(&pair, hf_test_open("new"), 0).session == 4);
    assert_null(hf_pair_check(&pair));
    hf_pair_fini(&pair);
}

/* A replica that was restored from a snapshot must return the same positions as
 * one that applied all commands. */
static void positions_are_the_same_after_a_restore(void **state)
{
    struct hf_pair pair;
    uint32_t before;

    (void)state;
    make_table(&pair);
    for (unsigned i = 0; i < 5; i++)
        act(&pair, hf_test_lock(3, "a", 20 + i), 1 + i);
    for (unsigned i = 0; i < 3; i++)
        act(&pair, hf_test_cancel(3, "a", 20 + i), 10 + i);
    before = act(&pair, hf_test_lock(3, "a", 23), 20).position;
    assert_null(hf_pair_restore(&pair));
    assert_int_equal(act(&pair, hf_test_lock(3, "a", 23), 21).position, before);
    hf_pair_fini(&pair);
}

#define KEYS 20

static struct hf_key key_number(unsigned number)
{
    static char names[KEYS][8];

    (void)snprintf(names[number], sizeof(names[0]), "k%u", number);
    return hf_key_of(names[number]);
}

/* Session 1 holds all keys. Session 2 waits for them, in reverse order, and has
 * repeated the LOCKs of the first three keys. */
static void make_waiters(struct hf_pair *pair)
{
    struct hf_command holder = hf_test_open("holder");
    struct hf_command waiter = hf_test_open("waiter");
    uint64_t sequence = 1;

    holder.nonce = hf_test_nonce(1);
    waiter.nonce = hf_test_nonce(2);
    act(pair, holder, 0);
    act(pair, waiter, 0);
    for (unsigned i = 0; i < KEYS; i++)
        act(pair, hf_test_lock(1, key_number(i).data, i), 1 + i);
    for (unsigned i = KEYS; i-- > 0;)
        act(pair, hf_test_lock(2, key_number(i).data, 100 + i), sequence++);
    for (unsigned i = 0; i < 3; i++)
        act(pair, hf_test_lock(2, key_number(i).data, 100 + i), sequence++);
}

static void expect_withdrawn(const struct hf_twin_events *events)
{
    assert_int_equal(events->count, KEYS);
    for (unsigned i = 0; i < KEYS; i++) {
        unsigned number = i < KEYS - 3 ? KEYS - 1 - i : i - (KEYS - 3);
        const struct hf_twin_event *event = &events->list[i];

        assert_int_equal(event->kind, HF_EVENT_WITHDRAWN);
        assert_true(hf_key_equal((struct hf_key){event->key, event->key_size},
                                 key_number(number)));
    }
}

static void events_have_the_same_order_after_a_restore(void **state)
{
    (void)state;
    for (unsigned restores = 0; restores < 3; restores++) {
        struct hf_pair pair;

        hf_pair_init(&pair);
        make_waiters(&pair);
        for (unsigned i = 0; i < restores; i++)
            assert_null(hf_pair_restore(&pair));
        act(&pair, hf_test_close(2), UINT64_MAX);
        expect_withdrawn(&pair.actual);
        hf_pair_fini(&pair);
    }
}

static void equal_tables_have_equal_snapshots(void **state)
{
    struct hf_pair one, other;
    struct hf_buf a, b;

    (void)state;
    hf_pair_init(&one);
    hf_pair_init(&other);
    assert_null(hf_pair_restore(&other)); /* changes the seed */
    make_waiters(&one);
    make_waiters(&other);
    a = encode(&one.table);
    b = encode(&other.table);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    hf_buf_fini(&a);
    hf_buf_fini(&b);
    hf_pair_fini(&one);
    hf_pair_fini(&other);
}

static void empty_table_survives_a_round_trip(void **state)
{
    struct hf_pair pair;

    (void)state;
    hf_pair_init(&pair);
    assert_null(hf_pair_restore(&pair));
    hf_pair_fini(&pair);
}

/* A session with a full window keeps HF_WINDOW_MAX results, the most that a
 * snapshot may contain for a session. */
static void full_window_survives_a_round_trip(void **state)
{
    struct hf_pair pair;

    (void)state;
    hf_pair_init(&pair);
    act(&pair, hf_test_open("alice"), 0);
    for (uint64_t i = 0; i < HF_WINDOW_MAX; i++) {
        struct hf_command command = hf_test_cancel(1, "k", (unsigned)i);
        struct hf_result result;

        command.done = UINT64_MAX - HF_WINDOW_MAX + 1;
        command.sequence = command.done + i;
        assert_null(hf_pair_apply(&pair, &command, &result));
    }
    assert_null(hf_pair_restore(&pair));
    hf_pair_fini(&pair);
}

static void settled_session_survives_a_round_trip(void **state)
{
    struct hf_command command = hf_test_cancel(1, "k", 1);
    struct hf_result result;
    struct hf_pair pair;

    (void)state;
    hf_pair_init(&pair);
    act(&pair, hf_test_open("alice"), 0);
    act(&pair, command, 3);
    command.sequence = 3;
    command.done = 9;
    assert_null(hf_pair_apply(&pair, &command, &result));
    assert_null(hf_pair_restore(&pair));
    assert_int_equal(act(&pair, command, 8).err, HF_ECANCELED);
    hf_pair_fini(&pair);
}

/* A caller can write a header before the snapshot, so the encoder must append
 * to the buffer. */
static void snapshot_is_appended_to_the_buffer(void **state)
{
    struct hf_buf buf = {0};
    struct hf_table table;
    struct hf_pair pair;

    (void)state;
    make_table(&pair);
    hf_buf_u32(&buf, 7);
    hf_snapshot_encode(&pair.table, &buf);
    assert_int_equal(decode(&table, buf.data + 4, buf.size - 4), HF_OK);
    hf_table_fini(&table);
    hf_buf_fini(&buf);
    hf_pair_fini(&pair);
}

static void truncated_snapshots_are_rejected(void **state)
{
    struct hf_pair pair;
    struct hf_buf buf;

    (void)state;
    make_table(&pair);
    buf = encode(&pair.table);
    for (size_t size = 0; size < buf.size; size++)
        assert_rejected(buf.data, size);
    hf_buf_u8(&buf, 0);
    assert_rejected(buf.data, buf.size);
    hf_buf_fini(&buf);
    hf_pair_fini(&pair);
}

static void truncated_snapshots_with_a_valid_checksum_are_rejected(void **state)
{
    struct hf_pair pair;
    struct hf_buf buf;

    (void)state;
    make_table(&pair);
    buf = encode(&pair.table);
    for (size_t size = buf.size - 1; size >= 8; size--) {
        buf.size = size;
        fix_checksum(&buf);
        assert_rejected(buf.data, size);
    }
    hf_buf_fini(&buf);

    buf = encode(&pair.table);
    hf_buf_u8(&buf, 0);
    fix_checksum(&buf);
    assert_rejected(buf.data, buf.size);
    hf_buf_fini(&buf);
    hf_pair_fini(&pair);
}

static void corrupt_snapshots_are_rejected(void **state)
{
    struct hf_pair pair;
    struct hf_buf buf;

    (void)state;
    make_table(&pair);
    buf = encode(&pair.table);
    for (size_t i = 0; i < buf.size; i++) {
        for (int flip = 1; flip < 256; flip += flip < 16 ? 1 : 13) {
            buf.data[i] ^= (uint8_t)flip;
            assert_rejected(buf.data, buf.size);
            buf.data[i] ^= (uint8_t)flip;
        }
    }
    hf_buf_fini(&buf);
    hf_pair_fini(&pair);
}

/* If a forged snapshot is accepted, its table must pass all checks. */
static void forged_snapshots_are_rejected_or_valid(void **state)
{
    struct hf_pair pair;
    struct hf_buf buf;

    (void)state;
    make_table(&pair);
    buf = encode(&pair.table);
    for (size_t i = 0; i + 8 < buf.size; i++) {
        for (int flip = 1; flip < 256; flip += flip < 16 ? 1 : 13) {
            struct hf_table table;

            buf.data[i] ^= (uint8_t)flip;
            fix_checksum(&buf);
            if (decode(&table, buf.data, buf.size))
                assert_empty(&table);
            else
                assert_null(hf_table_check(&table));
            hf_table_fini(&table);
            buf.data[i] ^= (uint8_t)flip;
        }
    }
    hf_buf_fini(&buf);
    hf_pair_fini(&pair);
}

static void failed_restore_leaves_an_empty_table(void **state)
{
    struct hf_pair pair;
    struct hf_buf buf;
    enum hf_err err = HF_ENOMEM;
    unsigned refusals = 0;

    (void)state;
    make_table(&pair);
    buf = encode(&pair.table);
    for (unsigned long nth = 1; err; nth++) {
        long blocks = hf_alloc_blocks();
        struct hf_table table;

        hf_alloc_fail(nth, 1);
        err = decode(&table, buf.data, buf.size);
        assert_int_equal(hf_alloc_failed(), err != HF_OK);
        if (err) {
            assert_int_equal(err, HF_ENOMEM);
            assert_empty(&table);
            assert_int_equal(hf_alloc_blocks(), blocks);
            refusals++;
        }
        hf_table_fini(&table);
    }
    assert_true(refusals > 12);
    hf_buf_fini(&buf);

    hf_alloc_fail(1, 1);
    hf_snapshot_encode(&pair.table, &buf);
    assert_true(buf.failed);
    hf_buf_fini(&buf);
    hf_pair_fini(&pair);
}

/* ---- Forged snapshots, one wrong number each ----------------------------*/

/* The numbers of a snapshot with one session and two holds. */
struct forgery {
    uint32_t magic;
    uint8_t version;
    uint64_t token, last_session, index;
    uint32_t session_count;
    uint64_t session;
    uint8_t ended;
    unsigned secret;
    unsigned extra_secret; /* of an extra session, the first one; 0: none */
    uint64_t done, highest;
    uint32_t label_size;
    uint32_t kept_count; /* written to the snapshot; at most 2 results follow */
    uint64_t kept_sequence;
    uint8_t kept_kind;
    unsigned kept_nonce;
    uint8_t kept_err;
    uint32_t hold_count;
    uint64_t holds_written;
    uint32_t key_size;
    bool same_key;
    uint64_t holder_session;
    uint32_t lease_ms;
    uint64_t hold_token;
    uint64_t second_token;
    uint8_t forced;
    uint32_t waiter_count;
    uint64_t waiters_written;
    uint64_t waiter_session;
    unsigned waiter_nonce;
    uint32_t waiter_lease_ms;
    uint64_t waiter_sequence;
    uint64_t ahead; /* `ahead` of the first waiter (snapshot.c) */
    uint64_t gap;   /* difference to the `ahead` of the second waiter */
    bool same_waiter;
};

static const struct forgery valid_snapshot = {
    .magic = 0x54464821,
    .version = HF_VERSION_NEWEST,
    .token = 9,
    .last_session = 5,
    .index = 20,
    .session_count = 1,
    .session = 5,
    .secret = 70,
    .done = 2,
    .highest = 4,
    .label_size = 2,
    .kept_count = 1,
    .kept_sequence = 3,
    .kept_kind = HF_COMMAND_LOCK,
    .kept_nonce = 50,
    .kept_err = 3,
    .hold_count = 2,
    .holds_written = 2,
    .key_size = 3,
    .holder_session = 5,
    .lease_ms = 1000,
    .hold_token = 8,
    .second_token = 9,
    .forced = 1,
    .waiter_count = 2,
    .waiters_written = 2,
    .waiter_session = 5,
    .waiter_nonce = 50,
    .waiter_lease_ms = 1000,
    .waiter_sequence = 3,
    .gap = 1,
};

static void put_claim(struct hf_buf *buf, uint64_t session, unsigned nonce,
                      uint32_t lease_ms)
{
    struct hf_nonce bytes = hf_test_nonce(nonce);

    hf_buf_u64(buf, session);
    hf_buf_raw(buf, bytes.bytes, sizeof(bytes.bytes));
    hf_buf_u32(buf, lease_ms);
    hf_buf_bytes(buf, "v", 1);
    hf_buf_bytes(buf, "n", 1);
}

static void put_filler(struct hf_buf *buf, uint32_t size, uint8_t byte)
{
    hf_buf_u32(buf, size);
    for (uint32_t i = 0; i < size; i++)
        hf_buf_u8(buf, byte);
}

static void put_nonce(struct hf_buf *buf, unsigned number)
{
    struct hf_nonce nonce = hf_test_nonce(number);

    hf_buf_raw(buf, nonce.bytes, sizeof(nonce.bytes));
}

static void put_extra_session(struct hf_buf *buf, unsigned secret)
{
    hf_buf_u64(buf, 3);
    hf_buf_u8(buf, 0);
    put_nonce(buf, secret);
    hf_buf_u64(buf, 0);
    hf_buf_u64(buf, 0);
    hf_buf_u32(buf, 0);
    hf_buf_u32(buf, 0);
}

static void put_session(struct hf_buf *buf, const struct forgery *x)
{
    hf_buf_u64(buf, x->session);
    hf_buf_u8(buf, x->ended);
    put_nonce(buf, x->secret);
    hf_buf_u64(buf, x->done);
    hf_buf_u64(buf, x->highest);
    put_filler(buf, x->label_size, 'x');
    hf_buf_u32(buf, x->kept_count);
    for (uint32_t i = 0; i < x->kept_count && i < 2; i++) {
        hf_buf_u64(buf, x->kept_sequence);
        hf_buf_u8(buf, x->kept_kind);
        put_nonce(buf, x->kept_nonce);
        hf_buf_u8(buf, x->kept_err);
        hf_buf_u32(buf, 1);
        hf_buf_u32(buf, 0);
        hf_buf_u64(buf, 0);
        hf_buf_u64(buf, 0);
    }
}

/* Only the first hold has waiters and is forced. */
static void put_hold(struct hf_buf *buf, const struct forgery *x, bool first)
{
    put_filler(buf, x->key_size, first || x->same_key ? 'a' : 'b');
    put_claim(buf, x->holder_session, 1, x->lease_ms);
    hf_buf_u64(buf, first ? x->hold_token : x->second_token);
    hf_buf_u32(buf, 0);
    hf_buf_u8(buf, first ? x->forced : 0);
    hf_buf_u32(buf, first ? x->waiter_count : 0);
    for (unsigned i = 0; first && i < x->waiters_written; i++) {
        put_claim(buf, x->waiter_session,
                  x->waiter_nonce + (x->same_waiter ? 0 : i),
                  x->waiter_lease_ms);
        hf_buf_u64(buf, i == 0 ? x->waiter_sequence : 4);
        hf_buf_u64(buf, x->ahead + i * x->gap);
    }
}

static struct hf_buf forge(const struct forgery *x)
{
    struct hf_buf buf = {0};

    hf_buf_u32(&buf, x->magic);
    hf_buf_u8(&buf, x->version);
    hf_buf_u64(&buf, x->token);
    hf_buf_u64(&buf, x->last_session);
    hf_buf_u64(&buf, x->index);
    hf_buf_u32(&buf, x->session_count);
    if (x->extra_secret)
        put_extra_session(&buf, x->extra_secret);
    for (uint32_t i = x->extra_secret ? 1 : 0; i < x->session_count && i < 2;
         i++)
        put_session(&buf, x);
    hf_buf_u32(&buf, x->hold_count);
    for (uint64_t i = 0; i < x->holds_written; i++)
        put_hold(&buf, x, i == 0);
    hf_buf_u64(&buf, 0);
    fix_checksum(&buf);
    return buf;
}

static enum hf_err decode_forgery(const struct forgery *x)
{
    struct hf_buf buf = forge(x);
    struct hf_table table;
    enum hf_err err = decode(&table, buf.data, buf.size);

    if (err)
        assert_empty(&table);
    else
        assert_null(hf_table_check(&table));
    hf_table_fini(&table);
    hf_buf_fini(&buf);
    return err;
}

#define EXPECT(expected, ...)                                                  \
    do {                                                                       \
        struct forgery x = valid_snapshot;                                     \
                                                                               \
        __VA_ARGS__;                                                           \
        assert_int_equal(decode_forgery(&x), expected);                        \
    } while (0)

static void inconsistent_numbers_are_rejected(void **state)
{
    (void)state;
    EXPECT(HF_OK, (void)x);
    EXPECT(HF_EPROTO, x.magic++);
    EXPECT(HF_EPROTO, x.version = 0);
    EXPECT(HF_EUNSUPPORTED, x.version++);
    EXPECT(HF_EUNSUPPORTED, x.version = UINT8_MAX);
    EXPECT(HF_EPROTO, x.token = 7);
    EXPECT(HF_EPROTO, x.token = UINT64_MAX);
    EXPECT(HF_OK, x.token = UINT64_MAX / 2);
    EXPECT(HF_EPROTO, x.token = UINT64_MAX / 2 + 1);
    EXPECT(HF_EPROTO, x.last_session = 4);
    EXPECT(HF_EPROTO, x.last_session = UINT64_MAX / 2 + 1);
    EXPECT(HF_EPROTO, x.index = UINT64_MAX / 2 + 1);
    EXPECT(HF_EPROTO, x.session_count = 0);
    EXPECT(HF_EPROTO, x.session_count = 2);
    EXPECT(HF_EPROTO, x.session_count = HF_SESSIONS_MAX + 1);
    EXPECT(HF_EPROTO, x.hold_count = 3);
    EXPECT(HF_EPROTO, x.hold_count = 1);
    EXPECT(HF_EPROTO, x.hold_count = HF_HOLDS_MAX + 1);
}

static void inconsistent_sessions_are_rejected(void **state)
{
    (void)state;
    EXPECT(HF_EPROTO, x.session = x.holder_session = x.waiter_session = 0);
    EXPECT(HF_EPROTO, x.ended = 2);
    EXPECT(HF_EPROTO, x.ended = 1);
    EXPECT(HF_OK, x.session_count = 2, x.extra_secret = 71);
    EXPECT(HF_EPROTO, x.session_count = 2, x.extra_secret = 70);
    EXPECT(HF_OK, x.ended = 1, x.secret = 0, x.kept_count = 0,
           x.waiter_count = 0, x.waiters_written = 0);
    EXPECT(HF_EPROTO, x.ended = 1, x.secret = 70, x.kept_count = 0,
           x.waiter_count = 0, x.waiters_written = 0);
    EXPECT(HF_EPROTO, x.ended = 1, x.secret = 0, x.waiter_count = 0,
           x.waiters_written = 0);
    EXPECT(HF_EPROTO, x.ended = 1, x.secret = 0, x.kept_count = 0,
           x.hold_count = 0, x.holds_written = 0);
    EXPECT(HF_OK, x.highest = x.done + HF_WINDOW_MAX - 1);
    EXPECT(HF_EPROTO, x.highest = x.done + HF_WINDOW_MAX);
    EXPECT(HF_OK, x.label_size = HF_NOTE_MAX);
    EXPECT(HF_EPROTO, x.label_size = HF_NOTE_MAX + 1);
}

static void inconsistent_results_are_rejected(void **state)
{
    (void)state;
    EXPECT(HF_OK, x.kept_count = 0);
    EXPECT(HF_OK, x.kept_count = 0, x.done = 5);
    EXPECT(HF_EPROTO, x.kept_count = 2);
    EXPECT(HF_EPROTO, x.kept_count = HF_WINDOW_MAX + 1);
    EXPECT(HF_EPROTO, x.done = 5);
    EXPECT(HF_EPROTO, x.kept_sequence = 1);
    EXPECT(HF_EPROTO, x.kept_sequence = 5);
    EXPECT(HF_EPROTO, x.kept_sequence = 0, x.done = 0);
    EXPECT(HF_EPROTO, x.kept_kind = 0);
    EXPECT(HF_EPROTO, x.kept_kind = HF_COMMAND_CLOSE);
    EXPECT(HF_EPROTO, x.kept_kind = HF_COMMAND_EXPIRE);
    EXPECT(HF_EPROTO, x.kept_kind = HF_COMMAND_VERSION);
    EXPECT(HF_EPROTO, x.kept_kind = HF_COMMAND_KINDS);
    EXPECT(HF_EPROTO, x.kept_err = UINT8_MAX);
    EXPECT(HF_EPROTO, x.kept_err = -HF_ENOMEM);
}

static void inconsistent_holds_are_rejected(void **state)
{
    (void)state;
    EXPECT(HF_EPROTO, x.key_size = 0);
    EXPECT(HF_OK, x.key_size = HF_KEY_MAX);
    EXPECT(HF_EPROTO, x.key_size = HF_KEY_MAX + 1);
    EXPECT(HF_EPROTO, x.same_key = true);
    EXPECT(HF_EPROTO, x.second_token = x.hold_token);
    EXPECT(HF_EPROTO, x.second_token = 7);
    EXPECT(HF_EPROTO, x.hold_token = 0);
    EXPECT(HF_EPROTO, x.hold_token = 10);
    EXPECT(HF_EPROTO, x.holder_session = 4);
    EXPECT(HF_EPROTO, x.lease_ms = 0);
    EXPECT(HF_OK, x.lease_ms = HF_LEASE_MAX_MS);
    EXPECT(HF_EPROTO, x.lease_ms = HF_LEASE_MAX_MS + 1);
    EXPECT(HF_EPROTO, x.forced = 2);
    EXPECT(HF_EPROTO, x.waiter_count = 3);
    EXPECT(HF_EPROTO, x.waiter_count = 1);
    EXPECT(HF_EPROTO, x.waiter_count = HF_WAITERS_MAX + 1);
}

static void inconsistent_waiters_are_rejected(void **state)
{
    (void)state;
    EXPECT(HF_EPROTO, x.waiter_session = 4);
    EXPECT(HF_EPROTO, x.waiter_nonce = 1);
    EXPECT(HF_EPROTO, x.same_waiter = true);
    EXPECT(HF_EPROTO, x.waiter_lease_ms = 0);
    EXPECT(HF_EPROTO, x.waiter_sequence = 0);
    EXPECT(HF_EPROTO, x.waiter_sequence = 5);
    EXPECT(HF_EPROTO, x.waiter_sequence = 4);
    EXPECT(HF_OK, x.waiter_sequence = 1);
    EXPECT(HF_EPROTO, x.kept_nonce = 60);
    EXPECT(HF_EPROTO, x.kept_kind = HF_COMMAND_UNLOCK);
    EXPECT(HF_EPROTO, x.ahead = 1);
    EXPECT(HF_EPROTO, x.gap = 0);
    EXPECT(HF_OK, x.gap = 100);
    EXPECT(HF_OK, x.gap = UINT64_MAX / 2);
    EXPECT(HF_EPROTO, x.gap = UINT64_MAX / 2 + 1);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(table_survives_a_round_trip),
        cmocka_unit_test(restored_table_behaves_as_before),
        cmocka_unit_test(positions_are_the_same_after_a_restore),
        cmocka_unit_test(events_have_the_same_order_after_a_restore),
        cmocka_unit_test(equal_tables_have_equal_snapshots),
        cmocka_unit_test(empty_table_survives_a_round_trip),
        cmocka_unit_test(full_window_survives_a_round_trip),
        cmocka_unit_test(settled_session_survives_a_round_trip),
        cmocka_unit_test(snapshot_is_appended_to_the_buffer),
        cmocka_unit_test(truncated_snapshots_are_rejected),
        cmocka_unit_test(
            truncated_snapshots_with_a_valid_checksum_are_rejected),
        cmocka_unit_test(corrupt_snapshots_are_rejected),
        cmocka_unit_test(forged_snapshots_are_rejected_or_valid),
        cmocka_unit_test(failed_restore_leaves_an_empty_table),
        cmocka_unit_test(inconsistent_numbers_are_rejected),
        cmocka_unit_test(inconsistent_sessions_are_rejected),
        cmocka_unit_test(inconsistent_results_are_rejected),
        cmocka_unit_test(inconsistent_holds_are_rejected),
        cmocka_unit_test(inconsistent_waiters_are_rejected),
    };

    return hf_test_main("snapshot", cases, HF_TEST_COUNT(cases), 0);
}
