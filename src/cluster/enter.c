/* enter.c - a process that joins a job: at its door, with a token or a certificate. */
#include "cluster/door.h"

#include <openssl/crypto.h>

#include "cluster/visit.h"
#include "weft/sys/join.h"

enum { MAX_PEM = 1 << 20, MAX_FILES = 3 };

/* ---- what is asked --------------------------------------------------------------------------- */

/* Writes the files of a task; the key first, so that a certificate is never without it. */
static weft_status keep(weft_ctx *ctx, const char *folder, const char *const *text, const char *key)
{
    weft_status st = wf_cert_put(ctx, folder, "authority", ".pem", text[2]);

    if (!st)
        st = wf_cert_put(ctx, folder, text[0], ".key", key);
    return st ? st : wf_cert_put(ctx, folder, text[0], ".pem", text[1]);
}

static weft_status take_answer(weft_ctx *ctx, char *answer, int64_t n, const char *folder,
                               const char *key, char task[WEFT_TASK_NAME], char **description)
{
    const char *text[WF_DOOR_TEXTS];
    weft_status st = wf_door_texts(answer, n, text);

    if (!st && !*text[0])
        st = wf_err(WEFT_EPEER, "the door refuses: %.250s", text[1]);
    if (!st && (strlen(text[0]) >= WEFT_TASK_NAME || strstr(text[0], "..")))
        st = wf_err(WEFT_EPEER, "the door gave a name that is not a task");
    if (!st)
        st = keep(ctx, folder, text, key);
    if (!st && description) {
        *description = wf_strdup(ctx, text[3]);
        st = *description ? WEFT_OK : wf_err_nomem(ctx, 0, "a job");
    }
    if (!st && task)
        wf_snprintf(task, WEFT_TASK_NAME, "%s", text[0]);
    return st;
}

/* token NULL: by the certificate of the link. */
static weft_status visit_door(weft_ctx *ctx, const char *address, const struct wf_identity *self,
                              struct wf_tls *tls, const struct wf_token *token, double timeout_s,
                              const char *folder, char task[WEFT_TASK_NAME], char **description)
{
    unsigned char head[WF_DOOR_HEAD + WF_DOOR_MAX_REQUEST] = {WF_DOOR_VERSION, WF_DOOR_RENEW};
    struct wf_visit v = {.who = self,
                         .tls = tls,
                         .address = address,
                         .question = {.kind = WF_DOOR_ASK, .head = head},
                         .min = 1,
                         .max = WF_DOOR_MAX_ANSWER,
                         .timeout_ns = (int64_t)(timeout_s * 1e9),
                         .of = "the answer of the door",
                         .closed = "the door was closed"};
    struct wf_pem own;
    char *answer = NULL;
    int64_t n_answer = 0;
    size_t n;
    weft_status st = wf_cert_request(ctx, &own);

    if (st)
        return st;
    if (token) {
        head[1] = WF_DOOR_JOIN;
        memcpy(head + 2, token->id, WF_TOKEN_ID);
        memcpy(head + 2 + WF_TOKEN_ID, token->secret, WF_TOKEN_SECRET);
    }
    n = strlen(own.certificate);
    if (n > WF_DOOR_MAX_REQUEST)
        st = wf_err(WEFT_ELIMIT, "a request of %zu bytes", n);
    else
        memcpy(head + WF_DOOR_HEAD, own.certificate, n);
    v.question.n_head = (int32_t)(WF_DOOR_HEAD + n);
    if (!st) {
        st = wf_visit(ctx, &v, &answer, &n_answer);
        if (st)
            wf_err_wrap(st, "joining at %s", address);
    }
    OPENSSL_cleanse(head, sizeof head);
    if (!st)
        st = take_answer(ctx, answer, n_answer, folder, own.key, task, description);
    wf_free(ctx, answer);
    OPENSSL_cleanse(own.key, strlen(own.key));
    wf_pem_free(ctx, &own);
    return st;
}

static weft_status check_address(const char *address)
{
    return strncmp(address, "tls:", 4) == 0
               ? WEFT_OK
               : wf_err(WEFT_EINVAL, "'%s' is not the address of a door: tls:HOST:PORT", address);
}

weft_status weft_join(weft_ctx *ctx, const char *address, const char *token, const char *folder,
                      double timeout_s, char task[WEFT_TASK_NAME], char **description)
{
    const struct wf_identity guest = {.name = WF_GUEST, .role = WF_GUEST};
    struct wf_token t = {.role = ""};
    struct wf_tls *tls = NULL;
    char *text = NULL;
    int64_t n = 0;
    weft_status st = check_address(address);

    if (!st)
        st = wf_file_read(ctx, token, 4096, &text, &n);
    if (!st) {
        st = wf_token_parse(text, n, &t);
        if (st)
            wf_err_wrap(st, "%s", token);
        OPENSSL_cleanse(text, (size_t)n);
    }
    wf_free(ctx, text);
    if (!st)
        st = wf_tls_new_guest(ctx, t.authority, &tls);
    if (!st)
        st = visit_door(ctx, address, &guest, tls, &t, timeout_s, folder, task, description);
    wf_tls_free(tls);
    OPENSSL_cleanse(&t, sizeof t);
    return st;
}

weft_status weft_join_renew(weft_ctx *ctx, const char *address, const char *folder,
                            const char *task, double timeout_s)
{
    static const char *const ends[MAX_FILES] = {".pem", ".pem", ".key"};
    struct wf_identity self = {.incarnation = 0};
    char path[512], *text[MAX_FILES] = {0};
    struct wf_tls *tls = NULL;
    int64_t n;
    weft_status st = check_address(address);

    wf_snprintf(self.name, sizeof self.name, "%s", task);
    wf_snprintf(self.role, sizeof self.role, "%.*s", (int)strcspn(task, "/"), task);
    for (int i = 0; i < MAX_FILES && !st; i++) {
        int at = wf_snprintf(path, sizeof path, "%s/", folder);

        wf_snprintf(path + at, sizeof path - (size_t)at, "%s%s", i ? task : "authority", ends[i]);
        for (char *c = path + at; *c; c++)
            *c = *c == '/' ? '-' : *c;
        st = wf_file_read(ctx, path, MAX_PEM, &text[i], &n);
    }
    if (!st)
        st = wf_tls_new(ctx, &(struct wf_credentials){text[0], text[1], text[2]}, &tls);
    if (!st)
        st = visit_door(ctx, address, &self, tls, NULL, timeout_s, folder, NULL, NULL);
    wf_tls_free(tls);
    for (int i = 0; i < MAX_FILES; i++) {
        if (text[i])
            OPENSSL_cleanse(text[i], strlen(text[i]));
        wf_free(ctx, text[i]);
    }
    return st;
}
