/* columns.c - lists of columns as users write them. */
#include "data/table/columns.h"
#include "base/number.h"

static weft_str trim(weft_str s)
{
    while (s.n > 0 && (*s.data == ' ' || *s.data == '\t' || *s.data == '\n')) {
        s.data++;
        s.n--;
    }
    while (s.n > 0 &&
           (s.data[s.n - 1] == ' ' || s.data[s.n - 1] == '\t' || s.data[s.n - 1] == '\n'))
        s.n--;
    return s;
}

bool wf_columns_next(const char **at, char separator, weft_str *item)
{
    while (*at && **at) {
        const char *p = *at, *end = strchr(p, separator);
        int64_t n = end ? end - p : (int64_t)strlen(p);

        *at = end ? end + 1 : p + n;
        *item = trim((weft_str){p, n});
        if (item->n)
            return true;
    }
    return false;
}

void wf_columns_cut(weft_str item, const char *marks, weft_str *name, weft_str *value)
{
    for (int64_t i = 0; i < item.n; i++) {
        if (!strchr(marks, item.data[i]))
            continue;
        *name = trim((weft_str){item.data, i});
        *value = trim((weft_str){item.data + i + 1, item.n - i - 1});
        return;
    }
    *name = trim(item);
    *value = (weft_str){NULL, 0};
}

bool wf_str_is(weft_str a, const char *b)
{
    return (size_t)a.n == strlen(b) && !memcmp(a.data, b, (size_t)a.n);
}

int wf_columns_find(const struct wf_column_names *names, weft_str name)
{
    int64_t number;

    for (int i = 0; i < names->n; i++)
        if (wf_str_is(name, names->name[i]))
            return i;
    if (name.n > 1 && name.data[0] == '#' && wf_parse_i64(name.data + 1, name.n - 1, &number) &&
        number >= 0 && number < names->n)
        return (int)number;
    return -1;
}

int wf_columns_find_group(const struct wf_column_names *names, weft_str name)
{
    for (int i = 0; i < names->n_groups; i++)
        if (wf_str_is(name, names->group[i].name))
            return i;
    return -1;
}

weft_status wf_columns_unknown(const struct wf_column_names *names, weft_str name)
{
    char word[128];
    struct wf_hint hint = {""};

    if ((size_t)name.n < sizeof word) {
        memcpy(word, name.data, (size_t)name.n);
        word[name.n] = 0;
        hint = wf_did_you_mean(word, names->name, names->n);
    }
    return wf_err(WEFT_ENOENT, "no column '%.*s'%s", (int)wf_min_i64(name.n, 60), name.data,
                  hint.text);
}

weft_status wf_columns_range(const struct wf_column_names *names, weft_str item, int *first,
                             int *last)
{
    *first = *last = wf_columns_find(names, item);
    if (*first >= 0)
        return WEFT_OK;
    for (int64_t i = 1; i + 2 < item.n; i++) {
        weft_str a = trim((weft_str){item.data, i});
        weft_str b = trim((weft_str){item.data + i + 2, item.n - i - 2});

        if (item.data[i] != '.' || item.data[i + 1] != '.')
            continue;
        *first = wf_columns_find(names, a);
        *last = wf_columns_find(names, b);
        if (*first < 0 || *last < 0)
            return wf_columns_unknown(names, *first < 0 ? a : b);
        if (*first > *last)
            return wf_err(WEFT_EINVAL, "'%.*s': the second column is before the first", (int)item.n,
                          item.data);
        return WEFT_OK;
    }
    return wf_columns_unknown(names, item);
}

static weft_status each_item(const struct wf_column_names *names, weft_str name, weft_str value,
                             wf_columns_fn *fn, void *arg)
{
    int group = wf_columns_find_group(names, name), first, last;
    weft_status st = WEFT_OK;

    if (group >= 0) {
        for (int i = 0; i < names->group[group].n && !st; i++)
            st = fn(arg, names->group[group].member[i], value);
        return st;
    }
    st = wf_columns_range(names, name, &first, &last);
    for (int i = first; i <= last && !st; i++)
        st = fn(arg, i, value);
    return st;
}

weft_status wf_columns_each(const struct wf_column_names *names, const char *list,
                            wf_columns_fn *fn, void *arg)
{
    weft_str item, name, value;
    weft_status st = WEFT_OK;

    for (const char *at = list; !st && wf_columns_next(&at, ',', &item);) {
        wf_columns_cut(item, ":=", &name, &value);
        for (int i = 0; i < names->n && !st && wf_str_is(name, "*"); i++)
            st = fn(arg, i, value);
    }
    for (const char *at = list; !st && wf_columns_next(&at, ',', &item);) {
        wf_columns_cut(item, ":=", &name, &value);
        if (!wf_str_is(name, "*"))
            st = each_item(names, name, value, fn, arg);
    }
    return st;
}
