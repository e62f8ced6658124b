#include "descendants.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "failure.h"

/* The kernel's limit on the number of processes. With a smaller limit we could
 * miss a process, which would then keep running without the lock. */
#define PROCESSES_MAX (4UL * 1024 * 1024)
#define TICK_NS 10000000 /* the unit of start times, USER_HZ of proc(5) */

struct process {
    pid_t pid, parent, group;
    long long start; /* ticks since boot */
    char state;
    bool ours;
};

struct table {
    struct process *rows; /* by pid */
    size_t count, size;
};

/* ---- /proc --------------------------------------------------------------*/

/* Field `number` of /proc/PID/stat; see proc(5). `text` begins at the end of
 * field 2, the name. */
static long long read_field(const char *text, unsigned number)
{
    for (unsigned i = 2; text && i < number; i++)
        text = strchr(text + 1, ' ');
    return text ? strtoll(text, NULL, 10) : 0;
}

static bool read_process(const char *pid, struct process *process)
{
    char path[64], text[512];
    char *at;
    size_t size;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    file = fopen(path, "re");
    if (!file)
        return false;
    size = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[size] = '\0';
    at = strrchr(text, ')'); /* search backwards: the name may contain ')' */
    if (!at || strlen(at) < 4)
        return false;
    *process = (struct process){
        .pid = (pid_t)strtol(pid, NULL, 10),
        .state = at[2],
        .parent = (pid_t)read_field(at, 4),
        .group = (pid_t)read_field(at, 5),
        .start = read_field(at, 22),
    };
    return true;
}

static bool is_running(const struct process *process)
{
    return process->state != 'Z' && process->state != 'X';
}

static void add_process(struct table *table, const struct process *process)
{
    if (table->count == PROCESSES_MAX)
        return;
    if (table->count == table->size) {
        table->size = table->size ? 2 * table->size : 256;
        table->rows =
            reallocarray(table->rows, table->size, sizeof(*table->rows));
        if (!table->rows)
            failure_no_memory();
    }
    table->rows[table->count++] = *process;
}

static int compare_pids(const void *a, const void *b)
{
    const struct process *left = a, *right = b;

    return (left->pid > right->pid) - (left->pid < right->pid);
}

static void table_read(struct table *table)
{
    DIR *folder = opendir("/proc");
    struct dirent *entry;
    struct process process;

    *table = (struct table){0};
    while (folder && (entry = readdir(folder))) {
        if (isdigit((unsigned char)entry->d_name[0]) &&
            read_process(entry->d_name, &process) && is_running(&process))
            add_process(table, &process);
    }
    if (folder)
        (void)closedir(folder);
    if (table->count > 0)
        qsort(table->rows, table->count, sizeof(*table->rows), compare_pids);
}

static struct process *table_find(const struct table *table, pid_t pid)
{
    struct process key = {.pid = pid};

    if (table->count == 0)
        return NULL;
    return bsearch(&key, table->rows, table->count, sizeof(key), compare_pids);
}

/* ---- Descendants --------------------------------------------------------*/

/* Returns true if `process`, whose chain of parents leads to us, descends from
 * the command. An orphan of an earlier child may be younger than the command,
 * so check the process group too: the orphan is in our group unless it has
 * changed its group. */
static bool is_of_command(const struct descendants *d,
                          const struct process *process)
{
    if (!d->mixed)
        return true;
    return process->start >= d->since && process->group != getpgrp();
}

/* Mark the descendants of the command, whose chains of parents lead to us. Each
 * pass marks the children of marked processes; the last pass finds none. */
static void table_mark(struct table *table, const struct descendants *d)
{
    pid_t self = getpid();
    bool found = true;

    while (found) {
        found = false;
        for (size_t i = 0; i < table->count; i++) {
            struct process *process = &table->rows[i];
            const struct process *parent = table_find(table, process->parent);

            if (process->ours || !is_of_command(d, process) ||
                (process->parent != self && !(parent && parent->ours)))
                continue;
            process->ours = true;
            found = true;
        }
    }
}

/* If we have children already, wait for one tick, so that the start time of the
 * command is later than theirs. */
void descendants_init(struct descendants *d)
{
    struct timespec tick = {.tv_nsec = TICK_NS};

    *d = (struct descendants){0};
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    d->mixed = waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD;
    while (d->mixed && nanosleep(&tick, &tick) && errno == EINTR)
        continue;
}

void descendants_begin(struct descendants *d, pid_t command)
{
    struct process process;
    char pid[16];

    if (!d->mixed)
        return;
    (void)snprintf(pid, sizeof(pid), "%d", (int)command);
    if (read_process(pid, &process))
        d->since = process.start;
}

pid_t descendants_first(const struct descendants *d)
{
    struct table table;
    pid_t first = 0;

    table_read(&table);
    table_mark(&table, d);
    for (size_t i = 0; i < table.count && !first; i++) {
        if (table.rows[i].ours)
            first = table.rows[i].pid;
    }
    free(table.rows);
    return first;
}

/* /proc may hide processes of other users (hidepid) or be missing, so ask
 * waitid(), which finds every child; orphans become our children. */
bool descendants_exist(const struct descendants *d)
{
    siginfo_t info;

    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT))
        return false;
    return !d->mixed || descendants_first(d) != 0 ||
           access("/proc/self/stat", R_OK);
}

bool descendants_have_group(const struct descendants *d, pid_t group)
{
    struct table table;
    bool found = false;

    table_read(&table);
    table_mark(&table, d);
    for (size_t i = 0; i < table.count && !found; i++)
        found = table.rows[i].ours && table.rows[i].group == group;
    free(table.rows);
    return found;
}

pid_t descendants_signal(const struct descendants *d, int signal, pid_t group)
{
    struct table table;
    pid_t refused = 0;

    table_read(&table);
    table_mark(&table, d);
    for (size_t i = 0; i < table.count; i++) {
        const struct process *process = &table.rows[i];
        int sent = process->group == group ? 0 : signal;

        if (process->ours && kill(process->pid, sent) && errno == EPERM)
            refused = process->pid;
    }
    free(table.rows);
    return refused;
}

bool descendants_name(pid_t pid, char name[DESCENDANT_NAME_SIZE])
{
    char path[64];
    bool known;
    FILE *file;

    (void)snprintf(name, DESCENDANT_NAME_SIZE, "?");
    (void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    file = fopen(path, "re");
    if (!file)
        return false;
    known = fgets(name, DESCENDANT_NAME_SIZE, file) != NULL;
    if (known)
        name[strcspn(name, "\n")] = '\0';
    (void)fclose(file);
    return known;
}

/* ---- Our own group ------------------------------------------------------*/

static bool is_ancestor(const struct table *table, pid_t pid)
{
    const struct process *at = table_find(table, getpid());

    for (size_t i = 0; at && i < table->count; i++) {
        if (at->pid == pid)
            return true;
        at = table_find(table, at->parent);
    }
    return false;
}

bool descendants_group_is_shared(void)
{
    struct table table;
    pid_t group = getpgrp();
    bool shared = false;

    table_read(&table);
    for (size_t i = 0; i < table.count && !shared; i++)
        shared = table.rows[i].group == group &&
                 !is_ancestor(&table, table.rows[i].pid);
    free(table.rows);
    return shared;
}
