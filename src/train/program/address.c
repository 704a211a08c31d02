/* address.c - what started tasks are told: where the others are, and their certificates. */
#define _GNU_SOURCE
#include "train/program/program.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weft/sys/net.h"

enum { CERTIFIED_DAYS = 3650 };

/* The authority is this job's alone, and vanishes with the directory. */
static const char *transport_of(const weft_program *p)
{
    return p->o.transport ? p->o.transport : p->o.threads ? "uds" : "shm";
}

static bool is_tls(const weft_program *p)
{
    return strcmp(transport_of(p), "tls") == 0;
}

/* A port of this machine that is free now; it is held until all are chosen, so that they differ. */
static weft_status hold_port(int *fd, int *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;

    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&a, n) ||
        getsockname(*fd, (struct sockaddr *)&a, &n))
        return wf_err(WEFT_EIO, "program: no free port on this machine: %s", wf_errno_text(errno));
    *port = ntohs(a.sin_port);
    return WEFT_OK;
}

/* One more address, of the chief or of server `number`. */
static weft_status put_address(weft_program *p, const char *role, int number, int *fd,
                               struct wf_buf *out)
{
    int port = 0;
    weft_status st = is_tls(p) ? hold_port(fd, &port) : WEFT_OK;

    if (st)
        return st;
    if (is_tls(p))
        wf_buf_printf(out, "tls:127.0.0.1:%d", port);
    else
        wf_buf_printf(out, "%s:%s/%s%d", transport_of(p), p->folder, role, number);
    return out->st;
}

weft_status wf_program_list(weft_program *p, struct wf_buf *out)
{
    int n = 1 + p->o.ps, *fd = wf_alloc_n(p->ctx, n, sizeof *fd);
    weft_status st = fd ? WEFT_OK : wf_err_nomem(p->ctx, (size_t)n * sizeof *fd, "tasks");

    for (int i = 0; i < n && fd; i++)
        fd[i] = -1;
    wf_buf_printf(out, "chief=");
    if (!st)
        st = put_address(p, "chief", 0, &fd[0], out);
    for (int i = 0; i < p->o.ps && !st; i++) {
        wf_buf_printf(out, "%s", i ? "," : ";ps=");
        st = put_address(p, "ps", i, &fd[1 + i], out);
    }
    wf_buf_printf(out, ";worker=%d", p->o.workers);
    if (p->o.evaluators)
        wf_buf_printf(out, ";evaluator=%d", p->o.evaluators);
    for (int i = 0; i < n && fd; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    wf_free(p->ctx, fd);
    return st ? st : out->st;
}

weft_status wf_program_certify(weft_program *p)
{
    weft_authority *a = NULL;
    weft_status st;

    if (!is_tls(p))
        return WEFT_OK;
    st = weft_authority_new(p->ctx, CERTIFIED_DAYS, &a);
    for (int i = 0; i < p->n_tasks && !st; i++)
        st = weft_authority_issue(a, p->folder, p->task[i].name,
                                  (int64_t)CERTIFIED_DAYS * 24 * 60 * 60);
    weft_authority_free(a);
    p->keys = p->folder;
    return st;
}

/* ---- the end --------------------------------------------------------------------------------- */

static bool name_end(const weft_program *p, char *path, size_t size)
{
    int n = p->store ? wf_snprintf(path, size, "%s.ended", p->store) : -1;

    return n > 0 && (size_t)n < size;
}

void wf_program_say_ended(weft_program *p)
{
    char path[WF_MAX_PATH + 32];
    int fd = name_end(p, path, sizeof path) ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;

    if (fd >= 0)
        close(fd);
}

bool wf_program_has_ended(const weft_program *p)
{
    char path[WF_MAX_PATH + 32];
    struct stat info;

    return name_end(p, path, sizeof path) && stat(path, &info) == 0;
}
