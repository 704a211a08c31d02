/* token.c - tokens to join with: made, written, read. */
#include "cluster/token.h"

#include "base/sys.h"

static const char magic[] = "weft-token-1";

static bool is_role(const char *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(p[i] >= 'a' && p[i] <= 'z'))
            return false;
    return n > 0 && n < (int64_t)sizeof((struct wf_token *)NULL)->role;
}

weft_status wf_token_new(weft_ctx *ctx, const char *role,
                         const unsigned char authority[WF_FINGERPRINT], struct wf_token *out)
{
    weft_status st;

    *out = (struct wf_token){.role = ""};
    if (!is_role(role, (int64_t)strlen(role)))
        return wf_err(WEFT_EINVAL, "a token: '%.30s' is not a role", role);
    wf_snprintf(out->role, sizeof out->role, "%s", role);
    memcpy(out->authority, authority, WF_FINGERPRINT);
    st = wf_entropy(ctx, out->id, WF_TOKEN_ID);
    return st ? st : wf_entropy(ctx, out->secret, WF_TOKEN_SECRET);
}

static char *put_hex(char *to, const unsigned char *p, int n)
{
    static const char digits[] = "0123456789abcdef";

    *to++ = ' ';
    for (int i = 0; i < n; i++) {
        *to++ = digits[p[i] >> 4];
        *to++ = digits[p[i] & 15];
    }
    return to;
}

void wf_token_write(const struct wf_token *t, char out[WF_TOKEN_TEXT])
{
    char *to = out + wf_snprintf(out, WF_TOKEN_TEXT, "%s %s", magic, t->role);

    to = put_hex(to, t->id, WF_TOKEN_ID);
    to = put_hex(to, t->authority, WF_FINGERPRINT);
    to = put_hex(to, t->secret, WF_TOKEN_SECRET);
    *to++ = '\n';
    *to = '\0';
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The next word of a line; its length. */
static int64_t word(const char **p, int64_t *left)
{
    int64_t n = 0;

    while (*left > 0 && **p == ' ') {
        ++*p;
        --*left;
    }
    while (n < *left && (*p)[n] != ' ' && (*p)[n] != '\n' && (*p)[n] != '\r')
        n++;
    return n;
}

static weft_status take_hex(const char **p, int64_t *left, const char *what, unsigned char *out,
                            int bytes)
{
    int64_t n = word(p, left);

    if (n != 2 * (int64_t)bytes)
        return wf_err(WEFT_EPARSE, "a token: its %s has %lld characters, not %d", what,
                      (long long)n, 2 * bytes);
    for (int i = 0; i < bytes; i++) {
        int high = digit((*p)[2 * i]), low = digit((*p)[2 * i + 1]);

        if (high < 0 || low < 0)
            return wf_err(WEFT_EPARSE, "a token: its %s is not a hexadecimal number", what);
        out[i] = (unsigned char)(high << 4 | low);
    }
    *p += n;
    *left -= n;
    return WEFT_OK;
}

weft_status wf_token_parse(const char *text, int64_t n, struct wf_token *out)
{
    struct wf_token t = {.role = ""};
    int64_t length = word(&text, &n);
    weft_status st;

    if (length != (int64_t)sizeof magic - 1 || memcmp(text, magic, sizeof magic - 1) != 0)
        return wf_err(WEFT_EPARSE, "not a token: it does not begin with '%s'", magic);
    text += length;
    n -= length;
    length = word(&text, &n);
    if (!is_role(text, length))
        return wf_err(WEFT_EPARSE, "a token: its role is not one");
    memcpy(t.role, text, (size_t)length);
    text += length;
    n -= length;
    st = take_hex(&text, &n, "number", t.id, WF_TOKEN_ID);
    if (!st)
        st = take_hex(&text, &n, "authority", t.authority, WF_FINGERPRINT);
    if (!st)
        st = take_hex(&text, &n, "secret", t.secret, WF_TOKEN_SECRET);
    while (n > 0 && (*text == '\n' || *text == '\r' || *text == ' ')) {
        text++;
        n--;
    }
    if (!st && n > 0)
        st = wf_err(WEFT_EPARSE, "a token: more text follows it");
    if (!st)
        *out = t;
    return st;
}
