/* quorum.c - the servers of etcd and of ZooKeeper, and the program that
 * measures them. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/loopback.h"
#include "raft/raft.h"

#define LEADER_MS 60000

/* ---- Processes ----------------------------------------------------------*/

static pid_t start_server(const char *command)
{
    char text[4096];
    pid_t pid;
    int null_fd;

    (void)snprintf(text, sizeof(text), "exec %s", command);
    pid = fork();
    if (pid < 0)
        bench_fail("cannot start a process");
    if (pid > 0)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)dup2(null_fd, STDIN_FILENO);
    (void)dup2(null_fd, STDOUT_FILENO);
    (void)dup2(null_fd, STDERR_FILENO);
    (void)execl("/bin/sh", "sh", "-c", text, (char *)NULL);
    _exit(127);
}

static void choose_ports(struct bench_quorum *quorum)
{
    for (unsigned i = 0; i < BENCH_NODES; i++) {
        quorum->client_ports[i] = hf_test_free_port();
        quorum->peer_ports[i] = hf_test_free_port();
        quorum->election_ports[i] = hf_test_free_port();
    }
}

static pid_t start_etcd(const struct bench_quorum *quorum, unsigned server)
{
    const int *peers = quorum->peer_ports;
    int client = quorum->client_ports[server];
    char command[2048];

    (void)snprintf(command, sizeof(command),
                   "etcd --name s%u --data-dir %s/etcd-%u"
                   " --listen-client-urls http://127.0.0.1:%d"
                   " --advertise-client-urls http://127.0.0.1:%d"
                   " --listen-peer-urls http://127.0.0.1:%d"
                   " --initial-advertise-peer-urls http://127.0.0.1:%d"
                   " --initial-cluster s0=http://127.0.0.1:%d,"
                   "s1=http://127.0.0.1:%d,s2=http://127.0.0.1:%d"
                   " --log-level error",
                   server, bench_folder(), server, client, client,
                   peers[server], peers[server], peers[0], peers[1], peers[2]);
    return start_server(command);
}

static pid_t start_zookeeper(unsigned server)
{
    char command[3072];

    (void)snprintf(command, sizeof(command),
                   "%s org.apache.zookeeper.server.quorum.QuorumPeerMain "
                   "%s/zookeeper-%u/zoo.cfg",
                   getenv("BENCH_QUORUM"), bench_folder(), server);
    return start_server(command);
}

void bench_quorum_restart(struct bench_quorum *quorum, unsigned server)
{
    quorum->pids[server] = quorum == &bench_raft.etcd
                               ? start_etcd(quorum, server)
                               : start_zookeeper(server);
}

void bench_quorum_kill(struct bench_quorum *quorum, unsigned server)
{
    (void)kill(quorum->pids[server], SIGKILL);
    (void)waitpid(quorum->pids[server], NULL, 0);
}

static void start_measuring(struct bench_quorum *quorum, const char *name)
{
    char command[3072];

    for (unsigned i = 0; i < BENCH_NODES; i++)
        bench_quorum_restart(quorum, i);
    (void)snprintf(command, sizeof(command), "%s Peer %s %d,%d,%d",
                   getenv("BENCH_QUORUM"), name, quorum->client_ports[0],
                   quorum->client_ports[1], quorum->client_ports[2]);
    bench_peer_start(&quorum->peer, command);
    quorum->is_available = true;
}

void bench_quorum_stop(struct bench_quorum *quorum)
{
    if (!quorum->is_available)
        return;
    quorum->is_available = false;
    bench_peer_kill(&quorum->peer);
    for (unsigned i = 0; i < BENCH_NODES; i++)
        bench_quorum_kill(quorum, i);
}

unsigned bench_quorum_leader(struct bench_quorum *quorum)
{
    double number = -1;

    for (unsigned i = 0; number < 0; i++) {
        if (i == LEADER_MS / 50)
            bench_fail("etcd or ZooKeeper has no leader");
        bench_sleep_ms(50);
        bench_peer_order(&quorum->peer, "leader");
        bench_peer_numbers(&quorum->peer, &number, 1);
    }
    return (unsigned)number;
}

/* ---- etcd ---------------------------------------------------------------*/

void bench_etcd_start(struct bench_quorum *quorum)
{
    /* NOLINTNEXTLINE(cert-env33-c): the command is a constant. */
    if (system("command -v etcd >/dev/null"))
        return;
    choose_ports(quorum);
    start_measuring(quorum, "etcd");
}

/* ---- ZooKeeper ----------------------------------------------------------*/

static FILE *create_file(const char *folder, const char *name)
{
    char path[512];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "we");
    if (!file)
        bench_fail(path);
    return file;
}

/* As in the example of ZooKeeper's manual, but without a limit on the
 * connections of one host. */
static void configure_zookeeper(const struct bench_quorum *quorum,
                                unsigned server)
{
    char folder[256];
    FILE *file;

    (void)snprintf(folder, sizeof(folder), "%s/zookeeper-%u", bench_folder(),
                   server);
    if (mkdir(folder, 0700))
        bench_fail(folder);
    file = create_file(folder, "myid");
    (void)fprintf(file, "%u\n", server + 1);
    (void)fclose(file);
    file = create_file(folder, "zoo.cfg");
    (void)fprintf(file,
                  "tickTime=2000\ninitLimit=5\nsyncLimit=2\ndataDir=%s\n"
                  "clientPort=%d\nclientPortAddress=127.0.0.1\n"
                  "maxClientCnxns=0\nadmin.enableServer=false\n"
                  "4lw.commands.whitelist=srvr\n",
                  folder, quorum->client_ports[server]);
    for (unsigned i = 0; i < BENCH_NODES; i++)
        (void)fprintf(file, "server.%u=127.0.0.1:%d:%d\n", i + 1,
                      quorum->peer_ports[i], quorum->election_ports[i]);
    (void)fclose(file);
}

void bench_zookeeper_start(struct bench_quorum *quorum)
{
    choose_ports(quorum);
    for (unsigned i = 0; i < BENCH_NODES; i++)
        configure_zookeeper(quorum, i);
    start_measuring(quorum, "zookeeper");
}
