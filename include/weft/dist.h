/* weft/dist.h - strategies: how many replicas of a model compute a step, and how their results are
 * combined.
 *
 *   weft_dist *d;
 *   weft_dist_open(ctx, "local", &d);
 *   weft_dist_scope(d, m);                          trainers of m belong to the strategy
 *   weft_compile(m, …, &t);
 *   weft_dist_run(d, replica_step, &state);         each replica of this process computes its share
 *   weft_dist_reduce_grads(d, WEFT_MEAN, grads, &mean);
 *   weft_trainer_apply(t, mean, NULL);
 *
 * weft_fit does this itself. A program that uses only these calls works with any strategy: it asks
 * for the number of replicas and never assumes it. A strategy is chosen by name, here, in
 * weft_compile_opts, or as train.strategy of a job; weft_dist_at lists them. `local`: one replica,
 * in this process; nothing is sent. `mirrored`: one for each of the context's devices. With the
 * same number of shards all of them give the same bits. A handle may be used by one thread at a
 * time. weft/sys/strategy.h is for strategies of your own. */
#ifndef WEFT_DIST_H
#define WEFT_DIST_H

#include "weft/loop.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_dist weft_dist;

/* Row i of the table of strategies: its name and one line of documentation; false past the end. */
WEFT_API bool weft_dist_at(int i, const char **name, const char **doc);

/* strategy: a name, NULL for "local". One that does not exist is WEFT_ENOENT with the nearest name.
 * The handle must outlive the models in its scope and their trainers. */
WEFT_API weft_status weft_dist_open(weft_ctx *ctx, const char *strategy, weft_dist **out);
WEFT_API void weft_dist_free(weft_dist *d);
WEFT_API const char *weft_dist_name(const weft_dist *d);
WEFT_API int weft_dist_replicas(const weft_dist *d);       /* in sync, in all processes */
WEFT_API int weft_dist_local_replicas(const weft_dist *d); /* in this process */

/* What a strategy of several processes has moved, since it was opened. */
typedef struct weft_dist_counts {
    size_t size;
    int64_t sent, received; /* bytes */
    int64_t messages;       /* that arrived */
    double waited_s; /* for parameters, or for other workers; of a server: for messages, since
                             * it knows what is trained */
    int64_t shards;  /* that this worker has computed */
    double busy_s;   /* of a server: with what arrived */
    /* Queues, as they are now. Messages that wait to be sent: the network, or a slow task, has not
     * taken them whole. Bytes that have arrived, and were not read yet; and how many other tasks
     * they are from, with those of which a part of a message is there: their next messages. */
    int64_t send_queue_messages, send_queue_bytes;
    int64_t receive_queue_messages, receive_queue_bytes;
    /* Of a worker in asynchronous training: how many shards of others were applied between what one
     * of its shards was computed from and its own: the mean over shards and parts of the
     * parameters, and the most. */
    double staleness;
    int64_t staleness_most;
} weft_dist_counts;

/* Where variables are that no device scope places on a server ("/job:ps/task:1":
 * weft_device_push, weft_model_device), as with TensorFlow's replica_device_setter. A variable
 * that is placed is whole on its server. While that server is missing, others hold it; then it
 * comes back. */
typedef enum weft_placement {
    WEFT_PLACE_EVEN,        /* in pieces over all servers, so that each has as many bytes */
    WEFT_PLACE_ROUND_ROBIN, /* one server after the other */
    WEFT_PLACE_GREEDY       /* the server that has the fewest bytes so far */
} weft_placement;
/* The server of a variable, below n_servers; -1: any. The same answer in every worker. */
typedef int weft_place_fn(void *arg, const char *variable, int64_t bytes, int n_servers);

/* CHECKPOINT: write one after this step. STOP: end the training after this step, as if it was
 * interrupted; all workers are asked. DRAINED: others compute the shards of this worker, whose
 * weft_fit is about to fail with WEFT_EPEER. */
typedef enum weft_ps_asked {
    WEFT_PS_CHECKPOINT = 'c',
    WEFT_PS_STOP = 's',
    WEFT_PS_DRAINED = 'd'
} weft_ps_asked;

/* Parameter servers. They hold the parameters in pieces, add up the gradients that workers compute,
 * and update them; this process computes. */
typedef struct weft_ps_opts {
    size_t size;
    /* All tasks of the job, "chief=ADDRESS;ps=ADDRESS,ADDRESS;worker=2", with addresses as tcp:
     * HOST:PORT, tls:HOST:PORT, shm:PATH or uds:PATH; and which of them this process is,
     * "worker/0". NULL: chief and servers are in this process. */
    const char *cluster, *task;
    int servers;         /* without a cluster; 0: 1 */
    int replicas;        /* of each piece, on different servers: 1 or 2; 0: 2, if possible */
    int64_t piece_bytes; /* about; 0: 4 MiB */
    double timeout_s;    /* of silence, after which a task is taken for dead; 0: 3 */
    /* A chief's store, where it writes who belongs to the job: a chief that is started again, or
     * another one, continues with it. A directory, or "etcd://HOST:PORT,HOST:PORT/PREFIX" (etcds:
     * with TLS; see the end). NULL: in memory. */
    const char *folder;
    /* PEM files, for tls: the authority's certificate, this task's, and its key. They are read
     * again when they have changed: new links use the new ones, those that exist are kept. */
    const char *authority, *certificate, *key;
    /* For chiefs and servers; each may be NULL. report: a few times a second, by the thread that
     * called weft_ps_serve. event: of a chief, who joined, died, was promoted, …, as one line about
     * a task ("ps/1"), by a thread of the library, which must not be blocked. stopped: asked where
     * report is called; true ends the task. */
    void (*report)(void *arg, const weft_dist_counts *counts);
    void (*event)(void *arg, const char *task, const char *what);
    bool (*stopped)(void *arg);
    void *call_arg; /* of these three, and of add and asked */
    /* Of a worker. place: instead of `placement`, if not NULL. A scope of a server that does not
     * exist is WEFT_ENOENT; with weft_ctx_opts.soft_placement it is ignored, with a warning. */
    weft_placement placement;
    weft_place_fn *place;
    void *place_arg;
    /* Slow tasks; the result does not change by a bit. balance_s: how often shards may move from
     * slow workers to fast ones, and parameters from overloaded servers to others, and back; 0:
     * never. */
    double balance_s;
    /* Backup computation: a worker that has waited as long as this many shards take it computes one
     * that is missing, whoever it belongs to; the first to arrive counts, and no sample is lost.
     * 0: never. */
    int backup;
    /* The words of TensorFlow's SyncReplicasOptimizer. replicas_to_aggregate: gradients that make
     * a step, which is the number of shards (weft_compile_opts.shards must be 0 or the same).
     * total_num_replicas: workers; it must be how many there are. Those beyond
     * replicas_to_aggregate turn backup computation on. 0: not said. */
    int replicas_to_aggregate, total_num_replicas;
    /* What people want of a running job (weft/sys/ctl.h); each may be NULL, by a thread of the
     * library, which must not be blocked. add: of a chief, n further tasks of a role ("ps",
     * "worker") are to be started; false: that is not possible. asked: of a worker. */
    bool (*add)(void *arg, const char *role, int n);
    void (*asked)(void *arg, weft_ps_asked what);
    /* Of a store in etcd. PEM files for etcds: the authority of its certificate (NULL: those of
     * this system), and this client's certificate and key (NULL: none). insecure_store: etcd,
     * without TLS, may be on another machine. */
    const char *store_authority, *store_certificate, *store_key;
    bool insecure_store;
    /* A worker that is alive, but whose program does nothing new for this many seconds while other
     * workers wait for it, is left out: others compute its shards. If its program continues, it
     * joins again. Ten times as long for callbacks, validation and checkpoints of the one that
     * decides. 0: 60; below 0: never. */
    double stall_timeout_s;
    /* Of a worker; the same for all. NULL or "sync": a step is complete when all of its shards are.
     * "async": each shard is applied by itself, as soon as a worker has computed it from whatever
     * parameters the servers had; "stale(S)", S from 1 on: likewise, but no worker reads parameters
     * while another one has completed more than S shards less. weft_fit alone trains so. The chief
     * leases shards to workers: each sample of an epoch counts once, whoever dies. Epochs end, and
     * checkpoints are written, when all shards before are applied. Iterations of the optimizer and
     * its schedule count shards. With weft_compile_opts.update "worker" rounds of logical workers
     * take the place of shards; their optimizers count batches. */
    const char *consistency;
    /* Of a worker: bytes for rows of tables that it keeps, so that those that have not changed are
     * not sent again; a step that looks up more is possible. 0: 64 MiB. */
    int64_t row_cache_bytes;
} weft_ps_opts;
/* A worker. Every worker runs the same program: the same model, data, seed and calls. In
 * weft_fit the one with the lowest number decides: callbacks are called and files written by it
 * alone, except train_begin, which is called in each of them, and again in one that takes over. */
WEFT_API weft_status weft_dist_open_ps(weft_ctx *ctx, const weft_ps_opts *opts, weft_dist **out);
/* A chief or a server of a cluster: returns when the job has ended. */
WEFT_API weft_status weft_ps_serve(weft_ctx *ctx, const weft_ps_opts *opts);
/* Whether opts->folder can be a chief's store, and answers: WEFT_EPEER if it does not,
 * WEFT_ENOSUP if this build, or the etcd, is not able to. And removes from etcd what a job that
 * has ended has written there; a directory is left as it is. */
WEFT_API weft_status weft_ps_store_check(weft_ctx *ctx, const weft_ps_opts *opts);
WEFT_API weft_status weft_ps_store_drop(weft_ctx *ctx, const weft_ps_opts *opts);

/* Which server will hold which variables of a model, and how many bytes, as text, freed with
 * weft_text_free. opts: as those of a worker; `task` is not needed. */
WEFT_API weft_status weft_ps_explain(const weft_model *m, const weft_ps_opts *opts, char **out);

/* Of this process. */
WEFT_API weft_status weft_dist_count(const weft_dist *d, weft_dist_counts *out);

/* Puts a model into the strategy's scope: trainers compiled from it belong to the strategy (one
 * named in weft_compile_opts must be the same), and by default compute a step in as many logical
 * shards as there are replicas. */
WEFT_API weft_status weft_dist_scope(weft_dist *d, weft_model *m);

/* The part of a dataset that this process reads. */
WEFT_API weft_status weft_dist_dataset(weft_dist *d, weft_data *data, weft_ds s, weft_ds *out);

/* Calls fn for each replica of this process, in order; replicas are numbered across all processes.
 * The first failure ends it. A trainer that fn uses computes its shards with all of them. */
typedef weft_status weft_replica_fn(void *arg, int replica);
WEFT_API weft_status weft_dist_run(weft_dist *d, weft_replica_fn *fn, void *arg);

typedef enum weft_reduction { WEFT_SUM, WEFT_MEAN } weft_reduction;

/* The sum or the mean of a value over all replicas, the same in each process. values: one for each
 * replica of this process, all of the same shape, f32, f64, i32 or i64 (for a mean: floats). out:
 * memory of that type and shape, which may be that of the first value. */
WEFT_API weft_status weft_dist_reduce(weft_dist *d, weft_reduction how, const weft_tensor *values,
                                      weft_tensor *out);
/* The same for gradients; a mean is weighted as in weft_grads_average. *out: NULL, or gradients
 * that are not among g and are replaced. */
WEFT_API weft_status weft_dist_reduce_grads(weft_dist *d, weft_reduction how,
                                            const weft_grads *const *g, weft_grads **out);

#ifdef __cplusplus
}
#endif
#endif
