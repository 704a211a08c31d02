/* random.h - random graphs against the plain definition.
 *
 * A seed determines everything: the graph (gen.c, rules*.c), how it is run (config.c) and what is
 * compared (check.c). The expected results come from one loop over the nodes that calls each
 * reference kernel with its own memory (plain.c): no plan, no pass, no order of execution, no reuse
 * of memory. If a run differs from that by more than a few roundings, the expected results are
 * computed again several times in f64, with every rounding replaced by noise (check.c). A result
 * that is far from all of these runs is wrong; one on which they disagree is not compared. */
#ifndef RANDOM_RANDOM_H
#define RANDOM_RANDOM_H

#include <stdio.h>

#include "exec/exec.h"
#include "weft/weft.h"

/* ---- draw.c: numbers from a seed ------------------------------------------------------------- */

struct draw {
    uint64_t state;
};
struct draw draw_from(uint64_t seed, uint64_t stream);
uint64_t draw_bits(struct draw *d);
bool draw_overlaps(void); /* whether neighboring seeds draw the same numbers */
int64_t draw_int(struct draw *d, int64_t lo, int64_t hi); /* both ends included */
double draw_real(struct draw *d, double lo, double hi);
bool draw_one_in(struct draw *d, int n);
/* One of the words of a text such as "valid|same". */
const char *draw_word(struct draw *d, const char *words, char out[32]);

/* ---- plain.c: the plain definition ----------------------------------------------------------- */

/* A fault in a kernel, to see whether the check detects it. */
struct fault {
    enum {
        ELEMENT,
        FACTOR,
        DROPPED,
        N_FAULTS
    } kind; /* one element of the result wrong; all wrong; one of an operand is 0 */
    int64_t node, element;
    int at;    /* which result or operand */
    double by; /* relative */
};

/* What a run does where a decision is undecided (ties.c, undecided.c). */
enum choice {
    BY_CHANCE,
    CAUTIOUS, /* by chance, but only where noisy runs are on both sides of the threshold */
    AS_IT_IS,
    BELOW, /* the number is on this side of the threshold, or exactly there */
    EXACTLY,
    ABOVE,
    FARTHEST, /* the result is as far from 0 as it may be, as large, or as small */
    LARGEST,
    SMALLEST,
    NARROW, /* by chance, and sums and products that may leave the range of their type do */
};

/* The runs of one graph that are made in lockstep. */
struct peers {
    const struct plain *run; /* the noisy runs, then the deciding runs */
    int n_noisy, n;
    bool *open_var, *open_val; /* per variable and value: depends on an undecided step of an
                                * optimizer */
    bool varies;               /* the deciding runs may differ from the noisy ones */
};

/* The state of a run of a graph. The arena owns values, variables and slots. */
struct plain {
    weft_ctx *ctx;
    const weft_graph *g;
    struct wf_arena arena;
    int64_t bytes;      /* of the values in it */
    bool wide;          /* floats are computed as f64 */
    double noise;       /* > 0: every rounding moves by up to this many units of the value's type */
    bool unbounded;     /* values out of the type's range do not become infinite */
    uint64_t seed;      /* of the noise: */
    struct draw draw;   /* the same in two runs of this seed, whatever they decide */
    struct draw chance; /* of decisions */
    struct peers *peers; /* NULL: none */
    int number;          /* index of this one among them */
    enum choice choice;
    int64_t n_values;                   /* room in val */
    struct wf_tensor *val;              /* per value; data NULL: not computed */
    struct wf_tensor *var;              /* per variable of the graph: its current value */
    float *(*slot)[WF_OPTIM_MAX_SLOTS]; /* per variable */
    int64_t n_vars;
    const struct wf_tensor *frozen; /* per value: what stop_gradient passes on; NULL: its operand */
    const struct fault *fault;      /* NULL: none */
    bool saw_odd;                   /* a value was NaN or infinite */
    int64_t step, n_runs;
    int shard;
};

void plain_init(struct plain *p, weft_ctx *ctx, const weft_graph *g);
void plain_free(struct plain *p);
/* The variable's value, copied (and widened). The graph may have grown since plain_init. */
weft_status plain_set_var(struct plain *p, int64_t var, const struct wf_tensor *value);
/* Computes node k; its inputs have been computed. feed: the value of a placeholder. */
weft_status plain_node(struct plain *p, int64_t k, const weft_tensor *feed);
/* One run: everything the roots need; the step counter increases if something was updated. */
weft_status plain_run(struct plain *p, int n_feeds, const weft_val *feed, const weft_tensor *feeds,
                      int n_roots, const weft_val *roots);
/* Several runs in lockstep: each node by all of them before the next node. */
weft_status plain_run_all(struct plain *p, int n, int n_feeds, const weft_val *feed,
                          const weft_tensor *feeds, int n_roots, const weft_val *roots);
/* What a fetch returns: variables (and views of them) after the updates. */
struct wf_tensor plain_fetch(const struct plain *p, weft_val v);
/* Whether a fetch or a variable depends on an undecided step. */
bool plain_is_open(const struct plain *p, weft_val v);
/* Calls the reference kernel. */
weft_status plain_call(struct plain *p, const struct wf_node *n, const struct wf_attr *attr,
                       int n_in, struct wf_tensor *in, struct wf_tensor *out);
/* Memory for a value of the type, aligned as kernels need it. */
void *plain_room(struct plain *p, const struct wf_type *t);
/* The value whose memory v shows. */
int32_t plain_root(const weft_graph *g, int32_t v);

/* ---- sums.c: what long sums and products lose ------------------------------------------------ */

/* Replaces the results of sums and products of f32 by those of sums in f32, in order. */
void sums_in_order(const struct plain *p, const struct wf_node *n, const struct wf_tensor *in,
                   struct wf_tensor *out);
/* Whether a sum or product may leave the range of its type on the way; if so, results become NaN
 * where it does. */
bool sums_may_be_narrow(const struct plain *p, const struct wf_node *n, const struct wf_tensor *in);
weft_status sums_narrow(struct plain *p, const struct wf_node *n, const struct wf_attr *attr,
                        const struct wf_tensor *in, struct wf_tensor *out);

/* ---- ties.c: decisions that rounding may turn ------------------------------------------------ */

/* Moves operands of node k, whose result has the shape of `out`, to one side or the other where the
 * peers disagree. Returns whether there was such an element. */
bool plain_ties(struct plain *p, int64_t k, const struct wf_type *out, struct wf_tensor *in);
/* The element of t that broadcasts to element e of the shape `to`. */
int64_t tie_index(const struct wf_type *t, const struct wf_type *to, int64_t e);

/* ---- undecided.c: what depends on such decisions --------------------------------------------- */

/* Computes node k in one of the peers, with decisions as this run takes them. */
weft_status plain_decide(struct plain *p, int64_t k, const struct wf_attr *attr,
                         struct wf_tensor *in, struct wf_tensor *out);

/* ---- gen.c: one graph ------------------------------------------------------------------------ */

enum { MAX_FEEDS = 24, MAX_FETCHES = 24, MAX_UPDATES = 48, MAX_SETS = 3, MAX_POOL = 128 };

struct graph_case {
    weft_ctx *ctx;
    weft_graph *g;
    uint64_t seed;
    int n_feeds, n_fetches, n_updates;
    weft_val feed[MAX_FEEDS], fetch[MAX_FETCHES], update[MAX_UPDATES];
    weft_val loss; /* nil: none */
    int n_sets;    /* feeds with different values, and perhaps sizes */
    weft_tensor feeds[MAX_SETS][MAX_FEEDS];
    struct plain first;    /* the first set's values, computed while the graph was drawn */
    bool random;           /* draws random numbers */
    bool has_batch;        /* a symbolic size */
    bool smooth;           /* drawn for finite differences */
    bool flat;             /* run with flat gradients, which are compared as well */
    bool waits;            /* a node waits for an update that is not among update[] */
    struct wf_tensor *var; /* the variables' first values */
};

/* 0, or the status of a builder that should not have failed. */
weft_status case_draw(struct graph_case *c, weft_ctx *ctx, uint64_t seed, bool smooth);
void case_free(struct graph_case *c);

/* State while a graph is drawn. */
struct gen {
    struct graph_case *c;
    weft_graph *g;
    struct draw d;
    weft_dtype main_type;
    weft_val pool[MAX_POOL];
    int n_pool, n_names;
    int64_t batch[MAX_SETS]; /* the symbolic size in each set; batch[0] 0: none */
    bool large;              /* a few sizes are large enough for several tiles */
    bool whole;              /* leaves are small integers */
    bool smooth;             /* for finite differences: no corners, no integers */
    int64_t n_done;          /* nodes already computed */
    char broken[256];        /* the error of a builder that gave a wrong result */
};

enum kind { FLOATS = 1, INTS = 2, BOOLS = 4, NUMBERS = 3, ANYTHING = 7, INDEX = 8 };

/* For rules. A nil value means that nothing fits: try something else. */
weft_val gen_any(struct gen *g, unsigned kinds, int min_rank, int max_rank);
weft_val gen_typed(struct gen *g, weft_dtype t, int rank, const int64_t *dim);
weft_val gen_like(struct gen *g, weft_val v);                 /* same type and sizes */
weft_val gen_spread(struct gen *g, weft_dtype t, weft_val v); /* broadcasts with v */
weft_val gen_leaf(struct gen *g, weft_dtype t, int rank, const int64_t *dim);
/* A new feed or constant of integers in [lo, hi]. */
weft_val gen_ids(struct gen *g, int64_t lo, int64_t hi, int rank, const int64_t *dim);
weft_val gen_ids_typed(struct gen *g, weft_dtype t, int64_t lo, int64_t hi, bool sorted, int rank,
                       const int64_t *dim);
weft_val gen_variable(struct gen *g, weft_dtype t, int rank, const int64_t *dim, bool state);
int64_t gen_size(struct gen *g);
weft_dtype gen_float(struct gen *g);
const struct wf_type *gen_type(const struct gen *g,
                               weft_val v); /* with its sizes in the first set */
double gen_max_abs(const struct gen *g, weft_val v);
/* Builds, computes and adds all float, integer and bool results to the pool; nil if it does not
 * fit. */
weft_val gen_op(struct gen *g, const char *op, int n_in, const weft_val *in, const char *fmt, ...)
    WEFT_PRINTF(5, 6);
/* Computes nodes built by others (weft_grad, ...) and adds v to the pool. */
bool gen_take(struct gen *g, weft_val v);
/* Fails the case with this text. Returns false. */
bool gen_fail(struct gen *g, const char *fmt, ...) WEFT_PRINTF(2, 3);
bool gen_settle(struct gen *g); /* computes all new nodes; false if one failed */

/* ---- rules*.c: how an op is drawn ------------------------------------------------------------ */

struct rule {
    const char *op;
    bool (*draw)(struct gen *g, const char *op); /* NULL: made by gradients, optimizers or plans */
    int weight;
    const char *made_by; /* for those: what makes it */
};
extern const struct rule rules[];
extern const int n_rules;
const struct rule *rule_find(const char *op);
/* An op by weight; passes: only among the rules that are made for passes. */
const struct rule *rule_draw(struct draw *d, bool passes);
bool draws_losses(struct gen *g);     /* losses.c: a loss, gradients and perhaps updates */
void draw_for_devices(struct gen *g); /* rules_devices.c */

/* ---- config.c: the ways to run --------------------------------------------------------------- */

struct config {
    const char *name;
    unsigned passes_off;
    bool reference, flat, text; /* text: the graph is saved and read back */
    int threads;
    weft_simd simd;
    weft_kernels kernels;
    int max_plans;
    const char *device;  /* with memory of its own, "gpu:0" or "fake:0"; NULL: the cpu */
    const char *without; /* what its plans leave out (weft_fn_opts) */
};
/* All configurations from now on are of a device with memory of its own: "emulated" (kernels for
 * GPUs, test/support/fake_cuda.h) or "fake" (test/support/fake.h). False: this build has none. */
bool configs_on(const char *device);
bool configs_of_device(void);
int n_configs(void);
struct config config_at(int i); /* all of them, in a fixed order */
struct config config_draw(struct draw *d);
weft_ctx *config_ctx(const struct config *c); /* kept until configs_end */
void configs_end(void);
char *config_text(const struct config *c, char buf[128]);

/* ---- check.c --------------------------------------------------------------------------------- */

struct report {
    bool failed;
    bool excused; /* outside of the noisy runs, but an undecided decision explains it */
    char text[1024];
};

void report_fail(struct report *r, const char *fmt, ...) WEFT_PRINTF(2, 3);

enum direction { AGAINST_PLAIN, SAME_BITS, GRADIENTS, N_DIRECTIONS };
extern const char *const direction_names[N_DIRECTIONS];

/* Runs the case in this configuration and compares; two configurations for SAME_BITS. */
weft_status check_case(struct graph_case *c, const struct config *config, enum direction dir,
                       struct report *r);

/* Uses the plain definition with this fault instead of the engine; *changed: the effect is larger
 * than a few roundings. */
weft_status check_fault(struct graph_case *c, const struct fault *fault, bool *changed,
                        struct report *r);
/* Prints, for each value of the case, the element that differs most from the plain definition when
 * the value is fetched. */
void check_values(const struct graph_case *c, const struct config *f);

/* ---- gradients.c ----------------------------------------------------------------------------- */

weft_status check_gradients(struct graph_case *c, struct report *r);

/* ---- faults.c -------------------------------------------------------------------------------- */

/* Puts faults into the graphs of these seeds and prints how many the check detects; false: too
 * few. */
bool faults_noticed(int64_t from, int64_t to);

/* ---- shrink.c -------------------------------------------------------------------------------- */

/* A signal ends the process after this much computing time, or thirty times as much waiting time:
 * the machine may be busy. */
void time_limit(int seconds);
/* The graph as text, what is fetched, how it is run. */
void case_show(const struct graph_case *c, const struct config *f, enum direction dir);
/* The same for a smaller case that fails in the same configuration, if there is one. */
void case_show_smaller(struct graph_case *c, const struct config *f, enum direction dir);

/* ---- cover.c --------------------------------------------------------------------------------- */

void cover_begin(void); /* before any process is started */
void cover_graph(const weft_graph *g, bool planned);
/* Prints what was never drawn; returns how many. */
int cover_report(weft_ctx *ctx, FILE *out);

#endif
