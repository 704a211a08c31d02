/* etcd_text.c - the texts of etcd's HTTP gateway, version 3. */
#include "cluster/etcd_text.h"

#include "base/base64.h"
#include "base/json.h"
#include "base/number.h"

/* ---- where it is ----------------------------------------------------------------------------- */

bool wf_etcd_named(const char *text)
{
    return strncmp(text, "etcd", 4) == 0 && strstr(text, "://");
}

static bool is_host_char(char c)
{
    return wf_is_alnum(c) || c == '.' || c == '-' || c == '_';
}

/* "host", "host:port", "[v6]:port"; n characters. */
static weft_status take_endpoint(const char *p, int64_t n, char to[WF_ETCD_ADDRESS])
{
    int64_t at = 0, port = 2379;

    if (n > 0 && p[0] == '[') {
        for (at = 1; at < n && (wf_is_xdigit(p[at]) || p[at] == ':' || p[at] == '.');)
            at++;
        if (at < 3 || at >= n || p[at] != ']')
            return wf_err(WEFT_EPARSE, "'%.*s' is not an address; IPv6 is [ADDRESS]:PORT", (int)n,
                          p);
        at++;
    } else {
        while (at < n && is_host_char(p[at]))
            at++;
    }
    if (at == 0 || at > 250)
        return wf_err(WEFT_EPARSE, "'%.*s' is not HOST:PORT", (int)wf_min_i64(n, 250), p);
    if (at < n && (p[at] != ':' || !wf_parse_i64(p + at + 1, n - at - 1, &port) || port < 1 ||
                   port > 65535 || !wf_is_digit(p[at + 1])))
        return wf_err(WEFT_EPARSE, "'%.*s' is not HOST:PORT", (int)wf_min_i64(n, 250), p);
    wf_snprintf(to, WF_ETCD_ADDRESS, "%.*s:%d", (int)at, p, (int)port);
    return WEFT_OK;
}

static weft_status take_endpoints(const char *p, int64_t n, struct wf_etcd_where *w)
{
    if (memchr(p, '@', (size_t)n))
        return wf_err(WEFT_EPARSE, "names and passwords do not belong into an address, which "
                                   "others can read; use etcds:// with a certificate");
    for (;;) {
        const char *comma = memchr(p, ',', (size_t)n);
        int64_t len = comma ? comma - p : n;
        weft_status st;

        if (w->n_endpoints == WF_ETCD_ENDPOINTS)
            return wf_err(WEFT_EPARSE, "more than %d endpoints", WF_ETCD_ENDPOINTS);
        st = take_endpoint(p, len, w->endpoint[w->n_endpoints]);
        if (st)
            return st;
        w->n_endpoints++;
        if (!comma)
            return WEFT_OK;
        p = comma + 1;
        n -= len + 1;
    }
}

static weft_status take_prefix(const char *p, struct wf_etcd_where *w)
{
    int64_t n;

    while (*p == '/')
        p++;
    n = (int64_t)strlen(p);
    while (n > 0 && p[n - 1] == '/')
        n--;
    if (n >= WF_ETCD_PREFIX)
        return wf_err(WEFT_EPARSE, "the prefix has more than %d characters", WF_ETCD_PREFIX - 1);
    for (int64_t i = 0; i < n; i++)
        if (!is_host_char(p[i]) && p[i] != '/')
            return wf_err(WEFT_EPARSE, "the prefix has a character that is not a letter, a digit, "
                                       "'.', '-', '_' or '/'");
    wf_snprintf(w->prefix, sizeof w->prefix, "%.*s", n ? (int)n : 4, n ? p : "weft");
    return WEFT_OK;
}

weft_status wf_etcd_where_parse(const char *text, struct wf_etcd_where *out)
{
    struct wf_etcd_where w = {.tls = strncmp(text, WF_ETCD_SCHEME_TLS, 8) == 0};
    const char *p = text + (w.tls ? 8 : 7), *slash;
    weft_status st;

    if (!w.tls && strncmp(text, WF_ETCD_SCHEME, 7) != 0)
        return wf_err(WEFT_EPARSE, "'%.100s' does not begin with etcd:// or etcds://", text);
    slash = strchr(p, '/');
    st = take_endpoints(p, slash ? slash - p : (int64_t)strlen(p), &w);
    if (!st)
        st = take_prefix(slash ? slash : "", &w);
    if (st)
        return wf_err_wrap(st, "store %.*s…", (int)(w.tls ? 8 : 7), text);
    *out = w;
    return WEFT_OK;
}

bool wf_etcd_is_local(const struct wf_etcd_where *w)
{
    for (int i = 0; i < w->n_endpoints; i++)
        if (strncmp(w->endpoint[i], "127.", 4) != 0 && strncmp(w->endpoint[i], "[::1]:", 6) != 0 &&
            strncmp(w->endpoint[i], "localhost:", 10) != 0)
            return false;
    return true;
}

/* ---- transactions ---------------------------------------------------------------------------- */

void wf_etcd_txn_begin(struct wf_etcd_txn *x, weft_ctx *ctx)
{
    *x = (struct wf_etcd_txn){.n = 0};
    wf_buf_init(&x->b, ctx, WF_ETCD_MAX_ANSWER);
    wf_buf_printf(&x->b, "{\"compare\":[");
}

static void next(struct wf_etcd_txn *x)
{
    if (x->n++)
        wf_buf_printf(&x->b, ",");
}

static void put_keys(struct wf_etcd_txn *x, const char *key, const char *end)
{
    wf_buf_printf(&x->b, "\"key\":\"");
    wf_base64(&x->b, key, (int64_t)strlen(key));
    if (end) {
        wf_buf_printf(&x->b, "\",\"range_end\":\"");
        wf_base64(&x->b, end, (int64_t)strlen(end));
    }
    wf_buf_printf(&x->b, "\"");
}

/* A missing key has the revision 0; so has a range without keys. */
void wf_etcd_txn_want(struct wf_etcd_txn *x, const char *key, const char *end, bool there)
{
    next(x);
    wf_buf_printf(&x->b, "{\"target\":\"CREATE\",\"create_revision\":\"0\",\"result\":\"%s\",",
                  there ? "GREATER" : "EQUAL");
    put_keys(x, key, end);
    wf_buf_printf(&x->b, "}");
}

void wf_etcd_txn_then(struct wf_etcd_txn *x)
{
    x->n = 0;
    wf_buf_printf(&x->b, "],\"success\":[");
}

void wf_etcd_txn_else(struct wf_etcd_txn *x)
{
    x->n = 0;
    wf_buf_printf(&x->b, "],\"failure\":[");
}

/* Base64 of both, one after the other. */
static void put_value(struct wf_etcd_txn *x, const uint8_t *head, int64_t n_head,
                      const uint8_t *body, int64_t n_body)
{
    uint8_t joint[3];
    int64_t whole = n_head / 3 * 3, rest = n_head - whole, taken = 0;

    wf_base64(&x->b, head, whole);
    if (rest) {
        for (int64_t i = 0; i < rest; i++)
            joint[i] = head[whole + i];
        for (; rest < 3 && taken < n_body; rest++)
            joint[rest] = body[taken++];
        wf_base64(&x->b, joint, rest);
    }
    if (taken < n_body)
        wf_base64(&x->b, body + taken, n_body - taken);
}

void wf_etcd_txn_put(struct wf_etcd_txn *x, const char *key, const void *head, int64_t n_head,
                     const void *body, int64_t n_body)
{
    next(x);
    wf_buf_printf(&x->b, "{\"request_put\":{");
    put_keys(x, key, NULL);
    wf_buf_printf(&x->b, ",\"value\":\"");
    put_value(x, head, n_head, body, n_body);
    wf_buf_printf(&x->b, "\"}}");
}

void wf_etcd_txn_delete(struct wf_etcd_txn *x, const char *key, const char *end)
{
    next(x);
    wf_buf_printf(&x->b, "{\"request_delete_range\":{");
    put_keys(x, key, end);
    wf_buf_printf(&x->b, "}}");
}

void wf_etcd_txn_range(struct wf_etcd_txn *x, const char *key, const char *end, int limit,
                       bool keys_only)
{
    next(x);
    wf_buf_printf(&x->b, "{\"request_range\":{");
    put_keys(x, key, end);
    wf_buf_printf(&x->b, ",\"limit\":\"%d\",\"keys_only\":%s", limit, keys_only ? "true" : "false");
    wf_buf_printf(&x->b, ",\"sort_order\":\"DESCEND\",\"sort_target\":\"KEY\"}}");
}

weft_status wf_etcd_txn_end(struct wf_etcd_txn *x)
{
    weft_status st;

    wf_buf_printf(&x->b, "]}");
    st = x->b.st;
    if (st)
        wf_buf_free(&x->b);
    return st;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Bytes of a member that is base64; an absent one is empty, as etcd writes it. Their place in
 * a->bytes, because that may move. */
static weft_status take_bytes(struct wf_etcd_answer *a, const json_t *of, const char *member,
                              int64_t *at, int64_t *n)
{
    const json_t *v = json_object_get(of, member);
    weft_status st;

    *at = a->bytes.len;
    *n = 0;
    if (v && !json_is_string(v))
        return wf_err(WEFT_EPARSE, "\"%s\" is not a text", member);
    if (v) {
        st = wf_base64_read(&a->bytes, json_string_value(v), (int64_t)json_string_length(v));
        if (st)
            return wf_err_wrap(st, "\"%s\"", member);
    }
    *n = a->bytes.len - *at;
    wf_buf_add(&a->bytes, "", 1);
    return a->bytes.st;
}

struct places {
    int64_t key[WF_ETCD_PAIRS], value[WF_ETCD_PAIRS];
    int n;
};

static weft_status take_range(struct wf_etcd_answer *a, const json_t *range, struct places *p)
{
    const json_t *kvs = json_object_get(range, "kvs");
    size_t n = json_array_size(kvs); /* of nothing: 0 */

    if (!json_is_object(range) || (kvs && !json_is_array(kvs)))
        return wf_err(WEFT_EPARSE, "\"response_range\" is not an object with a list \"kvs\"");
    if (a->n_ranges == WF_ETCD_RANGES || n > (size_t)(WF_ETCD_PAIRS - p->n))
        return wf_err(WEFT_EPARSE, "more than was requested");
    a->range[a->n_ranges].pair = &a->pair[p->n];
    a->range[a->n_ranges++].n = (int)n;
    for (size_t i = 0; i < n; i++) {
        struct wf_etcd_pair *to = &a->pair[p->n];
        const json_t *kv = json_array_get(kvs, i);
        weft_status st = take_bytes(a, kv, "key", &p->key[p->n], &to->n_key);

        if (!st)
            st = take_bytes(a, kv, "value", &p->value[p->n], &to->n_value);
        if (st)
            return st;
        if (to->n_key == 0)
            return wf_err(WEFT_EPARSE, "an item of \"kvs\" has no key");
        p->n++;
    }
    return WEFT_OK;
}

static weft_status take_responses(struct wf_etcd_answer *a, const json_t *root, struct places *p)
{
    const json_t *list = json_object_get(root, "responses"), *succeeded;
    weft_status st = WEFT_OK;

    succeeded = json_object_get(root, "succeeded");
    if (!json_is_object(json_object_get(root, "header")))
        return wf_err(WEFT_EPARSE, "there is no \"header\"");
    if ((succeeded && !json_is_boolean(succeeded)) || (list && !json_is_array(list)))
        return wf_err(WEFT_EPARSE, "\"succeeded\" or \"responses\" is not what it should be");
    a->succeeded = json_is_true(succeeded);
    for (size_t i = 0; i < json_array_size(list) && !st; i++) {
        const json_t *range = json_object_get(json_array_get(list, i), "response_range");

        if (range)
            st = take_range(a, range, p);
    }
    return st;
}

weft_status wf_etcd_answer_read(weft_ctx *ctx, const char *text, int64_t n,
                                struct wf_etcd_answer *out)
{
    struct places p = {.n = 0};
    json_t *root = NULL;
    weft_status st;

    *out = (struct wf_etcd_answer){.succeeded = false};
    wf_buf_init(&out->bytes, ctx, WF_ETCD_MAX_ANSWER);
    st = wf_json_parse(text, n, &root);
    if (!st)
        st = take_responses(out, root, &p);
    json_decref(root);
    if (st) {
        wf_etcd_answer_free(out);
        return st;
    }
    for (int i = 0; i < p.n; i++) {
        out->pair[i].key = out->bytes.data + p.key[i];
        out->pair[i].value = out->bytes.data + p.value[i];
    }
    return WEFT_OK;
}

void wf_etcd_answer_free(struct wf_etcd_answer *a)
{
    wf_buf_free(&a->bytes);
    a->n_ranges = 0;
}

void wf_etcd_error_read(const char *text, int64_t n, char to[160])
{
    json_t *root = NULL;
    const char *words;

    to[0] = '\0';
    if (wf_json_parse(text, n, &root))
        return;
    words = json_string_value(json_object_get(root, "error"));
    if (!words)
        words = json_string_value(json_object_get(root, "message"));
    for (int i = 0; words && words[i] && i < 159; i++) {
        to[i] = words[i] >= 32 && words[i] < 127 ? words[i] : '?';
        to[i + 1] = '\0';
    }
    json_decref(root);
}
