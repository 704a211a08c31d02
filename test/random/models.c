/* models.c - random models, trained for three steps: the program.
 *
 *   models                           what the tests run
 *   models --seeds FROM:TO           many seeds
 *   models --seed N --verbose        one seed, with its model
 *   models --seed N --shrink         the smallest part of its training graph that still fails
 *
 * A seed chooses a model, a configuration and what is compared: the training function against the
 * plain definition, or two trainings that must give identical results (other thread counts,
 * repeated, through JSON, through a file). */
#define _DEFAULT_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "random/layers.h"
#include "train/train.h"

enum { N_BATCHES = 3 };
enum { VERBOSE = 1, SHRINK = 2 }; /* what is printed about one seed */

/* ---- data ------------------------------------------------------------------------------------ */

struct batch {
    weft_tensor x[2], y[MAX_ENDS];
};

static void fill_input(struct draw *d, const weft_tensor *sample, int64_t n, weft_tensor *out)
{
    *out = *sample;
    out->rank++;
    for (int i = 0; i < sample->rank; i++)
        out->dim[i + 1] = sample->dim[i];
    out->dim[0] = n;
    out->data = malloc((size_t)weft_tensor_bytes(out) + 64);
    for (int64_t i = 0; i < weft_tensor_count(out); i++)
        if (out->dtype == WEFT_I32)
            ((int32_t *)out->data)[i] = (int32_t)draw_int(d, 0, 6);
        else
            ((float *)out->data)[i] = (float)draw_real(d, -1, 1);
}

/* Labels that the loss can use: class numbers, one-hot rows, 0 and 1, or numbers. */
static void fill_label(struct draw *d, const char *loss, const weft_tensor *p, int64_t n,
                       weft_tensor *y)
{
    int64_t width = p->dim[p->rank - 1];

    *y = *p;
    y->dim[0] = n;
    if (!strncmp(loss, "sparse", 6)) {
        y->dtype = WEFT_I32;
        y->rank--;
    }
    y->data = malloc((size_t)weft_tensor_bytes(y) + 64);
    for (int64_t i = 0; i < weft_tensor_count(y); i++)
        if (y->dtype == WEFT_I32)
            ((int32_t *)y->data)[i] = (int32_t)draw_int(d, 0, width - 1);
        else if (!strncmp(loss, "categorical", 11))
            ((float *)y->data)[i] = i % width == i / width % width;
        else if (!strncmp(loss, "binary", 6) || strstr(loss, "hinge"))
            ((float *)y->data)[i] = (float)draw_int(d, 0, 1);
        else
            ((float *)y->data)[i] = (float)draw_real(d, -1, 1);
}

static weft_status draw_batches(const struct recipe *r, const weft_model *m, uint64_t seed,
                                struct batch *b)
{
    struct draw d = draw_from(seed, 22);
    weft_status st = WEFT_OK;

    for (int k = 0; k < N_BATCHES; k++) {
        int64_t n = k == 1 && r->batch > 2 && !r->shards ? r->batch - 1 : r->batch;

        for (int i = 0; i < r->n_inputs; i++)
            fill_input(&d, &r->input[i], n, &b[k].x[i]);
        for (int i = 0; i < r->n_ends && !st; i++) {
            weft_tensor p;

            st = weft_sym_type(m, weft_model_output_at(m, i), &p);
            if (!st)
                fill_label(&d, r->loss_kind[i], &p, n, &b[k].y[i]);
        }
    }
    return st;
}

static void free_batches(const struct recipe *r, struct batch *b)
{
    for (int k = 0; k < N_BATCHES; k++) {
        for (int i = 0; i < r->n_inputs; i++)
            free(b[k].x[i].data);
        for (int i = 0; i < r->n_ends; i++)
            free(b[k].y[i].data);
    }
}

/* ---- training -------------------------------------------------------------------------------- */

enum way { AS_IS, JSON, FILE_, N_WAYS };

/* All results of a training, as numbers. */
struct numbers {
    double *v;
    int64_t n, cap;
};

static void add_number(struct numbers *out, double v)
{
    if (out->n == out->cap)
        out->v = realloc(out->v, sizeof *out->v * (size_t)(out->cap = 2 * out->cap + 256));
    out->v[out->n++] = v;
}

static void add_tensor(struct numbers *out, const weft_tensor *t)
{
    for (int64_t i = 0; i < weft_tensor_count(t); i++)
        add_number(out, wf_get(t->data, t->dtype, i));
}

/* The model, directly or through JSON. */
static weft_status make_model(const struct recipe *r, weft_ctx *ctx, enum way way, weft_model **out)
{
    weft_model *m = NULL;
    char *json = NULL;
    weft_status st = recipe_build(r, ctx, &m);

    if (st || way == AS_IS) {
        *out = m;
        return st;
    }
    st = weft_model_json(m, &json);
    if (!st)
        st = weft_model_parse(ctx, json, (int64_t)strlen(json), out);
    weft_text_free(ctx, json);
    weft_model_free(m);
    return st;
}

/* A model whose outputs do not depend on its weights cannot be trained; that is not what this test
 * is about. */
static bool is_untrainable(weft_status st)
{
    return st == WEFT_EINVAL && strstr(weft_error(), "does not depend on any trained weight");
}

static weft_status compile(const struct recipe *r, weft_model *m, weft_trainer **out)
{
    return weft_compile(m,
                        WEFT_OPTS(weft_compile_opts, .optimizer = r->optimizer, .loss = r->loss,
                                  .metrics = r->metrics, .shards = r->shards),
                        out);
}

/* Saves weights to a file and loads them into a new trainer: its predictions must be identical. */
static weft_status predict(weft_trainer *t, const struct recipe *r, const struct batch *b,
                           enum way way, struct numbers *out)
{
    weft_tensor y[MAX_ENDS] = {{.data = NULL}};
    weft_trainer *other = NULL;
    weft_model *m = NULL;
    char path[64];
    weft_status st = WEFT_OK;

    if (way == FILE_) {
        snprintf(path, sizeof path, "random-model-%ld.safetensors", (long)getpid());
        st = weft_trainer_save(t, path);
        if (!st)
            st = weft_model_load(t->ctx, path, &m);
        if (!st)
            st = weft_compile(m, NULL, &other);
        if (!st)
            st = weft_trainer_load_weights(other, path, NULL, NULL);
        unlink(path);
    }
    if (!st)
        st = weft_predict_on_batch(other ? other : t, b->x, y);
    for (int i = 0; i < r->n_ends && !st; i++)
        add_tensor(out, &y[i]);
    weft_trainer_free(other);
    weft_model_free(m);
    return st;
}

static weft_status train(const struct recipe *r, weft_ctx *ctx, enum way way, uint64_t seed,
                         struct numbers *out)
{
    struct batch b[N_BATCHES] = {{.x = {{.data = NULL}}}};
    weft_model *m = NULL;
    weft_trainer *t = NULL;
    weft_status st = make_model(r, ctx, way, &m);

    if (!st)
        st = draw_batches(r, m, seed, b);
    if (!st)
        st = compile(r, m, &t);
    for (int k = 0; k < N_BATCHES && !st; k++) {
        weft_logs logs;

        st = weft_train_on_batch(t, b[k].x, b[k].y, NULL, &logs);
        for (int i = 0; !st && i < logs.n; i++)
            add_number(out, logs.value[i]);
    }
    for (int i = 0; !st && i < weft_trainer_n_weights(t); i++) {
        weft_tensor w;

        st = weft_trainer_weight(t, weft_trainer_weight_name(t, i), &w);
        if (!st)
            add_tensor(out, &w);
    }
    if (!st)
        st = predict(t, r, &b[0], way, out);
    weft_trainer_free(t);
    weft_model_free(m);
    free_batches(r, b);
    return st;
}

static bool same_number(double a, double b)
{
    return a == b || (a != a && b != b);
}

/* Two trainings that must give identical results. */
static weft_status same_training(const struct recipe *r, const struct config *f, uint64_t seed,
                                 struct report *out)
{
    static const char *const way_names[N_WAYS] = {"repeated", "through JSON", "through a file"};
    static const int threads[] = {1, 2, 3, 7};
    struct draw d = draw_from(seed, 23);
    enum way way = (enum way)draw_int(&d, 0, N_WAYS - 1);
    struct config other = *f;
    struct numbers a = {.n = 0}, b = {.n = 0};
    weft_status st;

    other.threads = threads[draw_int(&d, 0, 3)];
    st = train(r, config_ctx(f), AS_IS, seed, &a);
    if (!st)
        st = train(r, config_ctx(&other), way, seed, &b);
    if (st)
        snprintf(out->text, sizeof out->text, "%s: %s", way_names[way], weft_error());
    out->failed = st && !is_untrainable(st);
    if (!st && !out->failed && a.n != b.n) {
        out->failed = true;
        snprintf(out->text, sizeof out->text, "%s: %lld numbers, expected %lld", way_names[way],
                 (long long)b.n, (long long)a.n);
    }
    for (int64_t i = 0; !st && i < a.n && !out->failed; i++)
        if (!same_number(a.v[i], b.v[i])) {
            out->failed = true;
            snprintf(out->text, sizeof out->text, "%s, %d threads: number %lld is %.9g, was %.9g",
                     way_names[way], other.threads, (long long)i, b.v[i], a.v[i]);
        }
    free(a.v);
    free(b.v);
    return WEFT_OK;
}

/* ---- against the plain definition ------------------------------------------------------------ */

/* The training function's graph as a case. */
static weft_status as_case(weft_trainer *t, const struct recipe *r, const struct batch *b,
                           uint64_t seed, struct graph_case *c)
{
    static float rate = 0.01f;
    weft_fn *fn = t->bound->fit;
    char *text = NULL;
    weft_status st;

    *c = (struct graph_case){.ctx = t->ctx, .seed = seed, .n_sets = N_BATCHES};
    if (fn->n_feeds > MAX_FEEDS || fn->n_fetches > MAX_FETCHES || fn->n_updates > MAX_UPDATES)
        return WEFT_ELIMIT;
    st = weft_graph_text(fn->graph, &text); /* a copy with its own variables */
    if (!st)
        st = weft_graph_parse(t->ctx, text, (int64_t)strlen(text), &c->g);
    weft_text_free(t->ctx, text);
    if (st)
        return st;
    plain_init(&c->first, t->ctx, c->g);
    c->n_feeds = fn->n_feeds;
    c->n_fetches = fn->n_fetches;
    c->n_updates = fn->n_updates;
    for (int i = 0; i < c->n_feeds; i++)
        c->feed[i].id = fn->feeds[i];
    for (int i = 0; i < c->n_fetches; i++)
        c->fetch[i].id = fn->roots[i];
    for (int i = 0; i < c->n_updates; i++)
        c->update[i].id = fn->roots[c->n_fetches + i];
    for (int k = 0; k < N_BATCHES; k++) {
        int n = 0;

        for (int i = 0; i < r->n_inputs; i++)
            c->feeds[k][n++] = b[k].x[i];
        for (int i = 0; i < r->n_ends; i++)
            c->feeds[k][n++] = b[k].y[i];
        while (n < c->n_feeds)
            c->feeds[k][n++] = weft_view(WEFT_F32, &rate, 0, NULL);
    }
    c->var = wf_arena_alloc(&c->first.arena, sizeof *c->var * (size_t)(c->g->n_vars + 1));
    for (int64_t i = 0; i < c->g->n_vars && !st; i++) {
        weft_tensor v;

        st = weft_fn_view(fn, weft_val_name(c->g, (weft_val){c->g->vars[i]}), &v);
        if (!st)
            c->var[i] = (struct wf_tensor){wf_type_of(v.dtype, v.rank, v.dim), v.data};
    }
    return st;
}

static weft_status against_plain_model(const struct recipe *r, const struct config *f,
                                       uint64_t seed, unsigned look, struct report *out)
{
    struct recipe whole = *r;
    struct batch b[N_BATCHES] = {{.x = {{.data = NULL}}}};
    struct graph_case c = {.n_feeds = 0};
    weft_model *m = NULL;
    weft_trainer *t = NULL;
    weft_status st;

    whole.shards = 0;
    st = recipe_build(&whole, config_ctx(f), &m);
    if (!st)
        st = draw_batches(&whole, m, seed, b);
    if (!st)
        st = compile(&whole, m, &t);
    if (!st)
        st = weft_train_on_batch(t, b[0].x, b[0].y, NULL, NULL); /* creates the function */
    if (!st) {
        st = as_case(t, &whole, b, seed, &c);
        if (!st && (look & VERBOSE))
            case_show(&c, f, AGAINST_PLAIN);
        if (!st && (look & SHRINK))
            case_show_smaller(&c, f, AGAINST_PLAIN);
        if (!st)
            st = check_case(&c, f, AGAINST_PLAIN, out);
        else if (st == WEFT_ELIMIT)
            st = WEFT_OK;
        case_free(&c);
    }
    if (st && !is_untrainable(st)) {
        out->failed = true;
        snprintf(out->text, sizeof out->text, "%s: %s", weft_status_name(st), weft_error());
    }
    weft_trainer_free(t);
    weft_model_free(m);
    free_batches(&whole, b);
    return WEFT_OK;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

struct shared {
    volatile int64_t seed, n_failed, n_models;
    volatile bool drawn[256];
};

static void cover_kinds(const struct recipe *r, struct shared *s)
{
    for (int i = 0; i < r->n_steps; i++)
        for (int k = 0; k < n_layer_rules; k++)
            if (!strcmp(r->step[i].kind, layer_rules[k].kind))
                s->drawn[k] = true;
}

static bool run_seed(const char *program, int64_t seed, unsigned look, struct shared *s)
{
    struct draw d = draw_from((uint64_t)seed, 20);
    struct config f = config_draw(&d);
    bool plain = !draw_one_in(&d, 3);
    struct recipe r;
    struct report out = {.failed = false};
    char buf[128];

    if (!plain)
        f.threads = 1;
    f.text = false;
    if (recipe_draw(&r, config_ctx(&f), (uint64_t)seed))
        return false;
    cover_kinds(&r, s);
    s->n_models++;
    if (look)
        recipe_show(&r, stdout);
    if (plain)
        against_plain_model(&r, &f, (uint64_t)seed, look, &out);
    else
        same_training(&r, &f, (uint64_t)seed, &out);
    if (out.failed)
        printf("seed %lld: %s\n  %s; %s\n  replay: %s --seed %lld --shrink\n", (long long)seed,
               out.text, plain ? "plain definition" : "same bits", config_text(&f, buf), program,
               (long long)seed);
    fflush(stdout);
    return out.failed;
}

/* Runs in a child process, which is restarted after each crash. */
static void run_seeds(const char *program, int64_t from, int64_t to, struct shared *s)
{
    s->seed = from;
    while (s->seed < to) {
        int status = 0;
        pid_t pid;

        fflush(stdout);
        pid = fork();
        if (pid == 0) {
            for (; s->seed < to; s->seed++) {
                time_limit(60);
                s->n_failed += run_seed(program, s->seed, 0, s);
            }
            configs_end();
            _exit(0);
        }
        if (pid < 0 || waitpid(pid, &status, 0) < 0)
            return;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            continue;
        printf("seed %lld: killed by signal %d\n  replay: %s --seed %lld --verbose\n",
               (long long)s->seed, WIFSIGNALED(status) ? WTERMSIG(status) : 0, program,
               (long long)s->seed);
        s->n_failed++;
        s->seed++;
    }
}

/* Kinds of layers without a rule, and rules that were never drawn. */
static int uncovered(const struct shared *s)
{
    const char *name;
    int missing = 0;

    for (int i = 0; weft_layer_kind_at(i, &name, NULL, NULL); i++) {
        int k = 0;

        while (k < n_layer_rules && strcmp(layer_rules[k].kind, name))
            k++;
        if (k == n_layer_rules)
            printf("layer '%s' is not covered: give it a row in test/random/layers.c\n", name);
        else if (!layer_rules[k].why && !s->drawn[k])
            printf("layer '%s' never occurred in a model\n", name);
        else
            continue;
        missing++;
    }
    return missing;
}

int main(int argc, char **argv)
{
    bool quick = getenv("WEFT_TEST_QUICK") != NULL, cover = !quick;
    unsigned look = 0;
    struct shared *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    long long from = 0, to = quick ? 100 : 800, seed = -1;

    cover_begin();
    for (int i = 1; i < argc; i++) {
        const char *v = i + 1 < argc ? argv[i + 1] : "";

        if (!strcmp(argv[i], "--verbose")) {
            look |= VERBOSE;
        } else if (!strcmp(argv[i], "--shrink")) {
            look |= SHRINK;
        } else if (!strcmp(argv[i], "--seeds") && sscanf(v, "%lld:%lld", &from, &to) == 2) {
            cover = false;
            i++;
        } else if (!strcmp(argv[i], "--seed") && *v) {
            seed = atoll(v);
            i++;
        } else if (!strcmp(argv[i], "--device") && configs_on(v)) {
            cover = false;
            i++;
        } else {
            fprintf(stderr,
                    "usage: %s [--seeds FROM:TO] [--seed N] [--device emulated|fake] [--verbose] "
                    "[--shrink]\n",
                    argv[0]);
            return 2;
        }
    }
    if (seed >= 0) {
        bool failed = run_seed(argv[0], seed, look, s);

        configs_end();
        printf("seed %lld: %s\n", seed, failed ? "FAILED" : "ok");
        return failed;
    }
    run_seeds(argv[0], from, to, s);
    if (cover)
        s->n_failed += uncovered(s);
    printf("%lld seeds, %lld models: %lld failures\n", to - from, (long long)s->n_models,
           (long long)s->n_failed);
    return s->n_failed != 0;
}
