/* attr.h - attributes as text: what a row of a table takes, and the values given to it. */
#ifndef WF_TENSOR_ATTR_H
#define WF_TENSOR_ATTR_H

#include "tensor/tensor.h"

/* A row's attrs are text: "axis:i=-1 keepdims:b=0 perm:l". Types: i integer, f number, b bool, s
 * string, l list of integers, F list of numbers, t dtype. Without "=" the attribute must be
 * given; "l=" is an empty list, "l=1" and "l=[1,1]" are others. */
enum wf_attr_kind { WF_INT, WF_FLOAT, WF_BOOL, WF_STR, WF_INTS, WF_FLOATS, WF_DTYPE };

struct wf_attr {
    enum wf_attr_kind kind;
    bool given;
    int64_t i;     /* INT, BOOL, DTYPE */
    double f;      /* FLOAT */
    const char *s; /* STR */
    int n;         /* INTS, FLOATS: length */
    const int64_t *ints;
    const double *floats;
};

#define WF_MAX_ATTRS 32

struct wf_attr_spec {
    const char *name;
    struct wf_attr value; /* the default; .given says whether there is one */
};

/* One attribute given to a builder. */
struct wf_set {
    const char *name;
    struct wf_attr value;
};

/* What a row takes, from its text. `what` ("sum", "Dense") begins error texts. Names and
 * defaults live in the arena. */
weft_status wf_attr_specs(struct wf_arena *arena, const char *what, const char *text,
                          struct wf_attr_spec spec[WF_MAX_ATTRS], int *n_specs);
/* What is given, in its order: "axis=-1 keepdims=true perm=[1,0] dtype=f32
 * init=random_normal(0,0.05)", up to a character of `stop`, which *end then points at. A list
 * may be a single number, and (1,2) is [1,2]. */
weft_status wf_attr_parse(struct wf_arena *arena, const char *what, const struct wf_attr_spec *spec,
                          int n_specs, const char *text, const char *stop, const char **end,
                          struct wf_set sets[WF_MAX_ATTRS], int *n_sets);
/* A value for every spec: from the whole text (may be NULL), otherwise the default; `given` says
 * which. EINVAL names one that is missing. */
weft_status wf_attr_values(struct wf_arena *arena, const char *what,
                           const struct wf_attr_spec *spec, int n_specs, const char *text,
                           struct wf_attr values[WF_MAX_ATTRS]);
/* Whether a value is the default of its spec, which has one. */
bool wf_attr_is_default(const struct wf_attr *a, const struct wf_attr *by_default);
/* " name=value" that reads back; words that need no quotes get some only with `quote`. */
void wf_attr_write(struct wf_buf *b, const char *name, const struct wf_attr *a, bool quote);
/* Any text as a quoted string that reads back as it is. */
void wf_attr_quote(struct wf_buf *b, const char *text);
/* The value of a name; one that no spec has is a bug and reads as zero. */
const struct wf_attr *wf_attr_find(const struct wf_attr_spec *spec, int n_specs,
                                   const struct wf_attr *values, const char *name);

#endif
