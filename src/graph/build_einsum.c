/* build_einsum.c - einsum: parsed into labels, built from sum, transpose, matmul and mul.
 *
 * Every axis of an operand gets a label: a letter, or for "..." a number counted from the right. A
 * label is a batch label (in both operands and the result), summed over (in both, not in the
 * result), or free. Summed labels go to the inner axis of a batched matmul, the last free label of
 * each operand to its rows and columns; further ones are joined with it if the sizes allow it, and
 * otherwise become batch axes of size 1 in the other operand. */
#include "graph/shape.h"
#include "weft/einsum.h"
#include "weft/ops_shape.h"

#define MAX_EQUATION 128
#define DOTS 64 /* labels from here on are the axes of "...": DOTS + k is the k-th from the right */

/* A value whose axes have labels. */
struct term {
    weft_val v;
    int n;
    int label[WEFT_MAX_RANK];
};

struct parser {
    weft_graph *g;
    const char *text, *at;
};

static weft_status complain(const struct parser *p, const char *why)
{
    return wf_err(WEFT_EPARSE, "einsum \"%.*s\": position %d: %s", MAX_EQUATION, p->text,
                  (int)(p->at - p->text), why);
}

static int find(const struct term *t, int label)
{
    for (int i = 0; i < t->n; i++)
        if (t->label[i] == label)
            return i;
    return -1;
}

static void skip_spaces(struct parser *p)
{
    while (*p->at == ' ')
        p->at++;
}

static int letter(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : -1;
}

static char letter_of(int label)
{
    return label < 26 ? (char)('A' + label) : label < 52 ? (char)('a' + label - 26) : '.';
}

/* Adds the labels of `n` axes for "...". */
static weft_status add_dots(struct parser *p, struct term *t, int n)
{
    if (n < 0 || t->n + n > WEFT_MAX_RANK)
        return complain(p, "the operand has a different number of axes");
    for (int i = 0; i < n; i++)
        t->label[t->n++] = DOTS + n - 1 - i;
    return WEFT_OK;
}

/* The letters of one term, up to ',', '-' or the end. `rank` is that of the operand, or -1 for the
 * result, where "..." has *n_dots axes; an operand with more of them raises *n_dots. */
static weft_status parse_term(struct parser *p, int rank, int *n_dots, struct term *t)
{
    const char *start = p->at;
    int n_letters = 0;
    bool dots = false;
    weft_status st = WEFT_OK;

    for (const char *c = p->at; *c && *c != ',' && *c != '-'; c++)
        n_letters += letter(*c) >= 0;
    t->n = 0;
    for (skip_spaces(p); *p->at && *p->at != ',' && *p->at != '-' && !st; skip_spaces(p)) {
        int l = letter(*p->at);

        if (l < 0 && !strncmp(p->at, "...", 3) && !dots) {
            int n = rank < 0 ? *n_dots : rank - n_letters;

            dots = true;
            st = add_dots(p, t, n);
            if (n > *n_dots)
                *n_dots = n;
            p->at += 3;
        } else if (l < 0) {
            st = complain(p, "expected a letter, \"...\", ',' or \"->\"");
        } else if (find(t, l) >= 0) {
            st = complain(p, "the letter appears twice in this term (diagonals are not supported)");
        } else if (t->n == WEFT_MAX_RANK) {
            st = complain(p, "too many letters");
        } else {
            t->label[t->n++] = l;
            p->at++;
        }
    }
    if (!st && rank >= 0 && t->n != rank) {
        p->at = start;
        st = complain(p, "the operand has a different number of axes");
    }
    if (!st && rank < 0 && !dots && *n_dots)
        st = complain(p, "the result needs \"...\" because the operands have it");
    return st;
}

/* Without an arrow: "..." first, then the letters that occur once. */
static weft_status implicit_result(struct parser *p, const struct term *in, int n_in, int n_dots,
                                   struct term *out)
{
    weft_status st;

    out->n = 0;
    st = add_dots(p, out, n_dots);
    for (int l = 0; l < 52 && !st; l++) {
        int n = 0;

        for (int i = 0; i < n_in; i++)
            n += find(&in[i], l) >= 0;
        if (n == 1 && out->n == WEFT_MAX_RANK)
            st = complain(p, "the result has too many axes");
        else if (n == 1)
            out->label[out->n++] = l;
    }
    return st;
}

static weft_status parse(struct parser *p, int n_in, struct term *in, struct term *out)
{
    int n_dots = 0;
    weft_status st = WEFT_OK;

    if (strlen(p->text) > MAX_EQUATION)
        return complain(p, "the equation is too long");
    for (int i = 0; i < n_in && !st; i++) {
        if (i && *p->at++ != ',') {
            p->at--;
            return complain(p, "expected ',' and a second term");
        }
        st = parse_term(p, wf_val_type_of(p->g, in[i].v)->rank, &n_dots, &in[i]);
    }
    if (st)
        return st;
    if (*p->at == ',')
        return complain(p, n_in == 1 ? "there is only one operand"
                                     : "at most two terms are supported");
    if (!*p->at)
        return implicit_result(p, in, n_in, n_dots, out);
    if (strncmp(p->at, "->", 2))
        return complain(p, "expected \"->\"");
    p->at += 2;
    st = parse_term(p, -1, &n_dots, out);
    if (!st && *p->at)
        st = complain(p, "expected the end");
    for (int i = 0; i < out->n && !st; i++)
        if (out->label[i] < DOTS && find(&in[0], out->label[i]) < 0 &&
            (n_in == 1 || find(&in[1], out->label[i]) < 0)) {
            p->at = strchr(strstr(p->text, "->"), letter_of(out->label[i]));
            st = complain(p, "the letter is not in any operand");
        }
    return st;
}

/* ---- building -------------------------------------------------------------------------------- */

static int64_t size_of(weft_graph *g, const struct term *t, int axis)
{
    return wf_val_type_of(g, t->v)->dim[axis];
}

/* Sums over the labels that are neither in the result nor in the other operand. */
static void sum_own(weft_graph *g, struct term *t, const struct term *other, const struct term *out)
{
    int64_t axes[WEFT_MAX_RANK];
    int n = 0, kept = 0;

    for (int i = 0; i < t->n; i++)
        if (find(out, t->label[i]) < 0 && (!other || find(other, t->label[i]) < 0))
            axes[n++] = i;
        else
            t->label[kept++] = t->label[i];
    if (!n)
        return;
    struct wf_set sets[] = {WF_SET_INTS("axes", n, axes)};
    t->v = wf_build(g, WF_OP_sum, 1, &t->v, 1, sets);
    t->n = kept;
}

/* Reorders the axes as in `want`; a label that t lacks becomes an axis of size 1, unless it would
 * be the first. Every label of t is in `want`. */
static void arrange(weft_graph *g, struct term *t, const int *want, int n)
{
    int perm[WEFT_MAX_RANK] = {0}, n_perm = 0, n_new = 0;
    int64_t new_axes[WEFT_MAX_RANK];
    struct term r = {.n = 0};

    if (n > WEFT_MAX_RANK) {
        wf_graph_fail(g, wf_err(WEFT_ENOSUP, "einsum: needs a rank above %d", WEFT_MAX_RANK));
        return;
    }
    for (int i = 0; i < n; i++) {
        int at = find(t, want[i]);

        if (at < 0 && r.n == 0)
            continue;
        if (at < 0)
            new_axes[n_new++] = r.n;
        else
            perm[n_perm++] = at;
        r.label[r.n++] = want[i];
    }
    r.v = wf_transpose(g, t->v, perm, n_perm);
    if (n_new)
        r.v = wf_expand_axes(g, r.v, n_new, new_axes, r.n);
    *t = r;
}

/* Whether the axes of t are already in the order of `want`. */
static bool in_order(const struct term *t, const int *want, int n)
{
    int at = 0;

    for (int i = 0; i < n; i++)
        if (at < t->n && t->label[at] == want[i])
            at++;
    return at == t->n;
}

/* A list of labels of one kind. */
struct labels {
    int n, label[WEFT_MAX_RANK];
};

static void add_label(struct labels *l, int label)
{
    if (l->n < WEFT_MAX_RANK)
        l->label[l->n++] = label;
}

struct plan {
    weft_graph *g;
    struct term a, b, out;
    struct labels batch, m, n, k; /* m: free in a; n: free in b; k: summed over */
};

/* Sorts the labels by kind; the order of batch, m and n is that of the result. */
static void sort_labels(struct plan *p)
{
    p->batch.n = p->m.n = p->n.n = p->k.n = 0;
    for (int i = 0; i < p->out.n; i++) {
        int l = p->out.label[i];
        bool in_a = find(&p->a, l) >= 0, in_b = find(&p->b, l) >= 0;

        add_label(in_a && in_b ? &p->batch : in_a ? &p->m : &p->n, l);
    }
    for (int i = 0; i < p->a.n; i++)
        if (find(&p->out, p->a.label[i]) < 0)
            add_label(&p->k, p->a.label[i]);
}

static weft_status check_sizes(const struct plan *p)
{
    for (int i = 0; i < p->a.n; i++) {
        int j = find(&p->b, p->a.label[i]);
        int64_t x, y;

        if (j < 0 || p->a.label[i] >= DOTS)
            continue;
        x = size_of(p->g, &p->a, i);
        y = size_of(p->g, &p->b, j);
        if (x >= 0 && y >= 0 && x != y)
            return wf_err(WEFT_ESHAPE,
                          "einsum: '%c' has size %lld in one operand and %lld in the other",
                          letter_of(p->a.label[i]), (long long)x, (long long)y);
    }
    return WEFT_OK;
}

/* Element-wise: both in the order of the result, then the summed labels, which are summed over. */
static weft_val by_mul(struct plan *p)
{
    int want[2 * WEFT_MAX_RANK], n = 0;
    int64_t axes[WEFT_MAX_RANK];
    weft_val y;

    for (int i = 0; i < p->out.n; i++)
        want[n++] = p->out.label[i];
    for (int i = 0; i < p->k.n; i++) {
        axes[i] = n;
        want[n++] = p->k.label[i];
    }
    arrange(p->g, &p->a, want, n);
    arrange(p->g, &p->b, want, n);
    y = wf_binary(p->g, WF_OP_mul, p->a.v, p->b.v);
    if (!p->k.n)
        return y;
    struct wf_set sets[] = {WF_SET_INTS("axes", p->k.n, axes)};
    return wf_build(p->g, WF_OP_sum, 1, &y, 1, sets);
}

/* ---- the product as a matmul ----------------------------------------------------------------- */

/* The size of a label in the result; -1 if it is not known. */
static int64_t label_size(const struct plan *p, int label)
{
    int i = find(&p->a, label), j = find(&p->b, label);
    int64_t x = i < 0 ? 1 : size_of(p->g, &p->a, i), y = j < 0 ? 1 : size_of(p->g, &p->b, j);

    if (x < 0 || y < 0)
        return x > 1 ? x : y > 1 ? y : -1;
    return x == 1 ? y : x;
}

static int n_unknown(const struct plan *p, const struct labels *l)
{
    int n = 0;

    for (int i = 0; i < l->n; i++)
        n += label_size(p, l->label[i]) < 0;
    return n;
}

/* How the matmul's axes are composed of labels: prefix, then rows or columns, then the inner
 * axis. */
struct layout {
    struct labels prefix, m, n;
    bool joined; /* m or n has several labels */
};

/* Separates the last label from the others. */
static void keep_last(const struct labels *from, struct labels *last, struct labels *prefix)
{
    for (int i = 0; i < from->n; i++)
        add_label(i + 1 < from->n ? prefix : last, from->label[i]);
}

/* A reshape that joins axes may have only one unknown size. */
static struct layout choose_layout(const struct plan *p)
{
    struct layout l = {.prefix = p->batch};
    bool join_m = p->m.n > 1 && p->batch.n > 0, join_n = p->n.n > 1;
    int batch = n_unknown(p, &p->batch), m = n_unknown(p, &p->m), n = n_unknown(p, &p->n);
    int k = n_unknown(p, &p->k) > 0;
    bool fits = batch + m + n <= 1 && batch + (m > 0) + k <= 1 && batch + (n > 0) + k <= 1;

    if (join_m && fits)
        l.m = p->m;
    else
        keep_last(&p->m, &l.m, &l.prefix);
    if (join_n && fits)
        l.n = p->n;
    else
        keep_last(&p->n, &l.n, &l.prefix);
    l.joined = l.m.n > 1 || l.n.n > 1;
    return l;
}

/* Joins axes [from, from + n) of a value into one; with n = 0 inserts an axis of size 1 there. */
static weft_val join_axes(weft_graph *g, weft_val v, int from, int n)
{
    const struct wf_type x = *wf_val_type_of(g, v);
    int64_t shape[WEFT_MAX_RANK], joined = 1;
    int rank = 0;

    if (n == 1 || g->st)
        return v;
    if (n == 0)
        return weft_expand_dims(g, v, from);
    if (from + n == x.rank) { /* the last ones: of any size */
        struct wf_set sets[] = {WF_SET_INT("axis", from)};

        return wf_build(g, WF_OP_flatten, 1, &v, 1, sets);
    }
    for (int i = from; i < from + n; i++)
        if (joined >= 0 && (x.dim[i] < 0 || !wf_mul_i64(joined, x.dim[i], &joined)))
            joined = -1;
    for (int i = 0; i < x.rank; i++)
        if (i == from)
            shape[rank++] = joined;
        else if (i < from || i >= from + n)
            shape[rank++] = x.dim[i] < 0 ? -1 : x.dim[i];
    return weft_reshape(g, v, rank, shape);
}

static int append(int *want, int n, const struct labels *l)
{
    for (int i = 0; i < l->n; i++)
        want[n++] = l->label[i];
    return n;
}

/* One operand as [prefix, free, k], or as [prefix, k, free] if it is already in that order
 * (*k_first). */
static weft_val operand(const struct plan *p, struct term *t, const struct layout *l,
                        const struct labels *free, bool *k_first)
{
    int want[3 * WEFT_MAX_RANK], other[3 * WEFT_MAX_RANK], n = append(want, 0, &l->prefix), first;

    memcpy(other, want, sizeof *want * (size_t)n);
    append(other, append(other, n, &p->k), free);
    n = append(want, append(want, n, free), &p->k);
    *k_first = !in_order(t, want, n) && in_order(t, other, n) &&
               ((p->k.n == 1 && free->n == 1) || wf_type_known(wf_val_type_of(p->g, t->v)));
    arrange(p->g, t, *k_first ? other : want, n);
    first = t->n - free->n - p->k.n; /* axes of the prefix */
    if (*k_first)
        return join_axes(p->g, join_axes(p->g, t->v, first + p->k.n, free->n), first, p->k.n);
    return join_axes(p->g, join_axes(p->g, t->v, first + free->n, p->k.n), first, free->n);
}

static weft_val by_matmul(struct plan *p)
{
    struct layout l = choose_layout(p);
    struct term y = {.n = 0};
    int64_t shape[3 * WEFT_MAX_RANK], gone[2];
    int n_gone = 0;
    bool ta, tb;
    weft_val a, b;

    y.n = append(y.label, 0, &l.prefix);
    if (y.n + l.m.n + l.n.n > WEFT_MAX_RANK) {
        wf_graph_fail(p->g, wf_err(WEFT_ENOSUP, "einsum: needs a rank above %d", WEFT_MAX_RANK));
        return WEFT_NIL;
    }
    y.n = append(y.label, append(y.label, y.n, &l.m), &l.n);
    for (int i = 0; i < y.n; i++)
        shape[i] = label_size(p, y.label[i]);
    a = operand(p, &p->a, &l, &l.m, &ta);
    b = operand(p, &p->b, &l, &l.n, &tb);
    y.v = weft_matmul(p->g, a, b, WEFT_OPTS(weft_matmul_opts, .trans_a = ta, .trans_b = !tb));
    if (!l.m.n)
        gone[n_gone++] = -2;
    if (!l.n.n)
        gone[n_gone++] = -1;
    if (l.joined)
        y.v = weft_reshape(p->g, y.v, y.n, shape);
    else if (n_gone)
        y.v = weft_squeeze(p->g, y.v, n_gone, gone);
    if (!p->g->st)
        arrange(p->g, &y, p->out.label, p->out.n);
    return y.v;
}

/* The operand whose free label comes first in the result makes the rows. */
static void order_operands(struct plan *p)
{
    for (int i = 0; i < p->out.n; i++) {
        bool in_a = find(&p->a, p->out.label[i]) >= 0, in_b = find(&p->b, p->out.label[i]) >= 0;

        if (in_a && in_b)
            continue;
        if (in_b) {
            struct term t = p->a;

            p->a = p->b;
            p->b = t;
        }
        return;
    }
}

static weft_val product(struct plan *p)
{
    weft_dtype dtype = wf_val_type_of(p->g, p->a.v)->dtype;
    weft_status st = check_sizes(p);

    if (st) {
        wf_graph_fail(p->g, st);
        return WEFT_NIL;
    }
    sum_own(p->g, &p->a, &p->b, &p->out);
    sum_own(p->g, &p->b, &p->a, &p->out);
    order_operands(p);
    sort_labels(p);
    if (p->g->st)
        return WEFT_NIL;
    if (!p->k.n || (!p->m.n && !p->n.n) || !wf_is_float(dtype))
        return by_mul(p);
    return by_matmul(p);
}

weft_val weft_einsum(weft_graph *g, const char *equation, weft_val a, weft_val b)
{
    struct parser parser = {g, equation, equation};
    struct plan p = {.g = g};
    struct term in[2] = {{.v = a}, {.v = b}};
    int n_in = b.id ? 2 : 1;
    weft_status st;

    if (!equation) {
        wf_graph_fail(g, wf_err(WEFT_EINVAL, "einsum: no equation"));
        return WEFT_NIL;
    }
    if (!wf_check_val(g, a, "einsum") || (n_in == 2 && !wf_check_val(g, b, "einsum")))
        return WEFT_NIL;
    st = parse(&parser, n_in, in, &p.out);
    if (st) {
        wf_graph_fail(g, st);
        return WEFT_NIL;
    }
    p.a = in[0];
    p.b = in[1];
    if (n_in == 2)
        return product(&p);
    sum_own(g, &p.a, NULL, &p.out);
    arrange(g, &p.a, p.out.label, p.out.n);
    return g->st ? WEFT_NIL : p.a.v;
}
