/* file.c - tasks from a cluster file:
 *
 *   chief: tls:a:7000
 *   ps: [tls:a:7001, tls:b:7001]
 *   worker: 4
 *
 * A role is one address, a list of addresses or, for workers and evaluators, a number. `task` says
 * which task this process is: only where each machine has a file of its own. */
#include "cluster/spec.h"

#include "base/number.h"
#include "base/yaml.h"

static weft_status add_count(weft_cluster *c, const struct wf_yaml *y, const struct wf_yaml_node *v,
                             enum wf_role role)
{
    int64_t n;
    weft_status st = WEFT_OK;

    wf_text_i64(v->text, &n);
    if (role == WF_ROLE_CHIEF || role == WF_ROLE_SERVER)
        return wf_yaml_err(y, v, WEFT_EINVAL,
                           "%s: a number; the others connect to a %s: write its "
                           "address, as tls:host:7000",
                           wf_role_name(role), wf_role_name(role));
    if (n < 0 || n > WF_MAX_TASKS)
        return wf_yaml_err(y, v, WEFT_EINVAL, "%s: %lld of them; 0 to %d are possible",
                           wf_role_name(role), (long long)n, WF_MAX_TASKS);
    for (int k = 0; k < n && !st; k++)
        st = wf_cluster_add(c, role, k, -1, "", 0);
    return st ? wf_yaml_wrap(y, v, st) : WEFT_OK;
}

static weft_status add_address(weft_cluster *c, const struct wf_yaml *y,
                               const struct wf_yaml_node *v, enum wf_role role, int index)
{
    weft_status st;

    if (v->kind != WF_YAML_SCALAR || !*v->text)
        return wf_yaml_err(y, v, WEFT_EPARSE,
                           "%s: an address is expected, as tls:host:7000, not "
                           "%s",
                           wf_role_name(role),
                           v->kind == WF_YAML_SCALAR ? "nothing" : wf_yaml_kind_name(v));
    st = wf_cluster_add(c, role, index, -1, v->text, -1);
    return st ? wf_yaml_wrap(y, v, st) : WEFT_OK;
}

static weft_status add_role(weft_cluster *c, const struct wf_yaml *y,
                            const struct wf_yaml_node *key, const struct wf_yaml_node *v)
{
    enum wf_role role;
    int64_t n;
    weft_status st = wf_role_find(key->text, (int64_t)strlen(key->text), &role);

    if (st)
        return wf_yaml_wrap(y, key, st);
    if (v->kind == WF_YAML_SCALAR && wf_text_i64(v->text, &n))
        return add_count(c, y, v, role);
    if (v->kind == WF_YAML_SCALAR)
        return add_address(c, y, v, role, 0);
    if (v->kind == WF_YAML_MAP)
        return wf_yaml_err(y, v, WEFT_EPARSE, "%s: a list of addresses is expected, not a map",
                           wf_role_name(role));
    for (int64_t i = 0; i < v->n && !st; i++)
        st = add_address(c, y, v->item[i], role, (int)i);
    return st;
}

/* "task: worker/1". */
static weft_status find_self(weft_cluster *c, const struct wf_yaml *y, const struct wf_yaml_node *v)
{
    enum wf_role role;
    int index, i;
    weft_status st;

    if (v->kind != WF_YAML_SCALAR)
        return wf_yaml_err(y, v, WEFT_EPARSE, "task: a name is expected, as worker/0");
    st = wf_task_parse(v->text, &role, &index);
    if (st)
        return wf_yaml_wrap(y, v, st);
    i = wf_cluster_index(c, role, index);
    if (i < 0)
        return wf_yaml_err(y, v, WEFT_EINVAL, "task: the file lists no %s", v->text);
    c->process = c->task[i].process;
    return WEFT_OK;
}

static weft_status read_roles(weft_cluster *c, const struct wf_yaml *y)
{
    const struct wf_yaml_node *root = y->root, *task = wf_yaml_get(root, "task");
    weft_status st = WEFT_OK;

    if (root->kind != WF_YAML_MAP)
        return wf_yaml_err(y, root, WEFT_EPARSE,
                           "a cluster file has lines like "
                           "\"ps: [tls:host:7001]\"");
    for (int64_t i = 0; i < root->n && !st; i++)
        if (root->item[i] != task)
            st = add_role(c, y, root->key[i], root->item[i]);
    return st || !task ? st : find_self(c, y, task);
}

weft_status wf_from_yaml(weft_cluster *c, const char *name, const char *text, int64_t n)
{
    struct wf_yaml y;
    weft_status st = wf_yaml_parse(c->ctx, name, text, n, &y);

    if (!st)
        st = read_roles(c, &y);
    wf_yaml_free(&y);
    wf_snprintf(c->said, sizeof c->said, "%.400s", name);
    return st;
}
