/* rights.c - who may send what to whom. A link says who a peer is (net checks its certificate or
 * its user); what it sends is compared with that, so that a worker cannot speak as the chief
 * does. */
#include "cluster/cluster.h"

enum { CHIEF = 1 << WF_ROLE_CHIEF, SERVER = 1 << WF_ROLE_SERVER, WORKER = 1 << WF_ROLE_WORKER };

/* Sets of roles. A control record goes from a worker to the chief and from the chief to workers,
 * and from nobody to one of its own role. */
static const struct right {
    uint8_t from, to;
} right[WF_MSG_TYPES] = {
    [WF_MSG_BEAT] = {SERVER | WORKER, CHIEF},
    [WF_MSG_LEAVE] = {SERVER | WORKER, CHIEF},
    [WF_MSG_FILLED] = {SERVER, CHIEF},
    [WF_MSG_SAVED] = {SERVER | WORKER, CHIEF},
    [WF_MSG_DONE] = {WORKER, CHIEF},
    [WF_MSG_EPOCH] = {CHIEF, SERVER | WORKER},
    [WF_MSG_TERM] = {CHIEF, CHIEF | SERVER | WORKER},
    [WF_MSG_STOP] = {CHIEF, CHIEF | SERVER | WORKER},
    [WF_MSG_PULL] = {WORKER, SERVER},
    [WF_MSG_VERSION] = {SERVER, WORKER},
    [WF_MSG_PUSH] = {WORKER, SERVER},
    [WF_MSG_AT] = {SERVER, WORKER},
    [WF_MSG_ASK] = {WORKER, SERVER},
    [WF_MSG_PARTIAL] = {SERVER, SERVER},
    [WF_MSG_DECISION] = {SERVER, SERVER},
    [WF_MSG_WANT] = {SERVER, SERVER},
    [WF_MSG_RECORD] = {SERVER, SERVER},
    [WF_MSG_RECORDED] = {SERVER, SERVER},
    [WF_MSG_SYNC] = {SERVER, SERVER},
    [WF_MSG_SYNCED] = {SERVER, SERVER},
    [WF_MSG_FILL] = {SERVER, SERVER},
    [WF_MSG_FILL_NEXT] = {SERVER, SERVER},
    [WF_MSG_CONTROL] = {CHIEF | WORKER, CHIEF | WORKER},
    [WF_MSG_CONTROL_ASK] = {WORKER, CHIEF},
    [WF_MSG_READ] = {WORKER, SERVER},
    [WF_MSG_ROWS] = {SERVER, WORKER},
    [WF_MSG_CLOSE] = {WORKER, SERVER},
    [WF_MSG_APPLIED] = {SERVER, WORKER},
    [WF_MSG_CLOCK] = {WORKER, SERVER},
    [WF_MSG_CLOCKED] = {SERVER, WORKER},
    [WF_MSG_GRANT] = {CHIEF, WORKER},
    [WF_MSG_LEASES] = {WORKER, CHIEF},
    [WF_MSG_LEDGER] = {SERVER, CHIEF},
    [WF_MSG_REPORT] = {CHIEF, SERVER | WORKER},
    [WF_MSG_DRAINED] = {CHIEF, WORKER},
    [WF_MSG_HALT] = {WORKER, CHIEF},
    [WF_MSG_SEEK] = {CHIEF, CHIEF | SERVER | WORKER},
    [WF_MSG_SEEN] = {SERVER | WORKER, CHIEF},
};

bool wf_message_may(enum wf_message_type type, enum wf_role from, enum wf_role to)
{
    const struct right *r = &right[type];

    if (type == WF_MSG_CONTROL && from == to)
        return false;
    return r->from >> from & 1 && r->to >> to & 1;
}
