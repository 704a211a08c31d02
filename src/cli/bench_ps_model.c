/* bench_ps_model.c - weft bench ps --simulate: how fast larger jobs would be.
 *
 * What the parts of a step cost is measured with small jobs of this machine; weft_ps_predict makes
 * predictions of it, which are compared with real jobs first. Each worker computes a batch of the
 * workload, so that n workers train n times as many samples a step. */
#include <math.h>
#include <unistd.h>

#include <weft/sys/predict.h>

#include "bench_ps.h"

enum { MAX_WORKERS = 256, PIECE = 4 << 20, LEAST_PIECE = 128 << 10 };
#define LATENCY_S 2e-5 /* of a link between machines */

/* What is measured. */
struct costs {
    double shard_s;                   /* computing a batch */
    double add_byte_s, update_byte_s; /* of a server */
    double message_s;
    double wire_byte_s; /* the most that tcp does here */
};

/* What is printed where. */
struct output {
    const struct setting *s;
    FILE *to;
    bool json;
};

static double at_least(double x, double least)
{
    return x > least ? x : least;
}

/* ---- measuring ------------------------------------------------------------------------------- */

static weft_status run_job(const struct setting *s, struct procs *p, int servers, int workers,
                           int shards, const char *transport, struct figures *f)
{
    static int n_jobs;
    char prefix[16];
    struct setting job = *s;
    struct shape shape;

    snprintf(prefix, sizeof prefix, "j%d-", n_jobs++);
    job.prefix = prefix;
    job.servers = servers;
    job.workers = workers;
    job.shards = shards;
    job.transport = transport;
    job.replicas = 1;
    job.batch = 0;
    job.batch = shape_of(&job).batch * (s->workload ? shards : 1);
    shape = shape_of(&job);
    return bench_ps_alone(&job, &shape, p, f);
}

/* A message: a job whose parameters are next to nothing. A byte that is added or updated: what a
 * server does with one contribution, and with two. */
static weft_status measure_costs(const struct setting *s, struct procs *p, struct costs *c)
{
    struct setting tiny = *s, bytes = *s;
    double n = (double)shape_bytes((struct shape[1]){shape_of(s)}), once, twice;
    struct figures f;
    weft_status st;

    tiny.workload = "softmax64";
    st = run_job(&tiny, p, 1, 1, 1, "shm", &f);
    if (st)
        return st;
    c->message_s = f.busy_s / at_least(f.messages, 1);
    st = run_job(s, p, 1, 1, 1, "shm", &f);
    if (st)
        return st;
    once = at_least(f.busy_s - f.messages * c->message_s, 0) / n;
    c->shard_s = (1 - f.waited) / f.steps_s;
    st = run_job(s, p, 1, 1, 2, "shm", &f);
    if (st)
        return st;
    twice = at_least(f.busy_s - f.messages * c->message_s, 0) / n;
    c->add_byte_s = fmin(at_least(twice - once, 0), once);
    c->update_byte_s = once - c->add_byte_s;
    bytes.workload = NULL;
    bytes.bytes = 32 << 20;
    bytes.steps = 0;
    st = run_job(&bytes, p, 1, 1, 1, "tcp", &f);
    if (!st)
        c->wire_byte_s = 1 / (f.steps_s * 2 * (double)bytes.bytes);
    return st;
}

static void print_costs(const struct output *o, const struct costs *c)
{
    if (o->json)
        fprintf(o->to,
                "{\"what\": \"costs\", \"shard_s\": %.6g, \"message_s\": %.3g, \"add_byte_s\": "
                "%.3g, \"update_byte_s\": %.3g, \"tcp_byte_s\": %.3g}\n",
                c->shard_s, c->message_s, c->add_byte_s, c->update_byte_s, c->wire_byte_s);
    else
        fprintf(o->to,
                "measured: %.2f ms for a batch, %.1f us for a message, %.2f ns to add a byte, %.2f "
                "ns to update one, %.2f ns for\none over tcp\n\n",
                c->shard_s * 1e3, c->message_s * 1e6, c->add_byte_s * 1e9, c->update_byte_s * 1e9,
                c->wire_byte_s * 1e9);
}

/* ---- predicting ------------------------------------------------------------------------------ */

/* The first third of a batch is the forward pass, about. */
static weft_status predict(weft_ctx *ctx, const struct setting *s, const struct costs *c,
                           weft_ps_costs more, weft_ps_prediction *out)
{
    weft_status st;

    more.size = sizeof more;
    more.bytes = shape_bytes((struct shape[1]){shape_of(s)});
    more.forward_s = c->shard_s / 3;
    more.backward_s = c->shard_s - more.forward_s;
    more.add_byte_s = c->add_byte_s;
    more.update_byte_s = c->update_byte_s;
    more.message_s = c->message_s;
    *out = (weft_ps_prediction){.size = sizeof *out};
    st = weft_ps_predict(ctx, &more, out);
    if (st)
        fail_status(st, "bench ps");
    return st;
}

static void print_checked(const struct output *o, int servers, int workers, double real,
                          double predicted)
{
    if (o->json)
        fprintf(o->to,
                "{\"what\": \"check\", \"servers\": %d, \"workers\": %d, \"measured_steps_s\": "
                "%.2f, \"steps_s\": %.2f}\n",
                servers, workers, real, predicted);
    else
        fprintf(o->to, "%7d %7d   %9.1f  %9.1f   %.2f\n", servers, workers, real, predicted,
                predicted / real);
    fflush(o->to);
}

/* Real jobs on the cores of this machine. */
static weft_status check_real(weft_ctx *ctx, const struct output *o, const struct costs *c,
                              struct procs *p)
{
    static const int job[][2] = {{1, 1}, {1, 2}, {1, 3}, {1, 4}, {2, 2}, {2, 4}};
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    weft_status st = WEFT_OK;

    if (!o->json)
        fprintf(o->to, "servers workers   measured  predicted   steps/s on %d cores, shm\n", cores);
    for (size_t i = 0; i < sizeof job / sizeof *job && !st; i++) {
        weft_ps_prediction q = {.size = sizeof q};
        struct figures f;

        st = run_job(o->s, p, job[i][0], job[i][1], job[i][1], "shm", &f);
        if (!st)
            st = predict(
                ctx, o->s, c,
                (weft_ps_costs){.servers = job[i][0], .workers = job[i][1], .cores = cores}, &q);
        if (!st)
            print_checked(o, job[i][0], job[i][1], f.steps_s, q.steps_s);
    }
    return st;
}

/* ---- curves ---------------------------------------------------------------------------------- */

enum { N_LINKS = 2, N_SERVERS = 7, N_WORKERS = 9 }; /* powers of two */
static const int gbit[N_LINKS] = {10, 100};

struct curves {
    double steps_s[N_LINKS][N_SERVERS][N_WORKERS];
    double alone; /* one worker, without a link */
};

/* How many times as many samples a second as one worker alone. */
static double speedup(const struct curves *v, int link, int servers, int workers)
{
    return v->steps_s[link][servers][workers] * (1 << workers) / v->alone;
}

static const char *limit_name(const weft_ps_prediction *q)
{
    return q->worker_busy >= q->server_busy && q->worker_busy >= q->link_busy ? "workers"
           : q->server_busy >= q->link_busy                                   ? "servers"
                                                                              : "links";
}

static weft_status predict_all(weft_ctx *ctx, const struct output *o, const struct costs *c,
                               struct curves *v)
{
    int64_t bytes = shape_bytes((struct shape[1]){shape_of(o->s)});
    weft_ps_prediction q;
    weft_status st = predict(ctx, o->s, c, (weft_ps_costs){.servers = 1, .workers = 1}, &q);

    v->alone = q.steps_s;
    for (int i = 0; i < N_LINKS * N_SERVERS * N_WORKERS && !st; i++) {
        int w = i % N_WORKERS, s = i / N_WORKERS % N_SERVERS, l = i / N_WORKERS / N_SERVERS;
        int64_t piece = (bytes + (4 << s) - 1) / (4 << s); /* four a server */
        weft_ps_costs more = {.servers = 1 << s,
                              .workers = 1 << w,
                              .latency_s = LATENCY_S,
                              .steps = 8,
                              .wire_byte_s = at_least(8e-9 / gbit[l], c->wire_byte_s)};

        more.piece_bytes = piece > PIECE ? PIECE : piece < LEAST_PIECE ? LEAST_PIECE : piece;
        st = predict(ctx, o->s, c, more, &q);
        v->steps_s[l][s][w] = q.steps_s;
        if (!st && o->json)
            fprintf(o->to,
                    "{\"what\": \"prediction\", \"gbit\": %d, \"servers\": %d, \"workers\": %d, "
                    "\"steps_s\": %.3f, \"speedup\": %.2f, \"limited_by\": \"%s\"}\n",
                    gbit[l], 1 << s, 1 << w, q.steps_s, speedup(v, l, s, w), limit_name(&q));
    }
    return st;
}

static void print_curves(const struct output *o, const struct curves *v)
{
    for (int l = 0; l < N_LINKS && !o->json; l++) {
        fprintf(o->to,
                "\n%d Gbit: samples a second, as multiples of one worker alone\nworkers:", gbit[l]);
        for (int w = 0; w < N_WORKERS; w++)
            fprintf(o->to, "%8d", 1 << w);
        for (int s = 0; s < N_SERVERS; s++) {
            fprintf(o->to, "\n%2d server%s", 1 << s, s ? "s" : " ");
            for (int w = 0; w < N_WORKERS; w++)
                fprintf(o->to, "%8.2f", speedup(v, l, s, w));
        }
        fprintf(o->to, "\n");
    }
}

/* ---- a picture ------------------------------------------------------------------------------- */

enum { LEFT = 50, TOP = 34, SIDE = 300, GAP = 110 };

/* Both axes are powers of two, from 1 to MAX_WORKERS. */
static double place(double x)
{
    double l = log2(at_least(x, 0.5));

    return l / log2(MAX_WORKERS) * SIDE;
}

static void draw_axes(FILE *to, double x, const char *title)
{
    fprintf(to, "<text x=\"%g\" y=\"18\" class=\"title\">%s</text>\n", x, title);
    for (int i = 0; i < N_WORKERS; i++) {
        double at = place(1 << i);

        fprintf(to,
                "<path class=\"grid\" d=\"M%g %dv%d M%g %gh%d\"/>\n<text x=\"%g\" y=\"%d\" "
                "text-anchor=\"middle\">%d</text>\n<text x=\"%g\" y=\"%g\" "
                "text-anchor=\"end\">%d</text>\n",
                x + at, TOP, SIDE, x, TOP + SIDE - at, SIDE, x + at, TOP + SIDE + 16, 1 << i, x - 6,
                TOP + SIDE - at + 4, 1 << i);
    }
    fprintf(to, "<text x=\"%g\" y=\"%d\" text-anchor=\"middle\">workers</text>\n", x + SIDE / 2.0,
            TOP + SIDE + 34);
    fprintf(to, "<path class=\"ideal\" d=\"M%g %dL%g %d\"/>\n", x, TOP + SIDE, x + SIDE, TOP);
}

static void draw_curve(FILE *to, const struct curves *v, int link, int servers, double x)
{
    static const char *const color[N_SERVERS] = {"#440154", "#46327e", "#365c8d", "#277f8e",
                                                 "#1fa187", "#4ac16d", "#9fb01f"};
    double end = TOP + SIDE - place(speedup(v, link, servers, N_WORKERS - 1));

    fprintf(to, "<path class=\"curve\" stroke=\"%s\" d=\"", color[servers]);
    for (int w = 0; w < N_WORKERS; w++)
        fprintf(to, "%s%.1f %.1f", w ? "L" : "M", x + place(1 << w),
                TOP + SIDE - place(speedup(v, link, servers, w)));
    fprintf(to, "\"/>\n<text x=\"%g\" y=\"%.1f\" fill=\"%s\">%d server%s</text>\n", x + SIDE + 6,
            end + 4, color[servers], 1 << servers, servers ? "s" : "");
}

static void draw(const struct setting *s, const struct curves *v, FILE *to)
{
    int width = LEFT + N_LINKS * (SIDE + GAP), height = TOP + SIDE + 46;

    fprintf(to,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
            "%d\">\n<style>text{font:11px sans-serif}.title{font-size:13px}"
            ".grid{stroke:#ddd;fill:none}.ideal{stroke:#999;stroke-dasharray:4 3;fill:none}"
            ".curve{stroke-width:2;fill:none}</style>\n<rect width=\"100%%\" height=\"100%%\" "
            "fill=\"#fff\"/>\n",
            width, height, width, height);
    for (int l = 0; l < N_LINKS; l++) {
        double x = LEFT + l * (SIDE + GAP);
        char title[96];

        snprintf(title, sizeof title, "%s, %d Gbit: samples/s, as multiples of one worker",
                 s->workload ? s->workload : "push and pull", gbit[l]);
        draw_axes(to, x, title);
        for (int n = 0; n < N_SERVERS; n++)
            draw_curve(to, v, l, n, x);
    }
    fprintf(to, "</svg>\n");
}

/* ---- the command ----------------------------------------------------------------------------- */

static weft_status simulate(const struct output *o, struct procs *p, struct curves *v)
{
    struct costs c = {0};
    weft_ctx *ctx;
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx);

    if (st)
        return st;
    st = measure_costs(o->s, p, &c);
    if (!st) {
        print_costs(o, &c);
        st = check_real(ctx, o, &c, p);
    }
    if (!st)
        st = predict_all(ctx, o, &c, v);
    weft_ctx_free(ctx);
    return st;
}

static int run(const struct output *o, FILE *picture)
{
    static struct procs p; /* until the end: a thread waits for signals */
    static struct curves v;
    weft_status st;

    if (!procs_open(&p, "bench ps"))
        return EXIT_FAILED;
    st = simulate(o, &p, &v);
    procs_close(&p);
    if (st)
        return EXIT_FAILED;
    print_curves(o, &v);
    if (picture)
        draw(o->s, &v, picture);
    return EXIT_DONE;
}

/* Whether everything was written. */
static bool finish(FILE *to)
{
    bool ok = !ferror(to);

    return (to == stdout ? fflush(to) : fclose(to)) == 0 && ok;
}

int bench_ps_simulate(const struct setting *s, const char *svg)
{
    struct output o = {s, stdout, s->json != NULL};
    FILE *picture = NULL;
    int rc;

    if (s->workload && strcmp(s->workload, "widedeep") == 0)
        return fail(EXIT_USAGE, "bench ps: --simulate has no model of tables");
    if (s->json && strcmp(s->json, "-") && !(o.to = fopen(s->json, "w")))
        return fail(EXIT_INPUT, "cannot write %s", s->json);
    if (svg && !(picture = fopen(svg, "w"))) {
        finish(o.to);
        return fail(EXIT_INPUT, "cannot write %s", svg);
    }
    rc = run(&o, picture);
    if (!finish(o.to) || (picture && !finish(picture)))
        return fail(EXIT_FAILED, "bench ps: not everything could be written");
    return rc;
}
