/* cluster_listener.c - find the process that listens on a local port, as ss(8)
 * does: find the inode of the socket in /proc/net, then the process that has a
 * descriptor of that inode. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cluster.h"

#define LISTENING 0x0a

/* The inode in a line "N: ADDRESS:PORT ADDRESS:PORT STATE ...", where it is the
 * tenth word; 0 if the line is not of a socket that listens on `port`. */
static unsigned long inode_of(char *line, unsigned long port)
{
    char *words[10];
    char *rest = NULL;
    const char *local;

    for (int i = 0; i < 10; i++) {
        words[i] = strtok_r(i == 0 ? line : NULL, " ", &rest);
        if (!words[i])
            return 0;
    }
    local = strrchr(words[1], ':');
    if (!local || strtoul(local + 1, NULL, 16) != port ||
        strtoul(words[3], NULL, 16) != LISTENING)
        return 0;
    return strtoul(words[9], NULL, 10);
}

/* The inode of the socket that listens on `port`, from `table`, a file in
 * /proc/net; 0 if there is none. */
static unsigned long find_inode(const char *table, unsigned long port)
{
    FILE *file = fopen(table, "re");
    unsigned long found = 0;
    char line[512];

    while (file && !found && fgets(line, sizeof(line), file))
        found = inode_of(line, port);
    if (file)
        (void)fclose(file);
    return found;
}

static bool has_socket(const char *pid, const char *socket)
{
    char path[PATH_MAX], target[64];
    struct dirent *entry;
    bool found = false;
    DIR *folder;

    (void)snprintf(path, sizeof(path), "/proc/%s/fd", pid);
    folder = opendir(path);
    while (folder && !found && (entry = readdir(folder))) {
        ssize_t size = readlinkat(dirfd(folder), entry->d_name, target,
                                  sizeof(target) - 1);

        target[size > 0 ? size : 0] = '\0';
        found = !strcmp(target, socket);
    }
    if (folder)
        (void)closedir(folder);
    return found;
}

static pid_t find_owner(unsigned long inode)
{
    char socket[64];
    struct dirent *entry;
    pid_t owner = 0;
    DIR *processes = opendir("/proc");

    (void)snprintf(socket, sizeof(socket), "socket:[%lu]", inode);
    while (processes && !owner && (entry = readdir(processes))) {
        if (isdigit((unsigned char)entry->d_name[0]) &&
            has_socket(entry->d_name, socket))
            owner = (pid_t)strtol(entry->d_name, NULL, 10);
    }
    if (processes)
        (void)closedir(processes);
    return owner;
}

static bool is_loopback_socket(const char *address)
{
    return !strncmp(address, "127.", 4) || !strncmp(address, "[::1]", 5) ||
           !strncmp(address, "localhost:", 10);
}

pid_t cluster_listener_pid(const char *address)
{
    const char *colon = strrchr(address, ':');
    unsigned long port = colon ? strtoul(colon + 1, NULL, 10) : 0;
    unsigned long inode;

    if (!is_loopback_socket(address))
        return 0;
    inode = find_inode(address[0] == '[' ? "/proc/net/tcp6" : "/proc/net/tcp",
                       port);
    return inode ? find_owner(inode) : 0;
}
