/* tf_config.c - tasks from TF_CONFIG, as Keras and Kubeflow write it:
 *
 *   {"cluster": {"chief": ["a:2222"], "ps": ["b:2222"], "worker": ["c:2222", "d:2222"]},
 *    "task": {"type": "worker", "index": 1}}
 *
 * "master" is a chief. Without one, worker 0 is also the chief, at its address; without a worker,
 * the chief is also worker 0. An evaluator need not be in the cluster. A role may be a map from
 * numbers to addresses. Other members of the object are ignored. */
#include "cluster/spec.h"

#include "base/json.h"
#include "base/number.h"

static weft_status add_address(weft_cluster *c, enum wf_role role, const char *word, int index,
                               const json_t *v)
{
    weft_status st;

    if (!json_is_string(v))
        return wf_err(WEFT_EPARSE, "TF_CONFIG: cluster.%s[%d] is not a text like \"host:2222\"",
                      word, index);
    if (json_string_length(v) == 0)
        return wf_err(WEFT_EPARSE, "TF_CONFIG: cluster.%s[%d] is empty", word, index);
    st = wf_cluster_add(c, role, index, -1, json_string_value(v), (int64_t)json_string_length(v));
    return wf_err_wrap(st, "TF_CONFIG: cluster.%s[%d]", word, index);
}

/* A list of addresses, or a map from numbers to addresses. */
static weft_status add_role(weft_cluster *c, const char *word, json_t *list)
{
    enum wf_role role;
    const char *key;
    json_t *v;
    weft_status st = wf_role_find(word, (int64_t)strlen(word), &role);

    if (st)
        return wf_err_wrap(st, "TF_CONFIG: cluster");
    if (json_is_array(list)) {
        for (size_t i = 0; i < json_array_size(list) && !st; i++)
            st = add_address(c, role, word, (int)i, json_array_get(list, i));
        return st;
    }
    if (!json_is_object(list))
        return wf_err(WEFT_EPARSE, "TF_CONFIG: cluster.%s is not a list of addresses", word);
    json_object_foreach(list, key, v)
    {
        int64_t k;

        if (st)
            break;
        if (!wf_text_i64(key, &k) || k < 0 || k >= WF_MAX_TASKS)
            return wf_err(WEFT_EPARSE, "TF_CONFIG: cluster.%s: '%.40s' is not a number of a task",
                          word, key);
        st = add_address(c, role, word, (int)k, v);
    }
    return st;
}

/* {"type": "worker", "index": 1}; the number may be a text. */
static weft_status read_task(const json_t *task, enum wf_role *role, int *index)
{
    const json_t *type = json_object_get(task, "type"), *k = json_object_get(task, "index");
    int64_t number = 0;
    weft_status st;

    if (!json_is_object(task) || !json_is_string(type))
        return wf_err(WEFT_EPARSE,
                      "TF_CONFIG: task is not like {\"type\": \"worker\", \"index\": 0}");
    st = wf_role_find(json_string_value(type), (int64_t)json_string_length(type), role);
    if (st)
        return wf_err_wrap(st, "TF_CONFIG: task.type");
    if (json_is_integer(k))
        number = json_integer_value(k);
    else if (k && !(json_is_string(k) && wf_text_i64(json_string_value(k), &number)))
        return wf_err(WEFT_EPARSE, "TF_CONFIG: task.index is not a number");
    if (number < 0 || number >= WF_MAX_TASKS)
        return wf_err(WEFT_EINVAL, "TF_CONFIG: task.index is %lld; 0 to %d are possible",
                      (long long)number, WF_MAX_TASKS - 1);
    *index = (int)number;
    return WEFT_OK;
}

/* The chief and a first worker, if the cluster lists only one of them. */
static weft_status add_missing(weft_cluster *c)
{
    int chief = wf_cluster_index(c, WF_ROLE_CHIEF, 0), worker = -1;

    for (int i = 0; i < c->n_tasks; i++)
        if (c->task[i].role == WF_ROLE_WORKER &&
            (worker < 0 || c->task[i].index < c->task[worker].index))
            worker = i;
    if (chief < 0 && worker < 0)
        return wf_err(WEFT_EINVAL, "TF_CONFIG: the cluster has neither a chief nor a worker");
    if (chief >= 0 && worker >= 0)
        return WEFT_OK;
    if (worker < 0)
        return wf_cluster_add(c, WF_ROLE_WORKER, 0, c->task[chief].process, "", 0);
    {
        struct wf_task first = c->task[worker]; /* the list may move */

        return wf_cluster_add(c, WF_ROLE_CHIEF, 0, first.process, first.address, -1);
    }
}

static weft_status find_self(weft_cluster *c, const json_t *task)
{
    enum wf_role role = WF_ROLE_WORKER;
    int index = 0, i;
    weft_status st;

    if (!task)
        return WEFT_OK;
    st = read_task(task, &role, &index);
    if (st)
        return st;
    i = wf_cluster_index(c, role, index);
    if (i < 0 && role == WF_ROLE_EVALUATOR) {
        st = wf_cluster_add(c, role, index, -1, "", 0);
        i = c->n_tasks - 1;
    }
    if (st)
        return st;
    if (i < 0)
        return wf_err(WEFT_EINVAL, "TF_CONFIG: task is %s %d, but the cluster has %d of them",
                      wf_role_name(role), index, weft_cluster_count(c, (weft_task_role)role));
    c->process = c->task[i].process;
    return WEFT_OK;
}

static weft_status read_cluster(weft_cluster *c, json_t *root)
{
    json_t *cluster = json_object_get(root, "cluster"), *list;
    const char *word;
    weft_status st = WEFT_OK;

    if (!json_is_object(cluster))
        return wf_err(WEFT_EPARSE, "TF_CONFIG: cluster is not an object with lists of addresses");
    json_object_foreach(cluster, word, list)
    {
        st = add_role(c, word, list);
        if (st)
            return st;
    }
    st = add_missing(c);
    return st ? st : find_self(c, json_object_get(root, "task"));
}

weft_status wf_from_tf_config(weft_cluster *c, const char *text, bool *there)
{
    json_t *root;
    int64_t n = (int64_t)strlen(text);
    weft_status st;

    *there = false;
    if (n > WF_MAX_CLUSTER_TEXT)
        return wf_err(WEFT_ELIMIT, "TF_CONFIG: %lld bytes; %d are possible", (long long)n,
                      WF_MAX_CLUSTER_TEXT);
    st = wf_json_parse(text, n, &root);
    if (st)
        return wf_err_wrap(st, "TF_CONFIG");
    if (json_object_get(root, "sparseCluster") && !json_object_get(root, "cluster"))
        st = wf_err(WEFT_ENOSUP, "TF_CONFIG: sparseCluster does not list all tasks; turn "
                                 "enableDynamicWorker off");
    if (!st && json_object_get(root, "cluster")) {
        *there = true;
        st = read_cluster(c, root);
    }
    json_decref(root);
    wf_snprintf(c->said, sizeof c->said, "TF_CONFIG");
    return st;
}
