/* einsum_test.c - weft_einsum against plain loops over all labels, with known and symbolic
 * sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "graph/graph.h"
#include "weft/einsum.h"
#include "weft/fn.h"

/* An equation with explicit result and letters only, and the size of each letter. */
struct row {
    const char *equation;
    const char *letters;
    int64_t sizes[8];
};

static const struct row rows[] = {
    {"ij->ji", "ij", {3, 4}},
    {"ij->i", "ij", {3, 4}},
    {"ij->", "ij", {3, 4}},
    {"abc -> ca", "abc", {2, 3, 4}},
    {"ij,jk->ik", "ijk", {3, 4, 5}},
    {"ij,jk->ki", "ijk", {3, 4, 5}},
    {"ij,kj->ik", "ijk", {3, 4, 5}},
    {"ji,jk->ik", "ijk", {3, 4, 5}},
    {"ji,kj->ki", "ijk", {3, 4, 5}},
    {"bij,bjk->bik", "bijk", {2, 3, 4, 5}},
    {"bij,bjk->ibk", "bijk", {2, 3, 4, 5}},
    {"bij,jk->bik", "bijk", {2, 3, 4, 5}},
    {"ij,bjk->bik", "bijk", {2, 3, 4, 5}},
    {"ij,j->i", "ij", {3, 4}},
    {"j,ij->i", "ij", {3, 4}},
    {"i,i->", "i", {5}},
    {"i,j->ij", "ij", {3, 4}},
    {"i,j->ji", "ij", {3, 4}},
    {"bi,bi->b", "bi", {3, 4}},
    {"bi,bi->bi", "bi", {3, 4}},
    {"bi,bj->bij", "bij", {3, 4, 2}},
    {"ij,ik->jk", "ijk", {3, 4, 5}},
    {"ijk,jk->i", "ijk", {3, 4, 5}},
    {"ij,kl->", "ijkl", {2, 3, 4, 2}},
    {"ijx,jk->ik", "ijkx", {3, 4, 5, 2}},
    {"bqhd,bkhd->bhqk", "bqhdk", {2, 3, 2, 4, 5}},
    {"bhqk,bkhd->bqhd", "bqhdk", {2, 3, 2, 4, 5}},
    {"btm,mhd->bthd", "btmhd", {2, 3, 4, 2, 3}},
    {"bthd,hdm->btm", "btmhd", {2, 3, 4, 2, 3}},
    {"bthd,mdh->btm", "btmhd", {2, 3, 4, 2, 3}},
    {"abij,acjk->abcik", "abcijk", {2, 2, 3, 2, 3, 2}},
    {"abcd,aefd->acbfe", "abcdef", {2, 2, 3, 4, 2, 3}},
    {"abcde,ce->bda", "abcde", {2, 3, 2, 2, 3}},
    {"abc,cde->dbae", "abcde", {2, 3, 4, 2, 2}},
    {"ab,cd->abcd", "abcd", {2, 3, 2, 2}},
    {"ij,jk->ik", "ijk", {3, 0, 5}},
    {"ij,jk->ik", "ijk", {0, 4, 5}},
    {"Ii,iJ->IJ", "IiJ", {3, 4, 2}},
};

static int64_t size_of_letter(const struct row *r, char c)
{
    return r->sizes[strchr(r->letters, c) - r->letters];
}

/* A term's letters in the equation, without spaces. */
static int term_of(const char **at, char letters[16])
{
    int n = 0;

    for (; **at && **at != ',' && **at != '-'; (*at)++)
        if (**at != ' ')
            letters[n++] = **at;
    letters[n] = '\0';
    return n;
}

static int64_t index_of(const struct row *r, const char *term, const int64_t *value)
{
    int64_t i = 0;

    for (; *term; term++)
        i = i * size_of_letter(r, *term) + value[strchr(r->letters, *term) - r->letters];
    return i;
}

/* out[…] = Σ a[…]·b[…] over every combination of letter values. */
static void loops(const struct row *r, char terms[3][16], int n_in, const float *const *x,
                  double *out)
{
    int n = (int)strlen(r->letters);
    int64_t total = 1;

    for (int i = 0; i < n; i++)
        total *= r->sizes[i];
    for (int64_t k = 0; k < total; k++) {
        int64_t value[8], rest = k;
        double p;

        for (int i = n - 1; i >= 0; i--) {
            value[i] = rest % r->sizes[i];
            rest /= r->sizes[i];
        }
        p = x[0][index_of(r, terms[0], value)];
        if (n_in == 2)
            p *= x[1][index_of(r, terms[1], value)];
        out[index_of(r, terms[2], value)] += p;
    }
}

/* Sizes of a term; bit i of `hidden` makes letter i a size that is known at run time only. */
static int shape_of(const struct row *r, const char *term, unsigned hidden, int64_t *dim)
{
    int n = 0;

    for (; *term; term++)
        dim[n++] = hidden >> (strchr(r->letters, *term) - r->letters) & 1
                       ? WEFT_ANY
                       : size_of_letter(r, *term);
    return n;
}

static void check_row(weft_ctx *ctx, const struct row *r, unsigned hidden)
{
    char terms[3][16] = {"", "", ""};
    const char *at = r->equation;
    float data[2][1024];
    const float *x[2] = {data[0], data[1]};
    double want[1024] = {0};
    int64_t dim[8];
    int n_in = strchr(at, ',') ? 2 : 1, rank;
    weft_val in[2] = {{0}}, y;
    weft_tensor feeds[2], fetch = {.data = NULL};
    weft_graph *g;
    weft_fn *fn = NULL;

    for (int i = 0; i < 2048; i++)
        data[i / 1024][i % 1024] = (float)((i * 37 + i / 1024 * 11) % 101 - 50) / 50;
    for (int i = 0; i < n_in; i++, at += i < n_in)
        term_of(&at, terms[i]);
    at += 2;
    term_of(&at, terms[2]);
    loops(r, terms, n_in, x, want);
    assert_int_equal(weft_graph_new(ctx, &g), 0);
    for (int i = 0; i < n_in; i++) {
        rank = shape_of(r, terms[i], hidden, dim);
        in[i] = weft_placeholder(g, i ? "b" : "a", WEFT_F32, rank, dim);
        shape_of(r, terms[i], 0, dim);
        feeds[i] = weft_view(WEFT_F32, x[i], rank, dim);
    }
    y = weft_einsum(g, r->equation, in[0], in[1]);
    if (weft_graph_status(g))
        fail_msg("%s, hidden %x: %s", r->equation, hidden, weft_error());
    if (weft_fn_new(
            g, WEFT_OPTS(weft_fn_opts, .n_feeds = n_in, .feeds = in, .n_fetches = 1, .fetches = &y),
            &fn) ||
        weft_fn_run(fn, feeds, &fetch))
        fail_msg("%s, hidden %x: %s", r->equation, hidden, weft_error());
    rank = shape_of(r, terms[2], 0, dim);
    assert_int_equal(fetch.rank, rank);
    for (int i = 0; i < rank; i++)
        assert_int_equal(fetch.dim[i], dim[i]);
    for (int64_t i = 0; i < weft_tensor_count(&fetch); i++)
        if (fabs(((float *)fetch.data)[i] - want[i]) > 1e-4)
            fail_msg("%s, hidden %x: element %lld is %g, the loops say %g", r->equation, hidden,
                     (long long)i, ((float *)fetch.data)[i], want[i]);
    weft_fn_free(fn);
    weft_graph_free(g);
}

static void equals_loops(void **state)
{
    weft_ctx *ctx;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_row(ctx, &rows[i], 0);
    weft_ctx_free(ctx);
}

/* Every subset of the letters hidden in turn: one, two and more sizes that are not known. */
static void equals_loops_with_symbolic_sizes(void **state)
{
    weft_ctx *ctx;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (unsigned hidden = 1; hidden < 1U << strlen(rows[i].letters); hidden++)
            check_row(ctx, &rows[i], hidden);
    weft_ctx_free(ctx);
}

static const struct {
    const char *equation;
    int rank_a, rank_b; /* -1: one operand */
    const char *same;   /* an equation with letters only that means the same */
} shorthands[] = {
    {"ij,jk", 2, 2, "ij,jk->ik"},
    {"ba", 2, -1, "ba->ab"},
    {"...ij,jk->...ik", 4, 2, "xyij,jk->xyik"},
    {"i...,i->...", 3, 1, "ixy,i->xy"},
    {"...i,...i->...", 3, 3, "xyi,xyi->xy"},
    {"...i,...i->...", 3, 2, "xyi,yi->xy"},
    {"i...->...i", 3, -1, "ixy->xyi"},
};

static weft_val operand(weft_graph *g, const char *name, int rank)
{
    int64_t dim[8] = {3, 3, 3, 3, 3, 3, 3, 3};

    return rank < 0 ? WEFT_NIL : weft_placeholder(g, name, WEFT_F32, rank, dim);
}

static void shorthand_means_the_long_form(void **state)
{
    weft_ctx *ctx;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    for (size_t i = 0; i < sizeof shorthands / sizeof shorthands[0]; i++) {
        float x[81], z[81];
        int64_t dim[4] = {3, 3, 3, 3};
        weft_graph *g;
        weft_fn *fn = NULL;
        weft_val in[2], y[2];
        weft_tensor feeds[2], out[2] = {{.data = NULL}, {.data = NULL}};
        int n_in = shorthands[i].rank_b < 0 ? 1 : 2;

        for (int k = 0; k < 81; k++) {
            x[k] = (float)(k % 7);
            z[k] = (float)(k % 5);
        }
        assert_int_equal(weft_graph_new(ctx, &g), 0);
        in[0] = operand(g, "a", shorthands[i].rank_a);
        in[1] = operand(g, "b", shorthands[i].rank_b);
        feeds[0] = weft_view(WEFT_F32, x, shorthands[i].rank_a, dim);
        feeds[1] = weft_view(WEFT_F32, z, n_in == 2 ? shorthands[i].rank_b : 0, dim);
        y[0] = weft_einsum(g, shorthands[i].equation, in[0], in[1]);
        y[1] = weft_einsum(g, shorthands[i].same, in[0], in[1]);
        if (weft_graph_status(g) ||
            weft_fn_new(
                g,
                WEFT_OPTS(weft_fn_opts, .n_feeds = n_in, .feeds = in, .n_fetches = 2, .fetches = y),
                &fn) ||
            weft_fn_run(fn, feeds, out))
            fail_msg("%s: %s", shorthands[i].equation, weft_error());
        assert_int_equal(out[0].rank, out[1].rank);
        assert_int_equal(weft_tensor_count(&out[0]), weft_tensor_count(&out[1]));
        assert_memory_equal(out[0].data, out[1].data, (size_t)weft_tensor_bytes(&out[0]));
        weft_fn_free(fn);
        weft_graph_free(g);
    }
    weft_ctx_free(ctx);
}

static const struct {
    const char *equation;
    int rank_a, rank_b;
    weft_status st;
    const char *text;
} mistakes[] = {
    {"ii->i", 2, -1, WEFT_EPARSE, "position 1: the letter appears twice"},
    {"ij->k", 2, -1, WEFT_EPARSE, "position 4: the letter is not in any operand"},
    {"ij->ijj", 2, -1, WEFT_EPARSE, "position 6: the letter appears twice"},
    {"ijk->i", 2, -1, WEFT_EPARSE, "position 0: the operand has a different number of axes"},
    {"i,jk->i", 1, 1, WEFT_EPARSE, "position 2: the operand has a different number of axes"},
    {"ij,jk->ik", 2, -1, WEFT_EPARSE, "position 2: there is only one operand"},
    {"ij->ik", 2, 2, WEFT_EPARSE, "position 2: expected ','"},
    {"i,j,k->ik", 1, 1, WEFT_EPARSE, "position 3: at most two terms"},
    {"i j-k", 2, -1, WEFT_EPARSE, "position 3: expected \"->\""},
    {"i1->i", 2, -1, WEFT_EPARSE, "position 1: expected a letter"},
    {"i->i,", 1, -1, WEFT_EPARSE, "position 4: expected the end"},
    {"i..->i", 1, -1, WEFT_EPARSE, "position 1: expected a letter"},
    {"i...->i", 2, -1, WEFT_EPARSE, "position 7: the result needs"},
    {"......->...", 2, -1, WEFT_EPARSE, "position 3: expected a letter"},
    {"ij...->...", 1, -1, WEFT_EPARSE, "a different number of axes"},
    {"abcdefghi->a", 8, -1, WEFT_EPARSE, "too many letters"},
    {"ij,jk->ik", 2, 2, WEFT_OK, NULL},
};

static void mistakes_name_the_position(void **state)
{
    weft_ctx *ctx;
    char text[400];

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        weft_graph *g;

        assert_int_equal(weft_graph_new(ctx, &g), 0);
        weft_einsum(g, mistakes[i].equation, operand(g, "a", mistakes[i].rank_a),
                    operand(g, "b", mistakes[i].rank_b));
        if (weft_graph_status(g) != mistakes[i].st)
            fail_msg("%s: %s", mistakes[i].equation, weft_error());
        if (mistakes[i].text && !strstr(weft_error(), mistakes[i].text))
            fail_msg("%s: '%s' does not say '%s'", mistakes[i].equation, weft_error(),
                     mistakes[i].text);
        weft_graph_free(g);
    }
    memset(text, 'a', sizeof text);
    text[399] = '\0';
    for (int n = 0; n < 2; n++) { /* too long; no text at all */
        weft_graph *g;

        assert_int_equal(weft_graph_new(ctx, &g), 0);
        weft_einsum(g, n ? NULL : text, operand(g, "a", 2), WEFT_NIL);
        assert_int_equal(weft_graph_status(g), n ? WEFT_EINVAL : WEFT_EPARSE);
        weft_graph_free(g);
    }
    weft_ctx_free(ctx);
}

static void sizes_must_agree(void **state)
{
    weft_ctx *ctx;
    weft_graph *g;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    assert_int_equal(weft_graph_new(ctx, &g), 0);
    weft_einsum(g, "bij,bjk->bik", weft_placeholder(g, "a", WEFT_F32, 3, (int64_t[]){1, 3, 4}),
                weft_placeholder(g, "b", WEFT_F32, 3, (int64_t[]){2, 4, 5}));
    assert_int_equal(weft_graph_status(g), WEFT_ESHAPE);
    assert_non_null(strstr(weft_error(), "'b' has size 1 in one operand and 2"));
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

/* How many nodes of an op the equation needs. */
static int count_ops(const char *equation, int op_id, int rank_a, int rank_b)
{
    weft_ctx *ctx;
    weft_graph *g;
    int n = 0;

    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    assert_int_equal(weft_graph_new(ctx, &g), 0);
    weft_einsum(g, equation, operand(g, "a", rank_a), operand(g, "b", rank_b));
    assert_int_equal(weft_graph_status(g), 0);
    for (int64_t i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].op->id == op_id;
    weft_graph_free(g);
    weft_ctx_free(ctx);
    return n;
}

static void plain_products_need_no_transpose(void **state)
{
    static const char *const equations[] = {"ij,jk->ik", "ij,kj->ik", "ji,jk->ik",
                                            "ji,kj->ik", "ij,jk->ki", "ji,kj->ki"};

    (void)state;
    for (size_t i = 0; i < sizeof equations / sizeof equations[0]; i++) {
        assert_int_equal(count_ops(equations[i], WF_OP_transpose, 2, 2), 0);
        assert_int_equal(count_ops(equations[i], WF_OP_matmul, 2, 2), 1);
    }
    assert_int_equal(count_ops("btm,mhd->bthd", WF_OP_transpose, 3, 3), 0);
    assert_int_equal(count_ops("bthd,hdm->btm", WF_OP_transpose, 4, 3), 0);
    assert_int_equal(count_ops("bqhd,bkhd->bhqk", WF_OP_transpose, 4, 4), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_loops),
        cmocka_unit_test(equals_loops_with_symbolic_sizes),
        cmocka_unit_test(shorthand_means_the_long_form),
        cmocka_unit_test(mistakes_name_the_position),
        cmocka_unit_test(sizes_must_agree),
        cmocka_unit_test(plain_products_need_no_transpose),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
