/* stages.h - stages as rows of a table: what builders of rows share, and what jobs need to know
 * of a row. */
#ifndef WF_DATA_STAGE_STAGES_H
#define WF_DATA_STAGE_STAGES_H

#include "data/data.h"
#include "tensor/attr.h"
#include "weft/data_stage.h"

/* What a stage does, besides changing columns. */
enum wf_stage_flags {
    WF_STAGE_STATS = 1,  /* learns statistics of its columns */
    WF_STAGE_WORDS = 2,  /* learns a vocabulary of each column, unless it is in a file */
    WF_STAGE_ROWS = 4,   /* other samples than before: fewer, more, or stacks of them */
    WF_STAGE_STACKS = 8, /* ... of neighbors: samples chosen at random would not be neighbors */
    WF_STAGE_READS = 16, /* leaves the columns that it names as they are; `to` alone is new */
    WF_STAGE_AFTER = 32, /* the share for validation is taken before it */
    WF_STAGE_TRAIN = 64, /* for the training part alone, unless `when` says otherwise */
    WF_STAGE_LEARNS = WF_STAGE_STATS | WF_STAGE_WORDS
};

struct wf_adding;
typedef weft_ds wf_adder(struct wf_adding *a);

struct wf_stage_row {
    const char *name, *attrs;
    wf_adder *add;
    int flags;
    const char *call, *doc;
};
#define STAGE(name, attrs, flags, call, doc) wf_adder wf_add_##name;
#define CODE(call, reason)
#include "data/stage/stages.def"
#undef STAGE
#undef CODE

/* What a stage has learned: an item for each column, or one for all, in a weft_learned. */
struct wf_stage_items {
    int n;
    const char **name, **column;
};

/* A stage being added to a dataset. */
struct wf_adding {
    weft_data *d;
    weft_ds s;
    const struct wf_stage_row *row;
    int n_specs;
    const struct wf_attr_spec *spec;
    const struct wf_attr *value;
    const weft_learned *learned; /* NULL: nothing */
    struct wf_stage_items items;
    const char *learned_from; /* for messages: the file of what was learned, or NULL */
    uint64_t seed;            /* of the run */
    const char *dir;          /* relative paths count from here; NULL or "": as they are */
    const char
        *suffix; /* of files that the stage writes: parts of a job have their own; NULL: none */
};

const struct wf_stage_row *wf_stage_row_at(int i); /* NULL past the end */
/* Reasons of functions that are not rows; NULL past the end. */
const char *wf_stage_code_at(int i, const char **reason);
/* The row of a name; an error names the nearest one. */
weft_status wf_stage_find(const char *name, const struct wf_stage_row **out);
/* What a stage of this row with these values learns: names of the items, and their columns, in
 * the arena. */
weft_status wf_stage_items(struct wf_arena *arena, const struct wf_stage_row *row,
                           const struct wf_attr_spec *spec, int n_specs,
                           const struct wf_attr *value, struct wf_stage_items *out);
/* The next name of a comma-separated list, without blanks around it; false past the end. */
bool wf_next_name(const char **at, const char **name, size_t *n);

/* ---- for builders ---------------------------------------------------------------------------- */

static inline const struct wf_attr *wf_stage_arg(const struct wf_adding *a, const char *name)
{
    return wf_attr_find(a->spec, a->n_specs, a->value, name);
}
static inline int64_t wf_stage_arg_int(const struct wf_adding *a, const char *name)
{
    return wf_stage_arg(a, name)->i;
}
static inline bool wf_stage_arg_bool(const struct wf_adding *a, const char *name)
{
    return wf_stage_arg(a, name)->i != 0;
}
static inline double wf_stage_arg_float(const struct wf_adding *a, const char *name)
{
    return wf_stage_arg(a, name)->f;
}
static inline const char *wf_stage_arg_text(const struct wf_adding *a, const char *name)
{
    const char *s = wf_stage_arg(a, name)->s;

    return s ? s : "";
}
static inline weft_dtype wf_stage_arg_dtype(const struct wf_adding *a, const char *name)
{
    return (weft_dtype)wf_stage_arg(a, name)->i;
}
/* The attribute `seed`, or the run's. */
static inline uint64_t wf_stage_arg_seed(const struct wf_adding *a)
{
    int64_t seed = wf_stage_arg(a, "seed")->i;

    return seed == -1 ? a->seed : (uint64_t)seed;
}
/* Which of `words` (with blanks between them) an attribute is: 0, 1, ...; -1 after a failure,
 * which the pipeline keeps. */
int wf_stage_arg_word(const struct wf_adding *a, const char *name, const char *words);
/* A file that the stage writes; NULL when it is not given, or memory is short, which the
 * pipeline keeps. */
const char *wf_stage_arg_output(const struct wf_adding *a, const char *name);

#endif
