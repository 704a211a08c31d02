/* door.h - what is said at the door of a job (docs/formats/join.md). */
#ifndef WF_CLUSTER_DOOR_H
#define WF_CLUSTER_DOOR_H

#include "cluster/token.h"

enum {
    WF_DOOR_ASK = 1, /* the kind of the request */
    WF_DOOR_VERSION = 1,
    WF_DOOR_JOIN = 1,                                 /* by a token */
    WF_DOOR_RENEW,                                    /* by the certificate of the link */
    WF_DOOR_HEAD = 2 + WF_TOKEN_ID + WF_TOKEN_SECRET, /* of a request; its certificate request
                                                        * follows */
    WF_DOOR_MAX_REQUEST = 8192,
    WF_DOOR_MAX_ANSWER = 32 << 20,
    WF_DOOR_TEXTS = 4 /* of an answer: task, certificate, authority, description; or an empty one,
                       * and why */
};
#define WF_DOOR_NAME "door"

/* The texts of an answer, which end with NUL; WEFT_EPARSE: they are not WF_DOOR_TEXTS. */
weft_status wf_door_texts(const char *p, int64_t n, const char *text[WF_DOOR_TEXTS]);

#endif
