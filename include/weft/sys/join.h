/* weft/sys/join.h - processes of other machines join a job: a door, tokens, and who comes.
 *
 * Who starts a job has its authority (weft/sys/net.h), opens a door and writes tokens into files,
 * which reach the other machines by a way that is trusted (scp). A process there connects to the
 * door by TLS, and checks that the door's certificate is of the authority whose fingerprint the
 * token has. Only then it sends the token's secret, with a request for a certificate for a key that
 * never leaves it. */
#ifndef WEFT_SYS_JOIN_H
#define WEFT_SYS_JOIN_H

#include "weft/sys/net.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_TASK_NAME 64

typedef struct weft_door weft_door;

typedef struct weft_door_opts {
    size_t size;
    const char *address; /* "tls:HOST:PORT"; port 0: one that is free */
    int64_t seconds;     /* how long the certificates are valid that it gives */
    /* Somebody with a valid token for this role is at the door: which task it becomes ("worker/3"),
     * and what it is told. false refuses it, and `told` is why. The text must stay until the door
     * is closed. By a thread of the door. */
    bool (*take)(void *arg, const char *role, char task[WEFT_TASK_NAME], const char **told);
    /* May be NULL. What happened, as a line: who joined, who was refused and why. By a thread of
     * the door. */
    void (*said)(void *arg, const char *line);
    void *arg;
} weft_door_opts;
/* bound (may be NULL): the address with the port that was chosen. a must outlive the door. */
WEFT_API weft_status weft_door_open(weft_ctx *ctx, weft_authority *a, const weft_door_opts *opts,
                                    char *bound, size_t n_bound, weft_door **out);
WEFT_API void weft_door_close(weft_door *d);

/* Writes a token for a role into a new file that only its owner can read. It is valid for so many
 * joins and seconds. At most 64 a door. */
WEFT_API weft_status weft_door_token(weft_door *d, const char *role, int uses, double seconds,
                                     const char *path);

/* Joins with the token of a file: folder (which exists) gets authority.pem, TASK.pem and TASK.key.
 * WEFT_EPEER: the door is of another authority, or refuses. */
WEFT_API weft_status weft_join(weft_ctx *ctx, const char *address, const char *token,
                               const char *folder, double timeout_s, char task[WEFT_TASK_NAME],
                               char **description);
/* A new certificate for a task that has one which is still valid, in the same files. */
WEFT_API weft_status weft_join_renew(weft_ctx *ctx, const char *address, const char *folder,
                                     const char *task, double timeout_s);

#ifdef __cplusplus
}
#endif
#endif
