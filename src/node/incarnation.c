#include "node/incarnation.h"

#include <errno.h>

#include "base/buf.h"
#include "base/siphash.h"

#define NAME "incarnation"
#define TMP "tmp-incarnation"
#define SLOTS 2
#define SLOT_SIZE 512 /* a sector, so that a crash tears one slot at most */
#define USED 16       /* bytes of a slot: the number, and its checksum */

static const struct hf_seed seed = {"incarnation"};

/* What the file contains. */
struct slots {
    uint64_t number; /* the highest; 0: none */
    unsigned newest; /* the slot that contains it */
    unsigned bad;    /* slots that are torn or damaged */
};

/* A slot of zeros was never written. */
static void read_slot(struct slots *slots, unsigned slot, const uint8_t *bytes)
{
    static const uint8_t zeros[USED];
    struct hf_reader reader = {.data = bytes, .size = USED};
    uint64_t number = hf_reader_u64(&reader);

    if (!memcmp(bytes, zeros, USED))
        return;
    if (hf_reader_u64(&reader) != hf_siphash(&seed, bytes, 8)) {
        slots->bad++;
    } else if (number > slots->number) {
        slots->number = number;
        slots->newest = slot;
    }
}

static int read_slots(struct hf_disk_file *file, struct slots *slots)
{
    uint8_t bytes[SLOTS * SLOT_SIZE] = {0};
    ssize_t got = hf_disk_read(file, 0, bytes, sizeof(bytes));

    *slots = (struct slots){0};
    if (got < 0)
        return (int)got;
    for (unsigned i = 0; i < SLOTS; i++)
        read_slot(slots, i, bytes + (size_t)i * SLOT_SIZE);
    return slots->number == 0 ? -EBADMSG : 0;
}

static int write_slot(struct hf_disk_file *file, unsigned slot, uint64_t number)
{
    struct hf_buf buf = {0};
    int rc = -ENOMEM;

    hf_buf_u64(&buf, number);
    if (!buf.failed)
        hf_buf_u64(&buf, hf_siphash(&seed, buf.data, 8));
    if (!buf.failed)
        rc =
            hf_disk_write(file, (uint64_t)slot * SLOT_SIZE, buf.data, buf.size);
    hf_buf_fini(&buf);
    return rc ? rc : file->disk->ops->sync(file);
}

/* Create the file with the number 1. Both slots are written, so that a full
 * disk does not prevent the next starts. */
static int create_slots(struct hf_disk *disk)
{
    struct hf_disk_file *file;
    int rc = disk->ops->create(disk, TMP, &file);

    if (rc)
        return rc;
    rc = disk->ops->prewrite(file, (uint64_t)SLOTS * SLOT_SIZE);
    if (!rc)
        rc = write_slot(file, 0, 1);
    hf_disk_close(file);
    return rc ? rc : hf_disk_rename(disk, TMP, NAME);
}

/* Overwrite the slot that does not contain the newest number. A bad slot may
 * have contained the next number, so skip that number. */
static int raise_slots(struct hf_disk_file *file, uint64_t *number)
{
    struct slots slots;
    int rc = read_slots(file, &slots);

    if (rc)
        return rc;
    *number = slots.number + 1 + slots.bad;
    return write_slot(file, (slots.newest + 1) % SLOTS, *number);
}

static enum hf_err refuse_without_number(const struct hf_disk *disk,
                                         const char *what,
                                         struct hf_error *error)
{
    return hf_error_set(error, HF_ESTATE,
                        "%s/" NAME ": %s. Restore this file as it was when "
                        "the node last stopped; otherwise: " HF_DISK_LOST,
                        disk->path, what);
}

enum hf_err hf_incarnation_raise(struct hf_disk *disk, bool is_first_start,
                                 uint64_t *incarnation, struct hf_error *error)
{
    struct hf_disk_file *file;
    uint64_t number = 1;
    int rc = disk->ops->open(disk, NAME, &file);

    if (rc == -ENOENT && !is_first_start)
        return refuse_without_number(disk, "the file is missing", error);
    if (rc == -ENOENT) {
        rc = create_slots(disk);
    } else if (!rc) {
        rc = raise_slots(file, &number);
        hf_disk_close(file);
    }
    if (rc == -EBADMSG)
        return refuse_without_number(disk, "the file is damaged", error);
    if (rc)
        return hf_disk_error(error, disk, NAME, "cannot raise the number", rc);
    *incarnation = number;
    return HF_OK;
}
