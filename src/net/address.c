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

weft_status wf_address_parse(const char *text, struct wf_address *out)
{
    struct sockaddr_un un;

    *out = (struct wf_address){.port = 0};
    if (strncmp(text, "tcp:", 4) == 0 || strncmp(text, "tls:", 4) == 0) {
        out->kind = text[1] == 'c' ? WF_ADDRESS_TCP : WF_ADDRESS_TLS;
        return parse_tcp(text, text + 4, out);
    }
    if (strncmp(text, "uds:", 4) == 0) {
        out->kind = WF_ADDRESS_UDS;
        if (!text[4] || strlen(text + 4) >= sizeof un.sun_path)
            return wf_err(WEFT_EINVAL, "address '%s': a path of 1 to %d bytes is expected", text,
                          (int)sizeof un.sun_path - 1);
        wf_snprintf(out->host, sizeof out->host, "%s", text + 4);
        return WEFT_OK;
    }
    return wf_err(WEFT_EINVAL, "address '%s': expected tls:HOST:PORT, tcp:HOST:PORT or uds:PATH",
                  text);
}

void wf_address_format(const struct wf_address *a, char *out, size_t size)
{
    const char *word = a->kind == WF_ADDRESS_TLS ? "tls" : "tcp";

    if (a->kind == WF_ADDRESS_UDS)
        wf_snprintf(out, size, "uds:%s", a->host);
    else if (strchr(a->host, ':'))
        wf_snprintf(out, size, "%s:[%s]:%d", word, a->host, a->port);
    else
        wf_snprintf(out, size, "%s:%s:%d", word, a->host, a->port);
}
