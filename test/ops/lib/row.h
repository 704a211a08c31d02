/* row.h - what the parts of the harness share: a row with its data, and a graph with the row's op
 * in it. */
#ifndef OPS_LIB_ROW_H
#define OPS_LIB_ROW_H

#include "kernels/kernels.h"
#include "ops/harness.h"

#define N_THREAD_COUNTS 4

/* Contexts of every level and number of threads (1, 2, 3, 7); NULL for levels that the CPU
 * lacks. */
struct contexts {
    weft_ctx *ctx[WEFT_SIMD_AVX512BF16 + 1][N_THREAD_COUNTS];
    weft_ctx *base; /* portable, one thread: where graphs are built and references run */
};

struct row {
    const struct op_case *c;
    const struct contexts *b;
    const char *line;
    double *master[OP_MAX_IN]; /* the inputs before rounding to their dtype */
    int64_t count[OP_MAX_IN];
};

struct built {
    weft_graph *g;
    weft_val in[OP_MAX_IN], out[WF_MAX_OUT], grad[OP_MAX_IN];
    weft_val loss;
    int n_out;
};

/* A graph with the op; f32 replaced by `floats`; every size unknown when `symbolic`. */
weft_status row_build(const struct row *r, weft_ctx *ctx, weft_dtype floats, bool symbolic,
                      struct built *b);
/* b->loss = a weighted sum of the float outputs, whose known types are given; b->grad its
 * gradients. */
weft_status row_differentiate(const struct row *r, struct built *b,
                              const struct wf_type *out_types);

/* Fail the running test of cmocka, with the row and a text, unless ok. */
#define MUST(row, ok, ...) row_must(row, ok, __FILE__, __LINE__, __VA_ARGS__)
void row_must(const struct row *r, bool ok, const char *file, int line, const char *fmt, ...)
    WEFT_PRINTF(5, 6);
/* Shapes are equal and elements are near (within tol, relative to 1 + |want|), or have the same
 * bits. */
void row_compare(const struct row *r, const char *what, const struct wf_tensor *a,
                 const struct wf_tensor *want, double tol);
void row_compare_bits(const struct row *r, const char *what, const struct wf_tensor *a,
                      const struct wf_tensor *want);
/* The inputs with f32 replaced by `floats`. */
void row_feeds(const struct row *r, weft_dtype floats, struct wf_tensor *feeds);
void row_feeds_free(const struct row *r, struct wf_tensor *feeds);
/* Draw the data of a row; free it. */
void row_data(struct row *r);
void row_data_free(struct row *r);
/* The executor on `ctx` against the interpreter: outputs and gradients, with passes and without. */
void row_check_executor(const struct row *r, weft_ctx *ctx, const struct wf_tensor *feeds,
                        const struct wf_type *out_types);
/* Everything that harness.h promises; fails the running test of cmocka. */
void row_check(struct row *r);
/* A device under test, and what ran on the host instead. */
enum { DEVICE_LINES = 200 };
struct device_run {
    struct wf_device *device;
    int calls[2]; /* on the device, on the host */
    int n_lines;
    char line[DEVICE_LINES][80]; /* "op dtype" of the latter */
};
void row_check_on(struct row *r, struct device_run *d);
void device_run_note(struct device_run *d, const char *op, weft_dtype t, bool fell_back);
void device_run_print(const struct device_run *d, const char *group);
/* A planned call on the device: c has tensors of the host. WEFT_ENOSUP and fell_back: the device
 * has no kernel for it. */
weft_status op_call_on(struct wf_device *d, struct wf_kplan *p, struct wf_call *c, bool *fell_back);

/* Time the row's op and print a line per level. */
void row_bench(struct row *r);
/* Write the row's graph with its gradients into the folder, where it is small: a corpus for
 * fuzzers. */
void row_save(const struct row *r, const char *folder);

#endif
