/* main.c - the command `holdfast`: choose the verb, and run it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "failure.h"

const struct verb *const verbs[] = {
    &verb_run,     &verb_lock,    &verb_unlock, &verb_renew,   &verb_update,
    &verb_show,    &verb_ls,      &verb_wait,   &verb_watch,   &verb_force,
    &verb_doctor,  &verb_cluster, &verb_status, &verb_torture, &verb_help,
    &verb_version, NULL,
};

const struct verb *verb_find(const char *name)
{
    size_t i = 0;

    while (verbs[i] && strcmp(verbs[i]->name, name) != 0)
        i++;
    return verbs[i];
}

/* If a standard descriptor is closed, the next open() returns its number, and
 * messages for stderr would be written into a lock file. Replace a closed
 * descriptor with one that fails every read or write, so that no output is lost
 * silently. O_CLOEXEC closes it again in the command of `run`. */
static void fill_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        int unusable = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;

        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", unusable | O_CLOEXEC);
    }
}

static int choose_verb(struct args *args, char **argv, int *next)
{
    int status = args_parse_before_verb(args, argv, next);
    const char *name = argv[*next];

    if (status)
        return status;
    if (!name && !(args->given & OPTION(HELP)))
        return failure_usage(args, "missing verb, for example 'run'");
    if (!name) {
        args->given &= ~OPTION(HELP);
        name = "help";
    } else {
        ++*next;
    }
    if (!strcmp(name, "--version"))
        name = "version";
    args->verb = verb_find(name);
    return args->verb ? 0 : failure_usage(args, "unknown verb '%s'", name);
}

int main(int argc, char **argv)
{
    struct args args;
    int next = argc > 0, status;

    fill_standard_descriptors();
    args_init(&args);
    status = choose_verb(&args, argv, &next);
    if (!status)
        status = args_parse(&args, argv + next);
    if (status)
        return failure_flush(&args, status);
    if (args.given & OPTION(HELP))
        help_show_verb(args.verb);
    else
        status = args.verb->main(&args);
    return failure_flush(&args, status);
}
