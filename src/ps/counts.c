/* counts.c - what a member of a job has moved, how long it has waited, and its queues; and what it
 * tells the chief of that. */
#include "ps/serve.h"

static double waited_s(const struct wf_site *n)
{
    int64_t since = n->since_ns, ns = since ? wf_site_now(n) - since - n->busy_ns : 0;

    return ns > 0 ? (double)ns * 1e-9 : 0;
}

weft_status wf_site_count(struct wf_site *n, struct wf_ps_counts *out)
{
    *out = (struct wf_ps_counts){.sent = n->sent_bytes,
                                 .received = n->received_bytes,
                                 .messages = n->messages,
                                 .waited_s = waited_s(n),
                                 .busy_s = (double)n->busy_ns * 1e-9};
    if (n->net) /* it has not ended */
        wf_net_queues(n->net, &out->queues);
    return n->st;
}

void wf_site_tell(struct wf_site *n, int chief, const struct wf_site_stat *s)
{
    struct wf_site_stat all = *s;

    all.sent = n->sent_bytes;
    all.received = n->received_bytes;
    all.busy_s = (double)n->busy_ns * 1e-9;
    if (n->since_ns)
        all.waited_s = waited_s(n);
    wf_net_queues(n->net, &all.queues);
    wf_site_send_copy(n, chief, WF_SITE_STAT, NULL, &all, sizeof all);
}
