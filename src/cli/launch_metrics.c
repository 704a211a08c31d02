/* launch_metrics.c - counters of all tasks as Prometheus text, over HTTP.
 *
 * libmicrohttpd brings a TLS library with it; so only its header is used, and the library is loaded
 * where --metrics asks for it. It serves from a thread of its own the text that the launcher's loop
 * left last. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sys/socket.h>

#include "launch.h"

enum { MAX_TEXT = 1 << 18, MAX_VALUE = 32 };

/* ---- the text -------------------------------------------------------------------------------- */

struct text {
    char *to;
    size_t n, size;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(t->n < t->size ? t->to + t->n : NULL, t->n < t->size ? t->size - t->n : 0, fmt,
                  args);
    va_end(args);
    t->n += n > 0 ? (size_t)n : 0;
}

static double value_up(const struct launch *l, const struct launched *t)
{
    (void)l;
    return t->pid > 0;
}

static double value_starts(const struct launch *l, const struct launched *t)
{
    (void)l;
    return t->starts;
}

static double value_step(const struct launch *l, const struct launched *t)
{
    (void)l;
    return (double)t->stat.step;
}

static double value_loss(const struct launch *l, const struct launched *t)
{
    (void)l;
    return t->stat.loss;
}

static double value_samples(const struct launch *l, const struct launched *t)
{
    return samples_a_second(l, t);
}

static double value_sent(const struct launch *l, const struct launched *t)
{
    (void)l;
    return (double)t->stat.sent;
}

static double value_received(const struct launch *l, const struct launched *t)
{
    (void)l;
    return (double)t->stat.received;
}

static double value_messages(const struct launch *l, const struct launched *t)
{
    (void)l;
    return (double)t->stat.messages;
}

static double value_waited(const struct launch *l, const struct launched *t)
{
    (void)l;
    return t->stat.waited_s;
}

static double value_busy(const struct launch *l, const struct launched *t)
{
    (void)l;
    return t->stat.busy_s;
}

static double value_send_messages(const struct launch *l, const struct launched *t)
{
    (void)l;
    return (double)t->stat.send_messages;
}

static double value_send_bytes(const struct launch *l, const struct launched *t)
{
    (void)l;
    return (double)t->stat.send_bytes;
}

static double value_receive_messages(const struct launch *l, const struct launched *t)
{
    (void)l;
    return (double)t->stat.receive_messages;
}

static double value_receive_bytes(const struct launch *l, const struct launched *t)
{
    (void)l;
    return (double)t->stat.receive_bytes;
}

static double value_staleness(const struct launch *l, const struct launched *t)
{
    return is_stale(l) ? t->stat.staleness : NAN;
}

static double value_most_stale(const struct launch *l, const struct launched *t)
{
    return is_stale(l) ? (double)t->stat.staleness_most : NAN;
}

enum { WORKERS = 1, SERVERS = 2, OTHERS = 4, ALL = WORKERS | SERVERS | OTHERS };

static int role_of(const struct launched *t)
{
    return !strcmp(t->role, "worker") ? WORKERS : !strcmp(t->role, "ps") ? SERVERS : OTHERS;
}

static const struct metric {
    const char *name, *type, *help;
    int of; /* who has it */
    double (*value)(const struct launch *l, const struct launched *t);
} table[] = {
    {"weft_task_up", "gauge", "whether the task's process runs on this machine", ALL, value_up},
    {"weft_task_starts_total", "counter", "how often the task was started", ALL, value_starts},
    {"weft_task_step", "gauge", "updates that the worker has seen", WORKERS, value_step},
    {"weft_task_loss", "gauge", "mean loss of the epoch so far", WORKERS, value_loss},
    {"weft_task_samples_per_second", "gauge", "samples that the worker computes", WORKERS,
     value_samples},
    {"weft_task_sent_bytes_total", "counter", "bytes sent to other tasks", ALL, value_sent},
    {"weft_task_received_bytes_total", "counter", "bytes received from other tasks", ALL,
     value_received},
    {"weft_task_messages_total", "counter", "messages received", ALL, value_messages},
    {"weft_task_waiting_seconds_total", "counter",
     "time spent waiting: of a worker for servers and workers, of a server for messages",
     WORKERS | SERVERS, value_waited},
    {"weft_task_busy_seconds_total", "counter", "time that the server spent on messages", SERVERS,
     value_busy},
    {"weft_task_send_queue_messages", "gauge", "messages that wait to be sent", ALL,
     value_send_messages},
    {"weft_task_send_queue_bytes", "gauge", "their bytes", ALL, value_send_bytes},
    {"weft_task_receive_queue_messages", "gauge", "tasks whose next message waits to be read", ALL,
     value_receive_messages},
    {"weft_task_receive_queue_bytes", "gauge", "bytes that have arrived and were not read yet", ALL,
     value_receive_bytes},
    {"weft_task_staleness", "gauge",
     "shards of others that were applied between what a shard of the worker was computed from and "
     "its own, on average: in asynchronous training",
     WORKERS, value_staleness},
    {"weft_task_staleness_most", "gauge", "the most of them", WORKERS, value_most_stale},
};

size_t metrics_text(const struct launch *l, char *to, size_t size)
{
    struct text t = {to, 0, size};
    char number[MAX_VALUE];

    put(&t,
        "# HELP weft_job_restarts_total how often tasks were started again\n"
        "# TYPE weft_job_restarts_total counter\nweft_job_restarts_total %lld\n",
        (long long)l->restarts);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct metric *m = &table[i];

        put(&t, "# HELP %s %s\n# TYPE %s %s\n", m->name, m->help, m->name, m->type);
        for (int k = 0; k < l->n_tasks; k++) {
            const struct launched *task = &l->task[k];
            double v = m->value(l, task);

            if (task->state == TASK_REMOTE || !(m->of & role_of(task)) || !isfinite(v))
                continue;
            put(&t, "%s{task=\"%s\",role=\"%s\"} %s\n", m->name, task->name, task->role,
                number_text(v, false, number));
        }
    }
    return t.n;
}

/* ---- the server ------------------------------------------------------------------------------ */

#ifdef WF_HAVE_MICROHTTPD
#include <microhttpd.h>

struct metrics {
    void *library;
    struct MHD_Daemon *daemon;
    struct MHD_Daemon *(*start)(unsigned flags, uint16_t port, MHD_AcceptPolicyCallback accept,
                                void *accept_arg, MHD_AccessHandlerCallback handler, void *arg,
                                ...);
    void (*stop)(struct MHD_Daemon *d);
    struct MHD_Response *(*response)(size_t n, void *p, enum MHD_ResponseMemoryMode mode);
    enum MHD_Result (*queue)(struct MHD_Connection *c, unsigned code, struct MHD_Response *r);
    enum MHD_Result (*header)(struct MHD_Response *r, const char *name, const char *value);
    void (*destroy)(struct MHD_Response *r);
    pthread_mutex_t lock; /* of the text */
    char text[MAX_TEXT];
    size_t n;
    double made;
};

static enum MHD_Result answer(void *arg, struct MHD_Connection *c, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *n_data, void **state)
{
    static char nothing[] = "see /metrics\n";
    struct metrics *m = arg;
    bool found = !strcmp(url, "/metrics") && !strcmp(method, "GET");
    struct MHD_Response *r;
    enum MHD_Result done;

    (void)version;
    (void)data;
    (void)state;
    *n_data = 0;
    pthread_mutex_lock(&m->lock);
    r = found ? m->response(m->n, m->text, MHD_RESPMEM_MUST_COPY)
              : m->response(sizeof nothing - 1, nothing, MHD_RESPMEM_PERSISTENT);
    pthread_mutex_unlock(&m->lock);
    if (!r)
        return MHD_NO;
    m->header(r, "Content-Type", "text/plain; version=0.0.4");
    done = m->queue(c, found ? MHD_HTTP_OK : MHD_HTTP_NOT_FOUND, r);
    m->destroy(r);
    return done;
}

static bool load(struct metrics *m)
{
    static const char *const names[] = {"libmicrohttpd.so.12", "libmicrohttpd.so"};

    for (int i = 0; i < 2 && !m->library; i++)
        m->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!m->library)
        return false;
    *(void **)&m->start = dlsym(m->library, "MHD_start_daemon");
    *(void **)&m->stop = dlsym(m->library, "MHD_stop_daemon");
    *(void **)&m->response = dlsym(m->library, "MHD_create_response_from_buffer");
    *(void **)&m->queue = dlsym(m->library, "MHD_queue_response");
    *(void **)&m->header = dlsym(m->library, "MHD_add_response_header");
    *(void **)&m->destroy = dlsym(m->library, "MHD_destroy_response");
    return m->start && m->stop && m->response && m->queue && m->header && m->destroy;
}

static bool read_address(const struct launch *l, struct sockaddr_storage *out, bool *six)
{
    const char *host = l->metrics_host ? l->metrics_host : "127.0.0.1";
    struct sockaddr_in *four = (struct sockaddr_in *)out;
    struct sockaddr_in6 *other = (struct sockaddr_in6 *)out;

    memset(out, 0, sizeof *out);
    *six = inet_pton(AF_INET, host, &four->sin_addr) != 1;
    if (!*six) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)l->metrics_port);
        return true;
    }
    other->sin6_family = AF_INET6;
    other->sin6_port = htons((uint16_t)l->metrics_port);
    return inet_pton(AF_INET6, host, &other->sin6_addr) == 1;
}

int metrics_open(struct launch *l)
{
    struct metrics *m = calloc(1, sizeof *m);
    struct sockaddr_storage address;
    bool six;

    if (!m)
        return fail(EXIT_FAILED, "launch: no memory");
    l->metrics = m;
    pthread_mutex_init(&m->lock, NULL);
    if (!load(m))
        return fail(EXIT_FAILED, "launch: --metrics needs libmicrohttpd, which cannot be loaded: "
                                 "install libmicrohttpd12");
    if (!read_address(l, &address, &six))
        return fail(EXIT_USAGE, "launch: --metrics-host '%s' is not an IP address",
                    l->metrics_host);
    errno = 0;
    m->daemon = m->start(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | (six ? MHD_USE_IPv6 : 0),
                         (uint16_t)l->metrics_port, NULL, NULL, answer, m, MHD_OPTION_SOCK_ADDR,
                         (struct sockaddr *)&address, MHD_OPTION_CONNECTION_LIMIT, 32u,
                         MHD_OPTION_CONNECTION_TIMEOUT, 10u, MHD_OPTION_END);
    if (!m->daemon)
        return fail(EXIT_FAILED, "launch: --metrics: cannot listen on %s port %d%s%s",
                    l->metrics_host ? l->metrics_host : "127.0.0.1", l->metrics_port,
                    errno ? ": " : "", errno ? strerror(errno) : "");
    return EXIT_DONE;
}

void metrics_tend(struct launch *l)
{
    struct metrics *m = l->metrics;
    double now = wall_clock();

    if (!m || now - m->made < 0.2)
        return;
    m->made = now;
    pthread_mutex_lock(&m->lock);
    m->n = metrics_text(l, m->text, sizeof m->text);
    if (m->n >= sizeof m->text)
        m->n = sizeof m->text - 1;
    pthread_mutex_unlock(&m->lock);
}

void metrics_close(struct launch *l)
{
    struct metrics *m = l->metrics;

    if (!m)
        return;
    if (m->daemon)
        m->stop(m->daemon);
    if (m->library)
        dlclose(m->library);
    pthread_mutex_destroy(&m->lock);
    free(m);
    l->metrics = NULL;
}

#else

int metrics_open(struct launch *l)
{
    (void)l;
    return fail(EXIT_USAGE,
                "launch: --metrics needs libmicrohttpd, which this build of weft does not have");
}

void metrics_tend(struct launch *l)
{
    (void)l;
}

void metrics_close(struct launch *l)
{
    (void)l;
}

#endif
