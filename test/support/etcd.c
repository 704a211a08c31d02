#define _GNU_SOURCE
#include "support/etcd.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

bool etcd_there(void)
{
    return system("command -v etcd >/dev/null 2>&1") == 0;
}

static int open_port(int port, bool to_listen)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t n = sizeof a;

    if (to_listen ? bind(fd, (struct sockaddr *)&a, sizeof a)
                  : connect(fd, (struct sockaddr *)&a, sizeof a)) {
        close(fd);
        return -1;
    }
    if (!to_listen)
        return fd;
    getsockname(fd, (struct sockaddr *)&a, &n);
    close(fd);
    return ntohs(a.sin_port);
}

static void become(const struct etcd *e)
{
    char client[64], peer[64], cluster[96], data[240], log[240];
    const char *argv[24] = {"etcd",
                            "--name=t",
                            "--data-dir",
                            data,
                            "--listen-client-urls",
                            client,
                            "--advertise-client-urls",
                            client,
                            "--listen-peer-urls",
                            peer,
                            "--initial-advertise-peer-urls",
                            peer,
                            "--initial-cluster",
                            cluster,
                            "--unsafe-no-fsync"};
    int n = 15, fd;

    snprintf(client, sizeof client, "%s://127.0.0.1:%d", e->cert ? "https" : "http", e->port);
    snprintf(peer, sizeof peer, "http://127.0.0.1:%d", e->peer_port);
    snprintf(cluster, sizeof cluster, "t=%s", peer);
    snprintf(data, sizeof data, "%s/data", e->dir);
    snprintf(log, sizeof log, "%s/log", e->dir);
    if (e->cert) {
        argv[n++] = "--cert-file";
        argv[n++] = e->cert;
        argv[n++] = "--key-file";
        argv[n++] = e->key;
        argv[n++] = "--client-cert-auth";
        argv[n++] = "--trusted-ca-file";
        argv[n++] = e->cert;
    }
    fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0666);
    dup2(fd, 1);
    dup2(fd, 2);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setenv("ETCD_UNSUPPORTED_ARCH", "arm64", 1); /* it wants to be asked on some machines */
    execvp("etcd", (char *const *)argv);
    _exit(127);
}

bool etcd_start(struct etcd *e)
{
    if (!e->port) {
        e->port = open_port(0, true);
        e->peer_port = open_port(0, true);
    }
    e->pid = fork();
    if (e->pid == 0)
        become(e);
    for (int i = 0; i < 400; i++) {
        int fd = open_port(e->port, false);

        if (fd >= 0) {
            close(fd);
            return true;
        }
        if (waitpid(e->pid, NULL, WNOHANG) == e->pid)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    return false;
}

void etcd_end(struct etcd *e, int sig)
{
    if (e->pid <= 0)
        return;
    kill(e->pid, sig);
    waitpid(e->pid, NULL, 0);
    e->pid = 0;
}
