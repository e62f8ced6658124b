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
#include <unistd.h>

#include "failure.h"

#define PROCESSES_MAX 65536

struct process {
    pid_t pid, parent, group;
    bool ours;
};

struct table {
    struct process *rows; /* by pid */
    size_t count, size;
};

/* ---- /proc --------------------------------------------------------------*/

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
    at = strrchr(text, ')'); /* the name before it may have any byte */
    if (!at || strlen(at) < 4 || at[2] == 'Z' || at[2] == 'X')
        return false;
    process->pid = (pid_t)strtol(pid, NULL, 10);
    process->parent = (pid_t)strtol(at + 3, &at, 10);
    process->group = (pid_t)strtol(at, NULL, 10);
    process->ours = false;
    return true;
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
            read_process(entry->d_name, &process))
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

static bool is_old(const struct descendants *d, pid_t pid)
{
    for (size_t i = 0; i < d->old_count; i++) {
        if (d->old[i] == pid)
            return true;
    }
    return false;
}

/* Mark the processes whose chain of parents leads to us, level by level. */
static void table_mark(struct table *table, const struct descendants *d)
{
    pid_t self = getpid();
    bool found = true;

    while (found) {
        found = false;
        for (size_t i = 0; i < table->count; i++) {
            struct process *process = &table->rows[i];
            const struct process *parent = table_find(table, process->parent);

            if (process->ours || is_old(d, process->pid) ||
                (process->parent != self && !(parent && parent->ours)))
                continue;
            process->ours = true;
            found = true;
        }
    }
}

void descendants_init(struct descendants *d)
{
    struct table table;

    d->old_count = 0;
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD)
        return;
    table_read(&table);
    table_mark(&table, d); /* with old_count 0: all of them */
    for (size_t i = 0; i < table.count; i++) {
        if (table.rows[i].ours && d->old_count < DESCENDANTS_OLD_MAX)
            d->old[d->old_count++] = table.rows[i].pid;
    }
    free(table.rows);
}

void descendants_forget(struct descendants *d, pid_t pid)
{
    for (size_t i = 0; i < d->old_count; i++) {
        if (d->old[i] == pid)
            d->old[i] = d->old[--d->old_count];
    }
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

/* /proc may hide processes of other users (hidepid), but waitid() knows every
 * child, and orphans become our children. */
bool descendants_exist(const struct descendants *d)
{
    siginfo_t info;

    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT))
        return false;
    return d->old_count == 0 || descendants_first(d) != 0;
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
