/* yaml.h - a YAML file as a tree that knows the position of everything, for messages with line and
 * column. */
#ifndef WF_BASE_YAML_H
#define WF_BASE_YAML_H

#include "base/base.h"

enum wf_yaml_kind { WF_YAML_SCALAR, WF_YAML_MAP, WF_YAML_LIST };

struct wf_yaml_node {
    enum wf_yaml_kind kind;
    const char *text; /* scalars; "" for null */
    bool quoted;
    int line, column; /* from 1; 0: not from the file (an override) */
    int64_t n, cap;
    struct wf_yaml_node **item;
    struct wf_yaml_node **key; /* maps: scalars */
};

struct wf_yaml {
    struct wf_arena arena;
    const char *name; /* of the file, in messages */
    struct wf_yaml_node *root;
};

/* Parses n bytes. One document; no aliases, no duplicate keys, keys are scalars, depth and size are
 * bounded. Free it even after a failure. */
weft_status wf_yaml_parse(weft_ctx *ctx, const char *name, const char *text, int64_t n,
                          struct wf_yaml *out);
void wf_yaml_free(struct wf_yaml *y);
/* "train.epochs=3", "model.0.units=[1, 2]": puts a value (YAML) at a path; missing maps are
 * created. */
weft_status wf_yaml_set(struct wf_yaml *y, const char *assignment);
/* The value of a key, or NULL. */
struct wf_yaml_node *wf_yaml_get(const struct wf_yaml_node *map, const char *key);
/* "job.yaml:12:5: text", with the position of the node. */
weft_status wf_yaml_err(const struct wf_yaml *y, const struct wf_yaml_node *n, weft_status st,
                        const char *fmt, ...) WEFT_PRINTF(4, 5);
/* Puts the position before the current error text. */
weft_status wf_yaml_wrap(const struct wf_yaml *y, const struct wf_yaml_node *n, weft_status st);
const char *wf_yaml_kind_name(const struct wf_yaml_node *n); /* "a list" */

#endif
