/* address.c - addresses as text. */
#include "net/address.h"

#include <sys/un.h>

static weft_status parse_port(const char *text, const char *digits, int *out)
{
    int port = 0, n = 0;

    for (; digits[n] >= '0' && digits[n] <= '9' && n < 6; n++)
        port = 10 * port + (digits[n] - '0');
    if (n == 0 || digits[n] || port > 65535)
        return wf_err(WEFT_EINVAL, "address '%s': '%s' is not a port (0 to 65535)", text, digits);
    *out = port;
    return WEFT_OK;
}

static weft_status parse_tcp(const char *text, const char *host, struct wf_address *out)
{
    const char *end, *colon;
    size_t n;

    if (*host == '[') {
        end = strchr(++host, ']');
        colon = end && end[1] == ':' ? end + 1 : NULL;
    } else {
        end = colon = strrchr(host, ':');
        if (colon && memchr(host, ':', (size_t)(colon - host)))
            return wf_err(WEFT_EINVAL,
                          "address '%s': write an IPv6 address in brackets, tcp:[::1]:4711", text);
    }
    if (!colon || end == host)
        return wf_err(WEFT_EINVAL, "address '%s': expected %.3s:HOST:PORT", text, text);
    n = (size_t)(end - host);
    if (n >= sizeof out->host)
        return wf_err(WEFT_EINVAL, "address '%s': the name of the host is too long", text);
    memcpy(out->host, host, n);
    out->host[n] = 0;
    return parse_port(text, colon + 1, &out->port);
}

/* What is before the colon. */
static const struct word {
    const char *text;
    bool port;
} words[] = {
    [WF_ADDRESS_TCP] = {"tcp", true},        [WF_ADDRESS_TLS] = {"tls", true},
    [WF_ADDRESS_UDS] = {"uds", false},       [WF_ADDRESS_SHM] = {"shm", false},
    [WF_ADDRESS_INPROC] = {"inproc", false},
};

weft_status wf_address_parse(const char *text, struct wf_address *out)
{
    struct sockaddr_un un;

    *out = (struct wf_address){.port = 0};
    for (int k = 0; k < WF_COUNT(words); k++) {
        size_t n = strlen(words[k].text);
        size_t max = k == WF_ADDRESS_INPROC ? 63 : sizeof un.sun_path - 1;
        const char *rest = text + n + 1;

        if (strncmp(text, words[k].text, n) != 0 || text[n] != ':')
            continue;
        out->kind = (enum wf_address_kind)k;
        if (words[k].port)
            return parse_tcp(text, rest, out);
        if (!*rest || strlen(rest) > max)
            return wf_err(WEFT_EINVAL, "address '%s': a %s of 1 to %d bytes is expected", text,
                          k == WF_ADDRESS_INPROC ? "name" : "path", (int)max);
        wf_snprintf(out->host, sizeof out->host, "%s", rest);
        return WEFT_OK;
    }
    return wf_err(
        WEFT_EINVAL,
        "address '%s': expected tls:HOST:PORT, tcp:HOST:PORT, uds:PATH, shm:PATH or inproc:NAME",
        text);
}

void wf_address_format(const struct wf_address *a, char *out, size_t size)
{
    const struct word *w = &words[a->kind];

    if (!w->port)
        wf_snprintf(out, size, "%s:%s", w->text, a->host);
    else if (strchr(a->host, ':'))
        wf_snprintf(out, size, "%s:[%s]:%d", w->text, a->host, a->port);
    else
        wf_snprintf(out, size, "%s:%s:%d", w->text, a->host, a->port);
}
