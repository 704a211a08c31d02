/* added.c - nodes that join a simulated job beyond the list that it began with.
 *
 * A process is a task, which has a name. Machines know numbers: the place of a task in the list of
 * all that were added, as the process knows it. Links know names, so a message counts only if both
 * ends have the same number for its sender. */
#include "world.h"

#include <stdlib.h>

/* The name of a task that is added says which process it is. */
static weft_status make_task(const struct world *w, int i, struct wf_task *out)
{
    char name[32], address[32];
    bool server = w->node[i].role == WF_ROLE_SERVER;

    wf_snprintf(name, sizeof name, "%s/%d", server ? "ps" : "worker", i);
    wf_snprintf(address, sizeof address, server ? "uds:/tmp/%d" : "", i);
    return wf_added_make(name, address, out);
}

/* The tasks that the job began with are the first ones. */
static void begin_list(const struct world *w, struct task_list *l)
{
    l->n = w->c->n_nodes - w->c->n_added;
    for (int i = 0; i < l->n; i++)
        wf_snprintf(l->task[i].name, sizeof l->task[i].name, "first/%d", i);
}

static weft_status extend(const struct world *w, struct task_list *l, const char *list)
{
    if (!w->c->n_added)
        return WEFT_OK;
    if (l->n == 0)
        begin_list(w, l);
    return wf_added_read(list, l->task, &l->n, MAX_NODES);
}

/* Which process has a number; WF_NOBODY: it is not known. */
static int process_of(const struct world *w, const struct task_list *l, int number)
{
    int n_first = w->c->n_nodes - w->c->n_added;

    if (number < n_first)
        return number;
    return number < l->n ? l->task[number].index : WF_NOBODY;
}

int sim_process(const struct world *w, int node, int number)
{
    return process_of(w, &w->node[node].list, number);
}

/* As the store has it. */
struct node *sim_at(struct world *w, int number)
{
    int i = number == WF_NOBODY ? WF_NOBODY : process_of(w, &w->list, number);

    return i == WF_NOBODY ? NULL : &w->node[i];
}

/* The number of process i where process `at` is; WF_NOBODY: it is not known there. */
int sim_number(const struct world *w, int at, int i)
{
    const struct task_list *l = &w->node[at].list;
    int n_first = w->c->n_nodes - w->c->n_added;

    if (i < n_first)
        return i;
    for (int k = n_first; k < l->n; k++)
        if (l->task[k].index == i)
            return k;
    return WF_NOBODY;
}

/* Whoever takes a record knows all that it names. False: it has another task at some place. */
bool sim_learn(struct world *w, int node, const struct wf_epoch *e)
{
    return !e || !e->list || !extend(w, &w->node[node].list, e->list);
}

/* A record is in the store. Lists are only ever continued. */
void sim_check_list(struct world *w, const struct wf_epoch *old, const struct wf_epoch *e)
{
    const char *was = old && old->list ? old->list : "", *now = e->list ? e->list : "";

    if (strncmp(was, now, strlen(was)) != 0 || extend(w, &w->list, now))
        sim_fail(w, "epoch %llu: the list of added tasks is not continued",
                 (unsigned long long)e->number);
    for (int i = 0; i < e->n_members; i++)
        if (process_of(w, &w->list, e->member[i].node) == WF_NOBODY)
            sim_fail(w, "epoch %llu: node %d is in no list", (unsigned long long)e->number,
                     e->member[i].node);
}

static weft_status write_list(const struct world *w, const struct task_list *l, struct wf_buf *b)
{
    wf_buf_init(b, w->ctx, 1 << 16);
    return wf_added_write(l->task, l->n, b);
}

/* The machine of a chief knows as many nodes as its process. */
weft_status sim_extend_chief(struct world *w, int chief)
{
    struct node *n = &w->node[chief];
    struct wf_buf b;
    weft_status st;

    if (!w->c->n_added)
        return WEFT_OK;
    if (n->list.n == 0)
        begin_list(w, &n->list);
    st = write_list(w, &n->list, &b);
    if (!st)
        st = wf_chief_extend(&n->m.chief, n->list.n, b.data ? b.data : "");
    wf_buf_free(&b);
    return st;
}

/* The chief puts the task at the end of its list, and tells it all of the list. */
static bool enter_at(struct world *w, int chief, int i)
{
    struct node *n = &w->node[chief];
    struct task_list *l = &n->list;
    struct wf_buf b;
    bool ok;

    if (l->n == 0)
        begin_list(w, l);
    if (sim_number(w, chief, i) == WF_NOBODY) {
        if (l->n == MAX_NODES || make_task(w, i, &l->task[l->n]))
            return false;
        l->n++;
    }
    if (sim_extend_chief(w, chief))
        abort();
    ok = !write_list(w, l, &b);
    memset(&w->node[i].list, 0, sizeof w->node[i].list);
    ok = ok && !extend(w, &w->node[i].list, b.data);
    wf_buf_free(&b);
    return ok;
}

/* A task asks to be added, whoever leads the job; if there is no chief now, later. */
void sim_enter(struct world *w, int i)
{
    for (int k = 0; k < w->c->n_chiefs; k++) {
        const struct node *n = &w->node[k];

        if (!n->alive || n->paused_until > w->now || n->m.chief.state != WF_CHIEF_ACTS ||
            n->cut >> i & 1 || n->deaf >> i & 1 || w->node[i].cut >> k & 1 || !enter_at(w, k, i))
            continue;
        w->result->n.added++;
        sim_tell(w, "chief %d adds process %d as node %d", k, i, sim_number(w, k, i));
        sim_start_node(w, i);
        return;
    }
    sim_add_event(w, w->now + 200 * MS, E_START, i);
}

/* A task that was added by a chief whose list came to nothing: its process ends, and asks again. */
void sim_unlearn(struct world *w, int i)
{
    if (i < w->c->n_nodes - w->c->n_added)
        sim_fail(w, "node %d: %s", i, weft_error());
    w->result->n.refused++;
    sim_stop_node(w, i);
    sim_add_event(w, w->now + 300 * MS, E_START, i);
}

/* Whether a message comes from the node that it names. A chief that leads the job, and does not
 * know its sender, refuses the link: the process ends, and asks again. */
bool sim_is_known(struct world *w, int node, const struct event *e)
{
    struct node *from = &w->node[e->process];

    if (sim_number(w, node, e->process) == e->msg.from)
        return true;
    if (w->node[node].role == WF_ROLE_CHIEF && w->node[node].m.chief.state == WF_CHIEF_ACTS &&
        from->alive && from->incarnation == e->msg.incarnation) {
        sim_tell(w, "chief %d does not know process %d", node, e->process);
        sim_unlearn(w, e->process);
    }
    return false;
}
