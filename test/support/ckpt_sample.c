/* ckpt_sample.c - a small checkpoint with everything in it, as a pure function of its step, for
 * tests. */
#define _GNU_SOURCE
#include "ckpt_sample.h"

#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static weft_ckpt_tensor entry(const char *name, const char *section, weft_dtype t, const void *data,
                              int rank, int64_t a, int64_t b)
{
    return (weft_ckpt_tensor){name, section, weft_view(t, data, rank, (int64_t[]){a, b})};
}

static void fill(void *p, size_t n, uint64_t seed)
{
    unsigned char *b = p;

    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        b[i] = (unsigned char)(seed >> 33);
    }
}

void sample_make(struct sample *s, int64_t step)
{
    uint64_t seed = (uint64_t)step * 1000;

    memset(s, 0, sizeof *s);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 7; j++) {
            s->kernel[i][j] = (float)(i * 7 + j) + (float)step;
            s->m[i][j] = (float)step / (float)(i + j + 1);
        }
    s->bias[3] = NAN;
    s->bias[4] = -INFINITY;
    s->bias[5] = (float)step;
    fill(s->f64, sizeof s->f64, seed + 1);
    fill(s->f16, sizeof s->f16, seed + 2);
    fill(s->bf16, sizeof s->bf16, seed + 3);
    fill(s->i8, sizeof s->i8, seed + 4);
    fill(s->u8, sizeof s->u8, seed + 5);
    fill(s->i32, sizeof s->i32, seed + 6);
    fill(s->position, sizeof s->position, seed + 7);
    s->yes[1] = 1;
    s->counter = step;
    s->tensor[0] = entry("dense/kernel", NULL, WEFT_F32, s->kernel, 2, 5, 7);
    s->tensor[1] = entry("dense/bias", "param", WEFT_F32, s->bias, 1, 7, 0);
    s->tensor[2] = entry("dense/kernel:m", "slot", WEFT_F32, s->m, 2, 5, 7);
    s->tensor[3] = entry("f64", "state", WEFT_F64, s->f64, 1, 3, 0);
    s->tensor[4] = entry("f16 \"quoted\" \\ \xc3\xa4", "state", WEFT_F16, s->f16, 2, 2, 2);
    s->tensor[5] = entry("bf16", "state", WEFT_BF16, s->bf16, 2, 1, 2);
    s->tensor[6] = entry("i8", "state", WEFT_I8, s->i8, 1, 3, 0);
    s->tensor[7] = entry("u8", "state", WEFT_U8, s->u8, 1, 5, 0);
    s->tensor[8] = entry("i32", "state", WEFT_I32, s->i32, 1, 2, 0);
    s->tensor[9] = entry("counter", "state", WEFT_I64, &s->counter, 0, 0, 0);
    s->tensor[10] = entry("yes", "state", WEFT_BOOL, s->yes, 1, 2, 0);
    s->tensor[11] = entry("empty", "state", WEFT_F32, NULL, 2, 0, 4);
    s->blob[0] = (weft_ckpt_blob){WEFT_CKPT_POSITION, s->position, sizeof s->position};
    s->blob[1] = (weft_ckpt_blob){WEFT_CKPT_GRAPH, "weft graph 1\n", 13};
    s->blob[2] = (weft_ckpt_blob){"empty.bin", NULL, 0};
    s->metric[0] = (weft_ckpt_metric){"loss", 1.0 / (double)(step + 3)};
    s->metric[1] = (weft_ckpt_metric){"val_acc", NAN};
    s->metric[2] = (weft_ckpt_metric){"grad_norm", INFINITY};
    s->meta[0] = (weft_ckpt_pair){"job", "line one\nline two\t\x01"};
    s->meta[1] = (weft_ckpt_pair){"shards", "4"};
    s->data = (weft_ckpt_data){.size = sizeof s->data,
                               .step = step,
                               .epoch = step / 10,
                               .seed = 0xfedcba9876543210u,
                               .fingerprint = 0x0123456789abcdefu + seed,
                               .time_ns = 1700000000000000000 + step % 1000000 * 1000000000,
                               .n_tensors = SAMPLE_TENSORS,
                               .tensors = s->tensor,
                               .n_blobs = SAMPLE_BLOBS,
                               .blobs = s->blob,
                               .n_metrics = 3,
                               .metrics = s->metric,
                               .n_meta = 2,
                               .meta = s->meta};
}

static const char *info_differs(const weft_ckpt_data *a, const weft_ckpt_data *b)
{
    if (a->step != b->step || a->epoch != b->epoch || a->time_ns != b->time_ns)
        return "step, epoch or time";
    if (a->seed != b->seed || a->fingerprint != b->fingerprint)
        return "seed or fingerprint";
    if (a->n_tensors != b->n_tensors || a->n_blobs != b->n_blobs || a->n_metrics != b->n_metrics ||
        a->n_meta != b->n_meta)
        return "a count";
    for (int64_t i = 0; i < a->n_metrics; i++)
        if (strcmp(a->metrics[i].name, b->metrics[i].name) ||
            (a->metrics[i].value != b->metrics[i].value &&
             !(isnan(a->metrics[i].value) && isnan(b->metrics[i].value))))
            return "a metric";
    for (int64_t i = 0; i < a->n_meta; i++)
        if (strcmp(a->meta[i].key, b->meta[i].key) || strcmp(a->meta[i].value, b->meta[i].value))
            return "metadata";
    return NULL;
}

static const char *tensor_differs(weft_ckpt *c, int64_t i, const weft_ckpt_tensor *want)
{
    const weft_ckpt_tensor *have = &weft_ckpt_info(c)->tensors[i];
    weft_tensor t = want->tensor;
    int64_t bytes = weft_tensor_bytes(&t);
    bool same;

    if (strcmp(have->name, want->name) ||
        strcmp(have->section, want->section ? want->section : "param"))
        return "a tensor's name or section";
    t.data = malloc((size_t)bytes + 1);
    if (!t.data || weft_ckpt_load(c, want->name, &t)) {
        free(t.data);
        return weft_error();
    }
    same = !bytes || !memcmp(t.data, want->tensor.data, (size_t)bytes);
    free(t.data);
    return same ? NULL : want->name;
}

const char *sample_differs(weft_ckpt *c, int64_t step)
{
    struct sample s;
    const char *what;

    sample_make(&s, step);
    what = info_differs(weft_ckpt_info(c), &s.data);
    for (int i = 0; i < SAMPLE_TENSORS && !what; i++)
        what = tensor_differs(c, i, &s.tensor[i]);
    for (int i = 0; i < SAMPLE_BLOBS && !what; i++)
        if (strcmp(weft_ckpt_info(c)->blobs[i].name, s.blob[i].name) ||
            weft_ckpt_info(c)->blobs[i].bytes != s.blob[i].bytes)
            what = "a blob";
    if (!what && weft_ckpt_verify(c))
        what = weft_error();
    return what;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int remove_node(const char *path, const struct stat *s, int flag, struct FTW *w)
{
    (void)s;
    (void)flag;
    (void)w;
    return remove(path);
}

void temp_make(char path[64])
{
    snprintf(path, 64, "/dev/shm/weft-ckpt-XXXXXX"); /* fast where it is there */
    if (mkdtemp(path))
        return;
    snprintf(path, 64, "temp-ckpt-XXXXXX");
    if (!mkdtemp(path))
        abort();
}

void temp_remove(const char *path)
{
    nftw(path, remove_node, 8, FTW_DEPTH | FTW_PHYS);
}

char *file_get(const char *path, int64_t *n)
{
    FILE *f = fopen(path, "rb");
    char *p;
    long size;

    if (!f || fseek(f, 0, SEEK_END) || (size = ftell(f)) < 0)
        abort();
    rewind(f);
    p = malloc((size_t)size + 1);
    if (!p || fread(p, 1, (size_t)size, f) != (size_t)size)
        abort();
    p[size] = '\0';
    fclose(f);
    *n = size;
    return p;
}

void file_put(const char *path, const void *bytes, int64_t n)
{
    FILE *f = fopen(path, "wb");

    if (!f || fwrite(bytes, 1, (size_t)n, f) != (size_t)n || fclose(f))
        abort();
}

void sample_log_fn(void *arg, int level, const char *line)
{
    struct sample_log *l = arg;
    size_t n = strlen(l->text);

    (void)level;
    snprintf(l->text + n, sizeof l->text - n, "%s\n", line);
}
