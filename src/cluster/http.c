/* http.c - POST requests by libcurl. It brings many libraries with it, so only its header is used,
 * and it is loaded where a store is in etcd. */
#define _GNU_SOURCE
#include "cluster/http.h"

#ifdef WF_HAVE_CURL
#include <curl/curl.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "base/library.h"

/* clang-format off */
#define CALLS(_) \
    _(curl_easy_init) _(curl_easy_setopt) _(curl_easy_perform) _(curl_easy_getinfo) \
    _(curl_easy_strerror) _(curl_easy_cleanup) _(curl_slist_append) _(curl_slist_free_all)
/* clang-format on */
#define ENTRY(name) {#name, offsetof(struct calls, name)},

/* The header has macros that check types in the place of some of them. */
typedef CURL *(*curl_type_curl_easy_init)(void);
typedef CURLcode (*curl_type_curl_easy_setopt)(CURL *, CURLoption, ...);
typedef CURLcode (*curl_type_curl_easy_perform)(CURL *);
typedef CURLcode (*curl_type_curl_easy_getinfo)(CURL *, CURLINFO, ...);
typedef const char *(*curl_type_curl_easy_strerror)(CURLcode);
typedef void (*curl_type_curl_easy_cleanup)(CURL *);
typedef struct curl_slist *(*curl_type_curl_slist_append)(struct curl_slist *, const char *);
typedef void (*curl_type_curl_slist_free_all)(struct curl_slist *);

#undef curl_easy_setopt
#undef curl_easy_getinfo
#define MEMBER(name) curl_type_##name name;

struct calls {
    CALLS(MEMBER)
};
static const struct wf_dl_call call_list[] = {CALLS(ENTRY)};
static const char *const library[] = {"libcurl.so.4", "libcurl.so", NULL};

struct wf_http {
    weft_ctx *ctx;
    struct calls f;
    CURL *curl;
    struct curl_slist *headers;
    atomic_bool stop;
    bool too_large;
    struct wf_buf *to;
    char why[CURL_ERROR_SIZE];
};

static size_t take(char *p, size_t size, size_t n, void *arg)
{
    struct wf_http *h = arg;

    if (h->to->len + (int64_t)(size * n) > h->to->max) {
        h->too_large = true;
        return 0;
    }
    wf_buf_add(h->to, p, (int64_t)(size * n));
    return h->to->st ? 0 : size * n;
}

static int look(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    return atomic_load(&((struct wf_http *)arg)->stop);
}

/* Only HTTP, no proxy, no redirection: requests go where the job says. */
static void set_options(struct wf_http *h, const struct wf_http_opts *o)
{
    h->f.curl_easy_setopt(h->curl, CURLOPT_NOSIGNAL, 1L);
    h->f.curl_easy_setopt(h->curl, CURLOPT_ERRORBUFFER, h->why);
    h->f.curl_easy_setopt(h->curl, CURLOPT_HTTPHEADER, h->headers);
    h->f.curl_easy_setopt(h->curl, CURLOPT_WRITEFUNCTION, take);
    h->f.curl_easy_setopt(h->curl, CURLOPT_WRITEDATA, h);
    h->f.curl_easy_setopt(h->curl, CURLOPT_XFERINFOFUNCTION, look);
    h->f.curl_easy_setopt(h->curl, CURLOPT_XFERINFODATA, h);
    h->f.curl_easy_setopt(h->curl, CURLOPT_NOPROGRESS, 0L);
    h->f.curl_easy_setopt(h->curl, CURLOPT_PROXY, "");
    h->f.curl_easy_setopt(h->curl, CURLOPT_FOLLOWLOCATION, 0L);
#if LIBCURL_VERSION_NUM >= 0x075500
    h->f.curl_easy_setopt(h->curl, CURLOPT_PROTOCOLS_STR, "http,https");
#endif
    h->f.curl_easy_setopt(h->curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    h->f.curl_easy_setopt(h->curl, CURLOPT_TCP_NODELAY, 1L);
    h->f.curl_easy_setopt(h->curl, CURLOPT_CONNECTTIMEOUT_MS, (long)(o->connect_ns / 1000000));
    h->f.curl_easy_setopt(h->curl, CURLOPT_TIMEOUT_MS, (long)(o->timeout_ns / 1000000));
    h->f.curl_easy_setopt(h->curl, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (o->authority)
        h->f.curl_easy_setopt(h->curl, CURLOPT_CAINFO, o->authority);
    if (o->certificate)
        h->f.curl_easy_setopt(h->curl, CURLOPT_SSLCERT, o->certificate);
    if (o->key)
        h->f.curl_easy_setopt(h->curl, CURLOPT_SSLKEY, o->key);
}

static weft_status start(struct wf_http *h, const struct wf_http_opts *o)
{
    weft_status st = wf_dl_load(library, "libcurl4 (libcurl4t64 on newer systems)", call_list,
                                WF_COUNT(call_list), &h->f);

    if (st)
        return st;
    h->curl = h->f.curl_easy_init();
    if (h->curl)
        h->headers = h->f.curl_slist_append(NULL, "Content-Type: application/json");
    if (!h->curl || !h->headers)
        return wf_err(WEFT_ENOMEM, "libcurl cannot be started");
    set_options(h, o);
    return WEFT_OK;
}

weft_status wf_http_open(weft_ctx *ctx, const struct wf_http_opts *opts, struct wf_http **out)
{
    struct wf_http *h = wf_alloc(ctx, sizeof *h);
    weft_status st;

    if (!h)
        return wf_err_nomem(ctx, sizeof *h, "HTTP");
    h->ctx = ctx;
    st = start(h, opts);
    if (st) {
        wf_http_close(h);
        return st;
    }
    *out = h;
    return WEFT_OK;
}

void wf_http_close(struct wf_http *h)
{
    if (!h)
        return;
    if (h->curl)
        h->f.curl_easy_cleanup(h->curl);
    if (h->headers)
        h->f.curl_slist_free_all(h->headers);
    wf_free(h->ctx, h);
}

/* OpenSSL writes to sockets that the peer has closed: this must not end the program. */
static CURLcode perform(struct wf_http *h)
{
    sigset_t pipe, before, waiting;
    CURLcode rc;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&waiting);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    rc = h->f.curl_easy_perform(h->curl);
    if (!sigismember(&waiting, SIGPIPE))
        sigtimedwait(&pipe, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

weft_status wf_http_post(struct wf_http *h, const char *url, const char *body, int64_t n,
                         struct wf_buf *to, long *code)
{
    CURLcode rc;

    h->to = to;
    h->too_large = false;
    h->why[0] = '\0';
    *code = 0;
    h->f.curl_easy_setopt(h->curl, CURLOPT_URL, url);
    h->f.curl_easy_setopt(h->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)n);
    h->f.curl_easy_setopt(h->curl, CURLOPT_POSTFIELDS, body);
    rc = perform(h);
    if (to->st)
        return to->st;
    if (h->too_large)
        return wf_err(WEFT_EPEER, "the answer is larger than %lld MB", (long long)to->max >> 20);
    if (rc != CURLE_OK)
        return wf_err(rc == CURLE_OPERATION_TIMEDOUT ? WEFT_ETIME : WEFT_EPEER, "%s",
                      h->why[0] ? h->why : h->f.curl_easy_strerror(rc));
    h->f.curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, code);
    return WEFT_OK;
}

void wf_http_stop(struct wf_http *h)
{
    atomic_store(&h->stop, true);
}

#else
weft_status wf_http_open(weft_ctx *ctx, const struct wf_http_opts *opts, struct wf_http **out)
{
    (void)ctx;
    (void)opts;
    (void)out;
    return wf_err(WEFT_ENOSUP, "this build has no HTTP: install libcurl4-openssl-dev and build "
                               "weft again");
}

void wf_http_close(struct wf_http *h)
{
    (void)h;
}

weft_status wf_http_post(struct wf_http *h, const char *url, const char *body, int64_t n,
                         struct wf_buf *to, long *code)
{
    (void)h;
    (void)url;
    (void)body;
    (void)n;
    (void)to;
    (void)code;
    return wf_err(WEFT_ENOSUP, "this build has no HTTP");
}

void wf_http_stop(struct wf_http *h)
{
    (void)h;
}
#endif
