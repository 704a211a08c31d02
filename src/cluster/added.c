/* added.c - tasks that join a running job beyond the list that it began with.
 *
 * Kept true: such a list is only ever continued. A task has the same number in every process that
 * knows it. */
#include "cluster/spec.h"

#include "net/address.h"

weft_status wf_added_make(const char *name, const char *address, struct wf_task *out)
{
    struct wf_address parsed;
    struct wf_task t = {.process = -1, .added = true};
    weft_status st = wf_task_parse(name, &t.role, &t.index);

    if (st)
        return st;
    if (t.role != WF_ROLE_SERVER && t.role != WF_ROLE_WORKER)
        return wf_err(WEFT_EINVAL, "cluster: %.60s: only servers and workers can be added", name);
    if (t.role == WF_ROLE_SERVER && !*address)
        return wf_err(WEFT_EINVAL, "cluster: %.60s has no address: the others connect to it", name);
    if (strlen(address) >= sizeof t.address || strpbrk(address, ",; \t\n"))
        return wf_err(WEFT_EINVAL, "cluster: %.60s: '%.60s' is not an address", name, address);
    wf_snprintf(t.name, sizeof t.name, "%s/%d", wf_role_name(t.role), t.index);
    if (t.role == WF_ROLE_SERVER) {
        st = wf_address_parse(address, &parsed);
        wf_snprintf(t.address, sizeof t.address, "%s", address);
    }
    if (!st)
        *out = t;
    return st ? wf_err_wrap(st, "cluster: %s", t.name) : WEFT_OK;
}

weft_status wf_added_write(const struct wf_task *task, int n_tasks, struct wf_buf *out)
{
    for (int i = 0; i < n_tasks; i++)
        if (task[i].added)
            wf_buf_printf(out, "%s%s%s\n", task[i].name, task[i].address[0] ? " " : "",
                          task[i].address);
    return out->st;
}

/* The next line; false: there is none, or it is not one. */
static bool take_line(const char **list, struct wf_task *t)
{
    size_t n = strcspn(*list, "\n");
    char line[sizeof t->name + sizeof t->address + 2], *blank;

    if (n == 0 || n >= sizeof line || (*list)[n] != '\n')
        return false;
    memcpy(line, *list, n);
    line[n] = '\0';
    *list += n + 1;
    blank = strchr(line, ' ');
    if (blank)
        *blank = '\0';
    return !wf_added_make(line, blank ? blank + 1 : "", t);
}

weft_status wf_added_read(const char *list, struct wf_task *task, int *n_tasks, int max)
{
    int at = 0;

    while (at < *n_tasks && !task[at].added)
        at++;
    for (; *list; at++) {
        struct wf_task t;

        if (!take_line(&list, &t))
            return wf_err(WEFT_EDATA, "the list of added tasks is damaged");
        if (at < *n_tasks) {
            if (strcmp(task[at].name, t.name) != 0)
                return wf_err(WEFT_EDATA, "task %d is %s here, and %s in the list of added tasks",
                              at, task[at].name, t.name);
            continue;
        }
        if (at >= max)
            return wf_err(WEFT_ELIMIT, "more than %d added tasks", WF_MAX_ADDED);
        for (int i = 0; i < at; i++)
            if (strcmp(task[i].name, t.name) == 0)
                return wf_err(WEFT_EDATA, "the list of added tasks names %s twice", t.name);
        t.process = at;
        task[at] = t;
        *n_tasks = at + 1;
    }
    return WEFT_OK;
}
