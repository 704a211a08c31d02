/* arrays.c - array files for comparison with NumPy; see tools/check-formats. Each command reads IN
 * and writes OUT.
 *
 *   arrays npy IN OUT    a whole array
 *   arrays rows IN OUT   the same, row by row through a dataset
 *   arrays npz IN OUT    all arrays of an archive, row by row through a dataset
 *   arrays idx IN OUT    IDX, and back to npy */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

static weft_ctx *ctx;

static void check(weft_status st)
{
    if (st) {
        fprintf(stderr, "arrays: %s\n", weft_error());
        exit(1);
    }
}

static void whole(const char *in, const char *out)
{
    weft_tensor t;

    check(weft_npy_read(ctx, in, &t));
    check(weft_npy_write(ctx, out, &t));
    weft_array_free(ctx, &t);
}

/* npy to IDX and back. */
static void through_idx(const char *in, const char *out)
{
    char idx[4096];
    weft_tensor t, back;

    snprintf(idx, sizeof idx, "%s.idx", out);
    check(weft_npy_read(ctx, in, &t));
    check(weft_idx_write(ctx, idx, &t));
    check(weft_idx_read(ctx, idx, &back));
    check(weft_npy_write(ctx, out, &back));
    weft_array_free(ctx, &t);
    weft_array_free(ctx, &back);
}

/* All rows of a dataset as one batch. */
static void rows(const char *in, const char *out, bool archive)
{
    weft_data *d;
    weft_iter *it;
    weft_batch *b = NULL;
    const char *names[64];
    weft_ds s;

    check(weft_data_new(ctx, &d));
    s = archive ? weft_ds_npz(d, in, NULL, NULL)
                : weft_ds_npy(d, 1, &(weft_array_file){"x", in}, NULL);
    check(weft_data_status(d));
    s = weft_ds_batch(d, s, weft_ds_count(d, s) + 1, NULL);
    check(weft_iter_new(d, s, NULL, &it));
    check(weft_iter_next(it, &b));
    for (int i = 0; i < b->n_cols; i++)
        names[i] = b->column[i].name;
    if (archive)
        check(weft_npz_write(ctx, out, b->n_cols, names, b->col));
    else
        check(weft_npy_write(ctx, out, &b->col[0]));
    weft_batch_free(b);
    weft_iter_free(it);
    weft_data_free(d);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: arrays npy|rows|npz|idx IN OUT\n");
        return 2;
    }
    check(weft_ctx_new(NULL, &ctx));
    if (!strcmp(argv[1], "npy"))
        whole(argv[2], argv[3]);
    else if (!strcmp(argv[1], "idx"))
        through_idx(argv[2], argv[3]);
    else
        rows(argv[2], argv[3], !strcmp(argv[1], "npz"));
    weft_ctx_free(ctx);
    return 0;
}
