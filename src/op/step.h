/* step.h - what kernels of devices with memory of their own read and write in every step, in
 * device memory. Plain words: code for devices includes this file, too. */
#ifndef WF_OP_STEP_H
#define WF_OP_STEP_H

#include <stdint.h>

/* The values that change from run to run. A run on such a device may be a recording, so a kernel
 * must take them from here and not from its call. After the block come the bytes that kernels asked
 * for by wf_kplan.step_bytes. */
struct wf_step_block {
    uint64_t seed;
    uint64_t step;     /* of random numbers */
    int64_t iteration; /* of updates: 1 in the first step */
    uint32_t shard;
    uint32_t reserved[9];
};

/* Words that say what went wrong in a run; all zero before it. The host reads them after it. The
 * first instruction that finds a fault sets them: code last, or by compare-and-swap from 0. Kernels
 * that overwrite a variable (WF_STATE_IN0) do nothing if code is not 0. */
enum wf_trouble_word {
    WF_TROUBLE_CODE,     /* enum wf_trouble_code */
    WF_TROUBLE_INSTR,    /* wf_call.instr of the one that found it */
    WF_TROUBLE_POSITION, /* low word, high word: the element */
    WF_TROUBLE_VALUE = 4,
    WF_TROUBLE_LIMIT = 6,
    WF_TROUBLE_WORDS = 8
};
enum wf_trouble_code {
    WF_TROUBLE_NONE,
    WF_TROUBLE_INDEX,      /* input POSITION's element is VALUE, which is not in [0, LIMIT) */
    WF_TROUBLE_NOT_FINITE, /* element POSITION of output VALUE */
    WF_TROUBLE_OTHER       /* the data was refused; the next synchronization has the text */
};

#endif
