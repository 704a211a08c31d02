/* sort.c - reference kernels of top_k and sort: a heap of places, ordered by value and then by
 * place, so that equal elements keep their order. */
#include <math.h>

#include "kernels/ref/ref.h"
#include "op/shape.h"

/* One line of elements, and the places that are being ordered. */
struct line {
    const struct wf_tensor *x;
    const struct wf_tensor *places; /* i32 */
    int64_t x_at, places_at, step;  /* element k stands at x_at + k·step */
    bool descending;
};

static int64_t get_place(const struct line *l, int64_t k)
{
    return ((const int32_t *)l->places->data)[l->places_at + k * l->step];
}

static void set_place(const struct line *l, int64_t k, int64_t place)
{
    ((int32_t *)l->places->data)[l->places_at + k * l->step] = (int32_t)place;
}

/* Does the element at place p come before that at place q? NaN is last either way. */
static bool before(const struct line *l, int64_t p, int64_t q)
{
    int64_t i = l->x_at + p * l->step, j = l->x_at + q * l->step;

    if (wf_is_float(l->x->type.dtype)) {
        double a = ref_get(l->x, i), b = ref_get(l->x, j);

        if (isnan(a) || isnan(b))
            return isnan(a) && isnan(b) ? p < q : isnan(b);
        if (a != b)
            return l->descending ? a > b : a < b;
    } else {
        int64_t a = wf_get_int(l->x->data, l->x->type.dtype, i);
        int64_t b = wf_get_int(l->x->data, l->x->type.dtype, j);

        if (a != b)
            return l->descending ? a > b : a < b;
    }
    return p < q;
}

/* A heap with the last in order at its root. */
static void sift(const struct line *l, int64_t at, int64_t n)
{
    int64_t place = get_place(l, at);

    for (int64_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && before(l, get_place(l, child), get_place(l, child + 1)))
            child++;
        if (!before(l, place, get_place(l, child)))
            break;
        set_place(l, at, get_place(l, child));
        at = child;
    }
    set_place(l, at, place);
}

/* The first k places in order out of n. */
static void order(const struct line *l, int64_t k, int64_t n)
{
    for (int64_t i = 0; i < k; i++)
        set_place(l, i, i);
    for (int64_t i = k / 2 - 1; i >= 0; i--)
        sift(l, i, k);
    for (int64_t i = k; i < n && k > 0; i++)
        if (before(l, i, get_place(l, 0))) {
            set_place(l, 0, i);
            sift(l, 0, k);
        }
    for (int64_t i = k - 1; i > 0; i--) {
        int64_t last = get_place(l, 0);

        set_place(l, 0, get_place(l, i));
        set_place(l, i, last);
        sift(l, 0, i);
    }
}

static void order_axis(const struct wf_call *c, int axis, bool descending)
{
    const struct wf_tensor *x = &c->in[0], *y = &c->out[0];
    size_t size = (size_t)weft_dtype_size(x->type.dtype);
    int64_t n = x->type.dim[axis], k = y->type.dim[axis];
    int64_t outer = wf_type_part(&x->type, 0, axis);
    int64_t inner = wf_type_part(&x->type, axis + 1, x->type.rank);

    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            struct line l = {x,     &c->out[1], o * n * inner + i, o * k * inner + i,
                             inner, descending};

            order(&l, k, n);
            for (int64_t j = 0; j < k; j++)
                memcpy((char *)y->data + (size_t)(l.places_at + j * inner) * size,
                       (const char *)x->data + (size_t)(l.x_at + get_place(&l, j) * inner) * size,
                       size);
        }
}

weft_status wf_ref_top_k(const struct wf_call *c)
{
    order_axis(c, c->in[0].type.rank - 1, true);
    return WEFT_OK;
}

weft_status wf_ref_sort(const struct wf_call *c)
{
    order_axis(c, wf_axis_of(wf_call_int(c, "axis"), c->in[0].type.rank),
               wf_call_int(c, "descending"));
    return WEFT_OK;
}
