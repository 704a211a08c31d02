/* classic.c - the words of TensorFlow's SyncReplicasOptimizer.
 *
 * There, a step takes the first replicas_to_aggregate of the gradients that total_num_replicas
 * workers compute, and drops those that come later, with their samples. Here a step is as many
 * shards; workers beyond that number compute what is missing, and every sample counts once. */
#include "train/step/dist.h"

weft_status wf_classic_words(int64_t aggregate, int64_t total, int64_t n_workers, int64_t *shards,
                             bool *backup)
{
    *shards = 0;
    *backup = false;
    if (aggregate < 0 || total < 0 || aggregate > 65536)
        return wf_err(WEFT_EINVAL,
                      "replicas_to_aggregate %lld and total_num_replicas %lld: 1 to 65536 and the "
                      "number of workers are possible",
                      (long long)aggregate, (long long)total);
    if (total && total != n_workers)
        return wf_err(WEFT_EINVAL,
                      "total_num_replicas is %lld, but there are %lld workers: it is how many of "
                      "them compute; leave it out, or say the same number",
                      (long long)total, (long long)n_workers);
    if (total && !aggregate)
        aggregate = total; /* as there: all of them */
    *shards = aggregate;
    *backup = aggregate && n_workers > aggregate;
    return WEFT_OK;
}
