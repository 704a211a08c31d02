/* shrink.c - finds a smaller graph that also fails: roots are dropped, nodes become feeds of the
 * values they had.
 *
 * Each try runs in its own process, because a failure may be a crash. */
#define _DEFAULT_SOURCE
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "random/random.h"

struct shrink {
    struct graph_case *c;
    const struct config *f;
    enum direction dir;
    bool *cut; /* per node of c->g: replaced by feeds */
    bool fetch[MAX_FETCHES], update[MAX_UPDATES];
};

static bool is_root(const struct shrink *s, int32_t v)
{
    for (int i = 0; i < s->c->n_fetches; i++)
        if (s->fetch[i] && s->c->fetch[i].id == v)
            return true;
    for (int i = 0; i < s->c->n_updates; i++)
        if (s->update[i] && s->c->update[i].id == v)
            return true;
    return v == s->c->loss.id && s->dir == GRADIENTS;
}

static void mark(const struct shrink *s, bool *live)
{
    const weft_graph *g = s->c->g;

    for (int32_t v = 1; v < g->n_values; v++)
        if (is_root(s, v))
            live[g->values[v].node] = true;
    for (int64_t k = g->n_nodes - 1; k >= 0; k--) {
        const struct wf_node *n = &g->nodes[k];

        for (int i = 0; live[k] && !s->cut[k] && i < n->n_in; i++)
            if (n->in[i])
                live[g->values[n->in[i]].node] = true;
        for (int i = 0; live[k] && !s->cut[k] && i < n->n_ctrl; i++)
            live[n->ctrl[i]] = true;
    }
}

static weft_val as_feed(struct graph_case *to, const struct plain *sets, int n_sets, int32_t v)
{
    const struct wf_type *t = &sets[0].val[v].type;
    int64_t dim[WEFT_MAX_RANK];
    char name[32];
    weft_val out;

    for (int i = 0; i < t->rank; i++) {
        dim[i] = t->dim[i];
        for (int s = 1; s < n_sets; s++)
            if (sets[s].val[v].type.dim[i] != dim[i])
                dim[i] = WEFT_ANY;
    }
    snprintf(name, sizeof name, "cut%d", v);
    if (to->n_feeds == MAX_FEEDS)
        return WEFT_NIL;
    out = weft_placeholder(to->g, name, t->dtype, t->rank, dim);
    for (int s = 0; s < n_sets; s++)
        to->feeds[s][to->n_feeds] =
            weft_view(t->dtype, sets[s].val[v].data, t->rank, sets[s].val[v].type.dim);
    to->feed[to->n_feeds++] = out;
    return out;
}

/* Copies the live nodes; false if that is not possible. */
static bool copy_nodes(const struct shrink *s, const bool *live, const struct plain *sets,
                       struct graph_case *to, int32_t *map)
{
    const struct graph_case *c = s->c;
    const weft_graph *g = c->g;

    for (int64_t k = 0; k < g->n_nodes; k++) {
        const struct wf_node *n = &g->nodes[k];
        int32_t in[WF_MAX_IN], first;

        if (!live[k])
            continue;
        for (int i = 0; s->cut[k] && i < n->n_out; i++) {
            map[n->first_out + i] = as_feed(to, sets, c->n_sets, n->first_out + i).id;
            if (!map[n->first_out + i])
                return false;
        }
        if (s->cut[k])
            continue;
        for (int i = 0; i < n->n_in; i++)
            in[i] = n->in[i] ? map[n->in[i]] : 0;
        if (wf_copy_node(to->g, n, in, NULL, &first))
            return false;
        for (int i = 0; i < n->n_out; i++)
            map[n->first_out + i] = first + i;
        for (int i = 0; n->op->id == WF_OP_placeholder && i < c->n_feeds; i++)
            if (c->feed[i].id == n->first_out) {
                to->g->values[first].type = g->values[n->first_out].type;
                for (int set = 0; set < c->n_sets; set++)
                    to->feeds[set][to->n_feeds] = c->feeds[set][i];
                to->feed[to->n_feeds++].id = first;
            }
        if (n->var >= 0) {
            to->var[to->g->n_vars] = c->var[n->var];
            to->g->nodes[to->g->n_nodes - 1].var = (int32_t)to->g->n_vars;
            if (wf_grow(c->ctx, &to->g->vars, &to->g->cap_vars, to->g->n_vars + 1,
                        sizeof *to->g->vars))
                return false;
            to->g->vars[to->g->n_vars++] = first;
        }
    }
    return true;
}

/* The case without what is cut and dropped; its memory is never freed (the process ends). */
static bool smaller(const struct shrink *s, struct graph_case *to)
{
    const struct graph_case *c = s->c;
    bool *live = calloc((size_t)c->g->n_nodes + 1, 1);
    int32_t *map = calloc((size_t)c->g->n_values, sizeof *map);
    struct plain *sets = calloc(MAX_SETS, sizeof *sets);
    weft_val roots[MAX_FETCHES + MAX_UPDATES + 1];
    int n_roots = 0;

    for (int i = 0; i < c->n_fetches; i++)
        roots[n_roots++] = c->fetch[i];
    for (int i = 0; i < c->n_updates; i++)
        roots[n_roots++] = c->update[i];
    roots[n_roots++] = c->loss;
    *to = *c;
    to->n_feeds = to->n_fetches = to->n_updates = 0;
    to->var = calloc((size_t)c->g->n_vars + 1, sizeof *to->var);
    if (weft_graph_new(c->ctx, &to->g))
        return false;
    for (int k = 0; k < c->n_sets; k++) {
        plain_init(&sets[k], c->ctx, c->g);
        for (int64_t i = 0; i < c->g->n_vars; i++)
            plain_set_var(&sets[k], i, &c->var[i]);
        if (plain_run(&sets[k], c->n_feeds, c->feed, c->feeds[k], n_roots, roots))
            return false;
    }
    mark(s, live);
    if (!copy_nodes(s, live, sets, to, map))
        return false;
    for (int64_t k = 0; k < c->g->n_nodes; k++)
        for (int i = 0; live[k] && !s->cut[k] && i < c->g->nodes[k].n_ctrl; i++)
            if (map[c->g->nodes[c->g->nodes[k].ctrl[i]].first_out])
                weft_control(to->g, (weft_val){map[c->g->nodes[k].first_out]},
                             (weft_val){map[c->g->nodes[c->g->nodes[k].ctrl[i]].first_out]});
    for (int i = 0; i < c->n_fetches; i++)
        if (s->fetch[i])
            to->fetch[to->n_fetches++].id = map[c->fetch[i].id];
    for (int i = 0; i < c->n_updates; i++)
        if (s->update[i])
            to->update[to->n_updates++].id = map[c->update[i].id];
    to->loss.id = map[c->loss.id];
    return to->n_fetches + to->n_updates > 0 || s->dir == GRADIENTS;
}

void time_limit(int seconds)
{
    struct itimerval cpu = {.it_value = {.tv_sec = seconds}};

    setitimer(ITIMER_PROF, &cpu, NULL);
    alarm(30 * (unsigned)seconds);
}

static bool still_fails(const struct shrink *s)
{
    int status = 0;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        struct graph_case to;
        struct report r = {.failed = false};

        time_limit(20);
        if (!freopen("/dev/null", "w", stderr) || !smaller(s, &to) ||
            check_case(&to, s->f, s->dir, &r))
            _exit(0);
        _exit(r.failed ? 1 : 0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return false;
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Tries one change; it is kept if the case still fails. */
static bool attempt(struct shrink *s, bool *flag, bool value)
{
    bool old = *flag;

    if (old == value)
        return false;
    *flag = value;
    if (still_fails(s))
        return true;
    *flag = old;
    return false;
}

static bool shrink_case(struct graph_case *c, const struct config *f, enum direction dir,
                        struct graph_case *out)
{
    struct shrink s = {.c = c, .f = f, .dir = dir, .cut = calloc((size_t)c->g->n_nodes + 1, 1)};
    bool any = true, *live = calloc((size_t)c->g->n_nodes + 1, 1), ok;

    for (int i = 0; i < c->n_fetches; i++)
        s.fetch[i] = true;
    for (int i = 0; i < c->n_updates; i++)
        s.update[i] = true;
    ok = still_fails(&s);
    while (c->n_sets > 1 && ok) {
        c->n_sets--;
        if (!still_fails(&s)) {
            c->n_sets++;
            break;
        }
    }
    for (int round = 0; ok && any && round < 4; round++) {
        any = false;
        for (int i = 0; i < c->n_fetches; i++)
            any |= attempt(&s, &s.fetch[i], false);
        for (int i = 0; i < c->n_updates; i++)
            any |= attempt(&s, &s.update[i], false);
        for (int64_t k = c->g->n_nodes - 1; k >= 0; k--) {
            memset(live, 0, (size_t)c->g->n_nodes);
            mark(&s, live);
            if (live[k] && !(c->g->nodes[k].op->flags & (WF_LEAF | WF_STATE_IN0)))
                any |= attempt(&s, &s.cut[k], true);
        }
    }
    ok = ok && smaller(&s, out);
    free(s.cut);
    free(live);
    return ok;
}

/* ---- showing --------------------------------------------------------------------------------- */

void case_show(const struct graph_case *c, const struct config *f, enum direction dir)
{
    char *text = NULL, buf[128];

    if (!weft_graph_text(c->g, &text))
        printf("%s", text);
    weft_text_free(c->ctx, text);
    for (int i = 0; i < c->n_fetches; i++)
        printf("fetch %d: %s\n", i, weft_val_name(c->g, c->fetch[i]));
    for (int i = 0; i < c->n_updates; i++)
        printf("update %d: %s\n", i, weft_val_name(c->g, c->update[i]));
    printf("sets of feeds: %d; %s; %s\n", c->n_sets, config_text(f, buf), direction_names[dir]);
}

void case_show_smaller(struct graph_case *c, const struct config *f, enum direction dir)
{
    struct graph_case small;
    struct report r = {.failed = false};

    if (!shrink_case(c, f, dir, &small))
        return;
    printf("\nsmaller:\n");
    case_show(&small, f, dir);
    fflush(stdout);
    check_case(&small, f, dir, &r);
    printf("%s\n", r.text);
    if (dir == AGAINST_PLAIN)
        check_values(&small, f);
    printf("\n");
}
