/* address.h - where a node listens, or a peer is found, as text. */
#ifndef WF_NET_ADDRESS_H
#define WF_NET_ADDRESS_H

#include "base/base.h"

enum { WF_MAX_ADDRESS = 320 };

enum wf_address_kind {
    WF_ADDRESS_TCP,
    WF_ADDRESS_TLS,
    WF_ADDRESS_UDS,
    WF_ADDRESS_SHM,
    WF_ADDRESS_INPROC
};

struct wf_address {
    enum wf_address_kind kind;
    char
        host[256]; /* a name or number, without brackets; a path of uds and shm; a name of inproc */
    int port;
};

/* "tls:host:4711", "tcp:[::1]:4711", "uds:/run/weft.sock", "shm:/run/weft.sock", "inproc:a". */
weft_status wf_address_parse(const char *text, struct wf_address *out);
/* Back again. */
void wf_address_format(const struct wf_address *a, char *out, size_t size);

#endif
