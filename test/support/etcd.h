/* etcd.h - a real etcd for tests: a process of its own on free ports of 127.0.0.1, with its data
 * in a directory of the caller's. */
#ifndef WEFT_TEST_ETCD_H
#define WEFT_TEST_ETCD_H

#include <stdbool.h>
#include <sys/types.h>

struct etcd {
    char dir[200];
    int port, peer_port;
    pid_t pid;
    const char *cert,
        *key; /* PEM files: HTTPS, for clients whose certificate is signed by `cert` */
};

/* Whether the command is installed. */
bool etcd_there(void);
/* Starts it; the ports are chosen at the first call and kept by later ones. False: it does not
 * answer within 20 seconds; its log is in dir/log. */
bool etcd_start(struct etcd *e);
/* Ends it with a signal, and waits. */
void etcd_end(struct etcd *e, int sig);

#endif
