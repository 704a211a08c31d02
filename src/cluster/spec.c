/* spec.c - the tasks of a job as a list, and as text: "chief=ADDRESS;ps=ADDRESS,ADDRESS;worker=2".
 *
 * "+ps/2=ADDRESS" and "+worker/2" are tasks that join the running job beyond its list.
 *
 * Kept true after wf_cluster_finish: tasks are ordered by role and index, then added ones; no
 * two are the same, chiefs and servers have addresses that can be parsed, and there is at most
 * one task of a role in a process. */
#include "cluster/spec.h"

#include "base/number.h"
#include "net/address.h"

static const struct {
    const char *name;
    enum wf_role role;
} roles[] = {{"chief", WF_ROLE_CHIEF},
             {"ps", WF_ROLE_SERVER},
             {"worker", WF_ROLE_WORKER},
             {"evaluator", WF_ROLE_EVALUATOR},
             {"master", WF_ROLE_CHIEF}}; /* TensorFlow's former word; not among suggestions */
enum { N_ROLES = 4 };

const char *wf_role_name(enum wf_role role)
{
    for (int i = 0; i < N_ROLES; i++)
        if (roles[i].role == role)
            return roles[i].name;
    return "?";
}

const char *weft_task_role_name(weft_task_role role)
{
    return wf_role_name((enum wf_role)role);
}

weft_status wf_role_find(const char *name, int64_t n, enum wf_role *out)
{
    const char *names[N_ROLES];
    char word[40];

    for (int i = 0; i < WF_COUNT(roles); i++) {
        if ((int64_t)strlen(roles[i].name) == n && memcmp(roles[i].name, name, (size_t)n) == 0) {
            *out = roles[i].role;
            return WEFT_OK;
        }
        if (i < N_ROLES)
            names[i] = roles[i].name;
    }
    wf_snprintf(word, sizeof word, "%.*s", (int)wf_min_i64(n, 32), name);
    return wf_err(WEFT_EINVAL, "no role '%s'%s; there are chief, ps, worker and evaluator", word,
                  wf_did_you_mean(word, names, N_ROLES).text);
}

weft_status wf_task_parse(const char *name, enum wf_role *role, int *index)
{
    const char *slash = strchr(name, '/');
    int64_t k;
    weft_status st;

    if (!slash || !wf_text_i64(slash + 1, &k) || k < 0 || k >= WF_MAX_TASKS)
        return wf_err(WEFT_EINVAL, "cluster: '%.60s' is not a task; one is \"worker/0\"", name);
    st = wf_role_find(name, slash - name, role);
    if (st)
        return wf_err_wrap(st, "cluster");
    *index = (int)k;
    return WEFT_OK;
}

/* ---- the list -------------------------------------------------------------------------------- */

static bool has_transport(const char *address)
{
    static const char *const words[] = {"tls:", "tcp:", "uds:", "shm:", "inproc:"};

    for (int i = 0; i < WF_COUNT(words); i++)
        if (strncmp(address, words[i], strlen(words[i])) == 0)
            return true;
    return false;
}

weft_status wf_cluster_add(weft_cluster *c, enum wf_role role, int index, int process,
                           const char *address, int64_t length)
{
    int64_t n = length < 0 ? (int64_t)strlen(address) : length;
    struct wf_task *t;
    char text[192];
    weft_status st;

    if (c->n_tasks >= WF_MAX_TASKS)
        return wf_err(WEFT_ELIMIT, "cluster: more than %d tasks", WF_MAX_TASKS);
    if (n + 8 >= (int64_t)sizeof t->address)
        return wf_err(WEFT_EINVAL, "cluster: an address of %lld characters; %d are possible",
                      (long long)n, (int)sizeof t->address - 9);
    st = wf_grow(c->ctx, &c->task, &c->cap, c->n_tasks + 1, sizeof *c->task);
    if (st)
        return st;
    t = &c->task[c->n_tasks++];
    *t = (struct wf_task){.role = role, .index = index, .process = process};
    wf_snprintf(t->name, sizeof t->name, "%s/%d", wf_role_name(role), index);
    wf_snprintf(text, sizeof text, "%.*s", (int)n, address);
    wf_snprintf(t->address, sizeof t->address, "%s%s%s",
                !n || has_transport(text) ? "" : c->transport, !n || has_transport(text) ? "" : ":",
                text);
    if (process < 0)
        t->process = c->n_processes++;
    else if (process >= c->n_processes)
        c->n_processes = process + 1;
    return WEFT_OK;
}

int wf_cluster_index(const weft_cluster *c, enum wf_role role, int index)
{
    for (int i = 0; i < c->n_tasks; i++)
        if (c->task[i].role == role && c->task[i].index == index)
            return i;
    return -1;
}

static bool before(const struct wf_task *a, const struct wf_task *b)
{
    if (a->added || b->added)
        return !a->added;
    return a->role != b->role ? a->role < b->role : a->index < b->index;
}

/* By role and index. Sources give nearly ordered lists. */
static void sort(weft_cluster *c)
{
    for (int i = 1; i < c->n_tasks; i++) {
        struct wf_task t = c->task[i];
        int k = i;

        for (; k > 0 && before(&t, &c->task[k - 1]); k--)
            c->task[k] = c->task[k - 1];
        c->task[k] = t;
    }
}

static bool listens(enum wf_role role)
{
    return role == WF_ROLE_CHIEF || role == WF_ROLE_SERVER;
}

static weft_status check_address(const struct wf_task *t)
{
    struct wf_address a;
    weft_status st;

    if (!t->address[0])
        return listens(t->role)
                   ? wf_err(WEFT_EINVAL, "cluster: %s has no address: the others connect to it",
                            t->name)
                   : WEFT_OK;
    if (strpbrk(t->address, ",; \t\n"))
        return wf_err(WEFT_EINVAL, "cluster: %s: address '%s': no comma, semicolon or space in it",
                      t->name, t->address);
    if (!listens(t->role)) /* only for people: nobody connects to it */
        return WEFT_OK;
    st = wf_address_parse(t->address, &a);
    return wf_err_wrap(st, "cluster: %s", t->name);
}

static weft_status check_tasks(const weft_cluster *c)
{
    weft_status st = WEFT_OK;

    if (c->n_tasks == 0)
        return wf_err(WEFT_EINVAL, "cluster: no tasks");
    for (int i = 0; i < c->n_tasks && !st; i++) {
        const struct wf_task *t = &c->task[i];

        st = check_address(t);
        for (int k = 0; k < i && !st; k++)
            if (c->task[k].role == t->role && c->task[k].index == t->index)
                st = wf_err(WEFT_EINVAL, "cluster: %s is there twice", t->name);
        for (int k = 0; k < i && !st && listens(t->role); k++)
            if (listens(c->task[k].role) && strcmp(c->task[k].address, t->address) == 0)
                st = wf_err(WEFT_EINVAL, "cluster: %s and %s have the same address, %s",
                            c->task[k].name, t->name, t->address);
    }
    return st;
}

/* ---- as text --------------------------------------------------------------------------------- */

/* The tasks of one role: a number of them, or their addresses. */
static weft_status add_role(weft_cluster *c, enum wf_role role, const char *list)
{
    int64_t count;
    weft_status st = WEFT_OK;

    if (!listens(role) && wf_text_i64(list, &count)) {
        if (count < 0 || count > WF_MAX_TASKS)
            return wf_err(WEFT_EINVAL, "cluster: %s=%s: 0 to %d are possible", wf_role_name(role),
                          list, WF_MAX_TASKS);
        for (int k = 0; k < count && !st; k++)
            st = wf_cluster_add(c, role, k, -1, "", 0);
        return st;
    }
    for (int k = 0; !st; k++) {
        int64_t length = (int64_t)strcspn(list, ",");

        if (length == 0)
            return wf_err(WEFT_EINVAL, "cluster: an address of a %s is empty", wf_role_name(role));
        st = wf_cluster_add(c, role, k, -1, list, length);
        list += length;
        if (*list != ',')
            break;
        list++;
    }
    return st;
}

/* "ps/2=ADDRESS" or "worker/2". */
static weft_status add_extra(weft_cluster *c, char *part)
{
    char *equals = strchr(part, '=');
    struct wf_task t;
    weft_status st;

    if (equals)
        *equals = '\0';
    st = wf_added_make(part, equals ? equals + 1 : "", &t);
    if (!st)
        st = wf_cluster_add(c, t.role, t.index, -1, t.address, -1);
    if (!st)
        c->task[c->n_tasks - 1].added = true;
    return st;
}

static weft_status add_part(weft_cluster *c, char *part, unsigned *seen)
{
    char *equals = strchr(part, '=');
    enum wf_role role;
    weft_status st;

    if (*part == '+')
        return add_extra(c, part + 1);
    if (!equals)
        return wf_err(WEFT_EINVAL, "cluster: '%.60s' is not ROLE=ADDRESSES", part);
    st = wf_role_find(part, equals - part, &role);
    if (st)
        return wf_err_wrap(st, "cluster");
    if (*seen & 1u << role)
        return wf_err(WEFT_EINVAL, "cluster: %s= is there twice", wf_role_name(role));
    *seen |= 1u << role;
    return add_role(c, role, equals + 1);
}

weft_status wf_from_text(weft_cluster *c, const char *text)
{
    char *copy, *at;
    unsigned seen = 0;
    weft_status st = WEFT_OK;

    if (strlen(text) > WF_MAX_CLUSTER_TEXT)
        return wf_err(WEFT_ELIMIT, "cluster: a text of %zu bytes; %d are possible", strlen(text),
                      WF_MAX_CLUSTER_TEXT);
    at = copy = wf_strdup(c->ctx, text);
    if (!copy)
        return wf_err_nomem(c->ctx, strlen(text), "cluster");
    while (!st && *at) {
        char *end = at + strcspn(at, ";");
        bool more = *end == ';';

        *end = '\0';
        while (*at == ' ')
            at++;
        if (*at)
            st = add_part(c, at, &seen);
        at = more ? end + 1 : end;
    }
    wf_free(c->ctx, copy);
    wf_snprintf(c->said, sizeof c->said, "flags");
    return st;
}

static void write_role(weft_cluster *c, enum wf_role role)
{
    int n = 0, named = 0;

    for (int i = 0; i < c->n_tasks; i++)
        if (c->task[i].role == role && !c->task[i].added) {
            n++;
            named += c->task[i].address[0] != 0;
        }
    if (n == 0)
        return;
    wf_buf_printf(&c->text, "%s%s=", c->text.len ? ";" : "", wf_role_name(role));
    if (named < n) {
        wf_buf_printf(&c->text, "%d", n);
        return;
    }
    for (int i = 0, k = 0; i < c->n_tasks; i++)
        if (c->task[i].role == role && !c->task[i].added)
            wf_buf_printf(&c->text, "%s%s", k++ ? "," : "", c->task[i].address);
}

weft_status wf_cluster_finish(weft_cluster *c)
{
    weft_status st;

    sort(c);
    st = check_tasks(c);
    for (int i = 0; i < N_ROLES && !st; i++)
        write_role(c, roles[i].role);
    for (int i = 0; i < c->n_tasks && !st; i++)
        if (c->task[i].added)
            wf_buf_printf(&c->text, ";+%s%s%s", c->task[i].name, c->task[i].address[0] ? "=" : "",
                          c->task[i].address);
    return st ? st : c->text.st;
}

/* ---- what sites need ------------------------------------------------------------------------- */

int wf_spec_count(const struct wf_spec *s, enum wf_role role)
{
    int n = 0;

    for (int i = 0; i < s->n_tasks; i++)
        n += s->task[i].role == role && !s->task[i].added;
    return n;
}

weft_status wf_spec_parse(weft_ctx *ctx, const char *text, struct wf_spec *out)
{
    weft_cluster c;
    weft_status st;

    wf_cluster_init(&c, ctx, NULL);
    st = wf_from_text(&c, text);
    if (!st)
        st = wf_cluster_finish(&c);
    out->task = c.task;
    out->n_tasks = c.n_tasks;
    for (int i = 0; i < WF_ROLE_EVALUATOR && !st; i++)
        if (wf_spec_count(out, roles[i].role) == 0)
            st = wf_err(WEFT_EINVAL,
                        "cluster: no %s; an example is "
                        "\"chief=tls:host:7000;ps=tls:host:7001;worker=2\"",
                        roles[i].name);
    if (st) {
        out->task = NULL;
        out->n_tasks = 0;
    } else {
        c.task = NULL;
    }
    wf_cluster_clear(&c);
    return st;
}

weft_status wf_spec_find(const struct wf_spec *s, const char *name, int *node)
{
    for (int i = 0; i < s->n_tasks; i++)
        if (strcmp(s->task[i].name, name) == 0) {
            *node = i;
            return WEFT_OK;
        }
    return wf_err(WEFT_ENOENT, "cluster: no task '%s'; there are %d of ps and %d workers", name,
                  wf_spec_count(s, WF_ROLE_SERVER), wf_spec_count(s, WF_ROLE_WORKER));
}
