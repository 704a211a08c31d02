/* weft/sys/predict.h - how fast a job of parameter servers would be, from what its parts cost. */
#ifndef WEFT_SYS_PREDICT_H
#define WEFT_SYS_PREDICT_H

#include "weft/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A synchronous job in which every worker computes one shard a step, and what things cost there, in
 * seconds. */
typedef struct weft_ps_costs {
    size_t size;
    int servers, workers;
    int replicas;         /* of each piece of the parameters: 1 or 2; 0: 1 */
    int64_t bytes;        /* of the parameters */
    int64_t piece_bytes;  /* of a piece; 0: 4 MiB */
    double forward_s;     /* a worker, until the first gradient is complete */
    double backward_s;    /* until the last one is; pieces are complete one after the other */
    double add_byte_s;    /* a server, for a byte of a contribution */
    double update_byte_s; /* for a byte of the parameters */
    double message_s;     /* whoever handles a message */
    double
        wire_byte_s; /* a byte through the link of a task, in either direction; 0: it is mapped */
    double latency_s;
    int cores; /* of one machine that all tasks share; 0: each task has its own */
    int steps; /* that are simulated; 0: 16. A quarter of them is not measured */
} weft_ps_costs;

typedef struct weft_ps_prediction {
    size_t size;
    double steps_s;
    /* Fractions of the time: of the busiest worker, server and link. */
    double worker_busy, server_busy, link_busy;
    double bytes_step; /* through the links of one worker */
    int64_t messages;  /* that were simulated */
} weft_ps_prediction;

/* Runs the machines of servers and workers, those that the processes of a job have, in virtual
 * time. WEFT_EINVAL: a cost is not a time, or a number is out of range; at most 1024 tasks. */
WEFT_API weft_status weft_ps_predict(weft_ctx *ctx, const weft_ps_costs *costs,
                                     weft_ps_prediction *out);

#ifdef __cplusplus
}
#endif
#endif
