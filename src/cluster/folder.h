/* folder.h - the chief's store in a directory that all chiefs share: one machine's disk, or shared
 * storage.
 *
 * Terms, epochs and manifests are files that appear complete or not at all, and are never changed.
 * A term or an epoch is created by link(), which fails if the name is taken: of any number of
 * processes that try, exactly one succeeds. docs/formats/ps.md has names and contents. */
#ifndef WF_CLUSTER_FOLDER_H
#define WF_CLUSTER_FOLDER_H

#include "cluster/chief.h"

struct wf_folder;

/* Creates the directory if it does not exist; its parent must be. */
weft_status wf_folder_open(weft_ctx *ctx, const char *path, struct wf_folder **out);
void wf_folder_close(struct wf_folder *f);

/* The payload of WF_ACT_CREATE_CONTROL. */
struct wf_control_bytes {
    const char *p;
    int64_t n;
};

/* Carries out what a chief asked for: WF_ACT_CREATE_TERM, _CREATE_EPOCH, _READ, _CREATE_MANIFEST or
 * _CREATE_CONTROL. out->ok is false, without an error, if somebody else was faster or a higher term
 * is there. An error means that it is not known whether it was created: WF_ACT_READ tells.
 * out->epoch and control are valid until the next call. The file system is used by the calling
 * thread, one at a time.
 *
 * WEFT_EDATA if the last epoch is damaged: no other one can take its place. A damaged manifest is
 * reported to the log and the previous one counts. */
weft_status wf_folder_do(struct wf_folder *f, const struct wf_action *a,
                         struct wf_store_answer *out);

#endif
