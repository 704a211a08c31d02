/* bench_ps_work.c - what `weft bench ps` trains: the workloads, and a model of so many bytes. */
#include "bench_ps.h"

enum { TABLE_ROWS = 100000, TABLE_WIDTH = 16, MAX_LAYERS = 512 /* 2 GB */ };

static const struct shape shapes[] = {
    {"softmax64",
     2,
     1024,
     400,
     {64, 10},
     "sgd learning_rate=0.01 momentum=0.9",
     0,
     0,
     0,
     0,
     0,
     false},
    {"mlp-s", 3, 128, 300, {784, 128, 10}, "adam learning_rate=0.001", 0, 0, 0, 0, 0, false},
    {"mlp-l",
     4,
     256,
     40,
     {784, 1024, 1024, 10},
     "sgd learning_rate=0.01 momentum=0.9",
     0,
     0,
     0,
     0,
     0,
     false},
    {"widedeep",
     4,
     2048,
     20,
     {13, 512, 256, 1},
     "adagrad learning_rate=0.01",
     MAX_TABLES,
     0,
     TABLE_ROWS,
     TABLE_WIDTH,
     0,
     false},
};
#define N_SHAPES ((int)(sizeof shapes / sizeof *shapes))

const char *shape_name(int i)
{
    return i < N_SHAPES ? shapes[i].name : NULL;
}

/* A model in which nothing is computed but gradients that are as large as it: a sample for each
 * worker, and layers of 4 MB side by side, each with inputs of its own, whose outputs are added. So
 * a step reads every parameter once and writes every gradient once. */
static struct shape bytes_shape(const struct setting *s)
{
    int n = (int)((int64_t)s->bytes >> 22);

    return (struct shape){.name = "dense",
                          .batch = s->workers,
                          .steps = 10,
                          .size = {1024},
                          .optimizer = "sgd learning_rate=0.0001",
                          .n_layers = n < 1 ? 1 : n};
}

struct shape shape_of(const struct setting *s)
{
    struct shape shape = bytes_shape(s);

    for (int i = 0; i < N_SHAPES && s->workload; i++)
        if (strcmp(shapes[i].name, s->workload) == 0)
            shape = shapes[i];
    if (s->batch)
        shape.batch = s->batch;
    if (s->tables)
        shape.n_tables = s->tables;
    if (s->width_of_row)
        shape.row_width = s->width_of_row;
    shape.fresh = s->rows > 0;
    shape.forget = s->forget;
    if (s->rows)
        shape.n_rows = s->rows;
    return shape;
}

int64_t shape_bytes(const struct shape *shape)
{
    int64_t n = shape->n_layers * shape->size[0] * 1024,
            in = shape->size[0] + (int64_t)shape->row_width * shape->n_tables;

    for (int i = 1; i < shape->n_sizes; i++) {
        n += (in + 1) * shape->size[i];
        in = shape->size[i];
    }
    return n * (int64_t)sizeof(float);
}

/* A row of each table besides the other inputs. */
static weft_sym look_up(const struct shape *shape, struct training *t, weft_sym x)
{
    weft_sym part[MAX_TABLES + 1];
    char name[16], attrs[160], evict[40] = "";

    if (shape->forget)
        snprintf(evict, sizeof evict, " evict=unused(%d)", shape->forget);
    snprintf(attrs, sizeof attrs,
             "input_dim=%d output_dim=%d embeddings_initializer=random_normal(0,0.01)%s",
             shape->n_rows, shape->row_width, evict);
    for (int i = 0; i < shape->n_tables; i++) {
        snprintf(name, sizeof name, "id%d", i);
        part[i] = weft_apply(t->model, "Embedding", attrs,
                             weft_input(t->model, name, WEFT_I32, 1, (int64_t[]){1}));
        part[i] = weft_apply(t->model, "Flatten", NULL, part[i]);
    }
    part[shape->n_tables] = x;
    return weft_apply_n(t->model, "Concatenate", NULL, shape->n_tables + 1, part);
}

/* Layers side by side, added up. */
static weft_sym add_layers(const struct shape *shape, struct training *t)
{
    weft_sym part[MAX_LAYERS] = {{0}};
    char name[16];

    for (int i = 0; i < shape->n_layers; i++) {
        snprintf(name, sizeof name, "x%d", i);
        part[i] = weft_apply(t->model, "Dense", "units=1024 use_bias=false",
                             weft_input(t->model, name, WEFT_F32, 1, shape->size));
    }
    return shape->n_layers > 1 ? weft_apply_n(t->model, "Add", NULL, shape->n_layers, part)
                               : part[0];
}

static void build(const struct shape *shape, struct training *t)
{
    weft_sym v;
    char attrs[64];

    v = shape->n_layers ? add_layers(shape, t)
                        : weft_input(t->model, "x", WEFT_F32, 1, shape->size);
    if (shape->n_tables)
        v = look_up(shape, t, v);
    for (int i = 1; i < shape->n_sizes; i++) {
        snprintf(attrs, sizeof attrs, "units=%lld%s", (long long)shape->size[i],
                 i + 1 < shape->n_sizes ? " activation=relu" : "");
        v = weft_apply(t->model, "Dense", attrs, v);
    }
    weft_model_output(t->model, v);
}

/* What a step looks up: the same in all processes. */
static void draw_ids(struct training *t, uint32_t r)
{
    for (int k = 0; k < t->n_tables; k++)
        for (int i = 0; i < t->batch; i++) {
            uint32_t high = r = r * 1664525 + 1013904223;

            r = r * 1664525 + 1013904223;
            t->id[k][i] =
                (int32_t)(((uint64_t)(high >> 16) << 16 | r >> 16) * (uint64_t)t->n_rows >> 32);
        }
}

static weft_status make_data(struct training *t, const struct shape *shape)
{
    int64_t n = shape->batch * shape->size[0] * (shape->n_layers ? shape->n_layers : 1);
    uint32_t r = 7;

    t->width = shape->size[0];
    t->batch = shape->batch;
    t->n_tables = shape->n_tables;
    t->n_layers = shape->n_layers;
    t->n_rows = shape->n_rows;
    t->fresh = shape->fresh;
    for (int k = 0; k < t->n_tables; k++) {
        t->id[k] = malloc((size_t)t->batch * sizeof *t->id[k]);
        if (!t->id[k])
            return WEFT_ENOMEM;
    }
    draw_ids(t, r);
    t->target = calloc((size_t)t->batch, sizeof *t->target);
    t->x = malloc((size_t)n * sizeof *t->x);
    t->y = malloc((size_t)t->batch * sizeof *t->y);
    if (!t->x || !t->y || !t->target)
        return WEFT_ENOMEM;
    for (int64_t i = 0; i < n; i++) {
        r = r * 1664525 + 1013904223;
        t->x[i] = (float)(r >> 8) / (1 << 23) - 1;
    }
    for (int i = 0; i < t->batch; i++) {
        t->y[i] = i * 7 % 10;
        t->target[i] = (float)(i * 7 % 10 > 6);
    }
    return WEFT_OK;
}

weft_status open_training(const struct setting *s, const struct shape *shape,
                          const weft_ps_opts *ps, struct training *t)
{
    int threads = ps ? s->threads : s->threads * s->workers;
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = threads, .seed = 1), &t->ctx);

    if (!st)
        st = weft_model_new(t->ctx, NULL, &t->model);
    if (st)
        return st;
    build(shape, t);
    if (ps)
        st = weft_dist_open_ps(t->ctx, ps, &t->dist);
    if (!st && ps)
        st = weft_dist_scope(t->dist, t->model);
    if (!st)
        st = weft_compile(
            t->model,
            WEFT_OPTS(weft_compile_opts, .optimizer = shape->optimizer,
                      .loss = shape->n_tables ? "binary_crossentropy from_logits=true"
                                              : "sparse_categorical_crossentropy from_logits=true",
                      .shards = s->shards),
            &t->trainer);
    return st ? st : make_data(t, shape);
}

void close_training(struct training *t)
{
    weft_trainer_free(t->trainer);
    weft_model_free(t->model);
    weft_dist_free(t->dist);
    weft_ctx_free(t->ctx);
    free(t->x);
    free(t->y);
    free(t->target);
    for (int k = 0; k < MAX_TABLES; k++)
        free(t->id[k]);
}

/* The tensors of a batch, in the model's order of its inputs. */
static void list_inputs(const struct training *t, weft_tensor *in)
{
    for (int i = 0; i < (t->n_layers ? t->n_layers : 1 + t->n_tables); i++) {
        const char *name = weft_sym_name(t->model, weft_model_input_at(t->model, i));

        in[i] = *name == 'x'
                    ? weft_view(WEFT_F32, t->x + atoi(name + 1) * t->batch * t->width, 2,
                                (int64_t[]){t->batch, t->width})
                    : weft_view(WEFT_I32, t->id[atoi(name + 2)], 2, (int64_t[]){t->batch, 1});
    }
}

weft_status run_steps(struct training *t, int n)
{
    weft_tensor in[MAX_LAYERS];
    weft_tensor y = t->n_tables ? weft_view(WEFT_F32, t->target, 2, (int64_t[]){t->batch, 1})
                                : weft_view(WEFT_I32, t->y, 1, (int64_t[]){t->batch});
    weft_status st = WEFT_OK;

    list_inputs(t, in);
    for (int i = 0; i < n && !st; i++) {
        if (t->fresh)
            draw_ids(t, (uint32_t)(++t->n_steps * 2654435761u));
        st = weft_train_on_batch(t->trainer, in, &y, NULL, NULL);
    }
    return st;
}

/* ---- asynchronous training ------------------------------------------------------------------- */

struct blocks {
    block_fn *end;
    void *arg;
};

static weft_status end_block(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    const struct blocks *b = arg;

    (void)t;
    (void)logs;
    return b->end ? b->end(b->arg, (int)epoch - 1) : WEFT_OK;
}

/* The batch again and again, in its order. */
static weft_ds endless(const struct training *t, weft_data *d)
{
    weft_column column[2] = {{.name = "x"}, {.name = "y", .role = WEFT_LABEL}};
    weft_tensor part[2] = {weft_view(WEFT_F32, t->x, 2, (int64_t[]){t->batch, t->width}),
                           weft_view(WEFT_I32, t->y, 1, (int64_t[]){t->batch})};

    return weft_ds_repeat(d, weft_ds_batch(d, weft_ds_tensors(d, 2, column, part), t->batch, NULL),
                          0);
}

weft_status run_fit(struct training *t, int blocks, int steps, block_fn *end, void *arg)
{
    struct blocks b = {end, arg};
    weft_callback cb = {.size = sizeof cb, .arg = &b, .name = "blocks", .epoch_end = end_block};
    weft_data *d = NULL;
    weft_status st = weft_data_new(t->ctx, &d);

    if (!st)
        st = weft_fit(t->trainer, d, endless(t, d),
                      WEFT_OPTS(weft_fit_opts, .epochs = blocks + 1, .steps_per_epoch = steps,
                                .no_shuffle = true, .callbacks = &cb, .n_callbacks = 1),
                      NULL);
    weft_data_free(d);
    return st;
}
